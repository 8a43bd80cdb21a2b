from django.apps import AppConfig


class CorrectionsConfig(AppConfig):
    name = "billing.corrections"
    label = "corrections"
