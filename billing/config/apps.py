from django.apps import AppConfig


class HouseConfig(AppConfig):
    """Carries the commands that run the whole house (`up`, `demo`, `apply`) and makes Celery's application current."""

    name = "billing.config"
    label = "house"

    def ready(self) -> None:
        from billing.config import celery  # noqa: F401 - shared tasks bind to the application that was made last
