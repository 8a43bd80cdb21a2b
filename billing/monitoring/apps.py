from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    """App of the state of the installation and the heartbeats of its parts."""

    name = "billing.monitoring"

    def ready(self) -> None:
        from billing.monitoring import tasks  # noqa: F401 - the scheduler notes its own sign of life from the start
