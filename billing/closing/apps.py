from django.apps import AppConfig


class ClosingConfig(AppConfig):
    name = "billing.closing"
    label = "closing"
