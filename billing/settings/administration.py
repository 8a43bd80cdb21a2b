"""Django admin with a custom site."""

from importlib import import_module

from django.contrib import admin
from django.contrib.admin.apps import AdminConfig


class AdministrationConfig(AdminConfig):
    default_site = "billing.tenancy.administration.Administration"

    def ready(self) -> None:
        """Discover the admin classes, and set the labels of their tables."""
        super().ready()
        import_module("billing.tenancy.administration").words_given(admin.site)
