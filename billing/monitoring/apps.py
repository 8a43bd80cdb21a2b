from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    """The state of the installation itself, and the sign of life of its parts."""

    name = "billing.monitoring"

    def ready(self) -> None:
        from billing.monitoring import tasks  # noqa: F401 - the scheduler notes its own sign of life from the start
