from django.apps import AppConfig


class InboxConfig(AppConfig):
    name = "billing.inbox"
    label = "inbox"
    default_auto_field = "django.db.models.BigAutoField"
