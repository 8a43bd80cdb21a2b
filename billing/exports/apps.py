from django.apps import AppConfig


class ExportsConfig(AppConfig):
    name = "billing.exports"
    label = "exports"
