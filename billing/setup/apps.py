from django.apps import AppConfig


class SetupConfig(AppConfig):
    name = "billing.setup"
    label = "setup_file"
