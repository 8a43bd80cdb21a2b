"""ASGI entry point of web workers: Django, set up and tuned by `billing.settings.wsgi`, behind Uvicorn."""

from typing import Any

from django.conf import settings

from billing.settings.wsgi import application as django_application

from billing.api.limited_connection import allow_connections  # isort: skip  # these need Django set up
from billing.api.whole_requests import WholeRequests  # isort: skip

application: Any = WholeRequests(django_application, settings.WEB_THREADS)
if settings.OTEL_EXPORTER_OTLP_ENDPOINT:
    from billing.settings import tracing

    tracing.begin("web")
    application = tracing.TracedRequests(application)
allow_connections()
