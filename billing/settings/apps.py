from django.apps import AppConfig


class SettingsConfig(AppConfig):
    """App that makes Celery's application current, and connects the signals of sign-ins."""

    name = "billing.settings"

    def ready(self) -> None:
        from billing.settings import (
            celery,  # noqa: F401 - shared tasks bind to the application that was made last
            sessions,  # noqa: F401 - its receivers are connected before anybody signs in
        )
