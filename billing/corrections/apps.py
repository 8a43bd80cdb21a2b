from django.apps import AppConfig


class CorrectionsConfig(AppConfig):
    name = "billing.corrections"
    label = "corrections"
    default_auto_field = "django.db.models.BigAutoField"
