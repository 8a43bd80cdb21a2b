from django.apps import AppConfig


class BackupConfig(AppConfig):
    name = "billing.backup"
    label = "backup"
