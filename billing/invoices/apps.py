from django.apps import AppConfig


class InvoicesConfig(AppConfig):
    name = "billing.invoices"
    label = "invoices"
    default_auto_field = "django.db.models.BigAutoField"
