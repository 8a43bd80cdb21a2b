from django.apps import AppConfig


class LocalConfig(AppConfig):
    name = "billing.local"
    label = "local"
