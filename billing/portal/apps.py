from django.apps import AppConfig


class PortalConfig(AppConfig):
    name = "billing.portal"
    label = "portal"
