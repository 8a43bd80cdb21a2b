"""The ASGI entry point of web workers: Django, which `billing.settings.wsgi` sets up and tunes, behind Uvicorn."""

from django.conf import settings

from billing.settings.wsgi import application as django_application

from billing.api.limited_connection import allow_connections  # isort: skip  # these need Django set up
from billing.api.whole_requests import WholeRequests  # isort: skip

application = WholeRequests(django_application, settings.WEB_THREADS)
allow_connections()
