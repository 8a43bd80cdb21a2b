from django.apps import AppConfig


class ClosingConfig(AppConfig):
    name = "billing.closing"
    label = "closing"
    default_auto_field = "django.db.models.BigAutoField"
