"""Django's administration as an application, with our site."""

from importlib import import_module

from django.contrib import admin
from django.contrib.admin.apps import AdminConfig


class AdministrationConfig(AdminConfig):
    default_site = "billing.tenancy.administration.Administration"

    def ready(self) -> None:
        """Find the tables, and give them their words."""
        super().ready()
        import_module("billing.tenancy.administration").words_given(admin.site)
