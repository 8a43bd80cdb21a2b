from django.apps import AppConfig


class InvoicesConfig(AppConfig):
    name = "billing.invoices"
    label = "invoices"
