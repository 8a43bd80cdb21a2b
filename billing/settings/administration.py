"""Django's administration as an application, with our site."""

from django.contrib.admin.apps import AdminConfig


class AdministrationConfig(AdminConfig):
    default_site = "billing.tenancy.administration.Administration"
