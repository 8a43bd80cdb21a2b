from django.apps import AppConfig


class InvoicingConfig(AppConfig):
    name = "billing.invoicing"
    label = "invoicing"
    default_auto_field = "django.db.models.BigAutoField"
