from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "billing.api"
    label = "api"
