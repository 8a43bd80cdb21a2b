from django.apps import AppConfig


class RatesConfig(AppConfig):
    name = "billing.rates"
    label = "rates"
    default_auto_field = "django.db.models.BigAutoField"
