"""The server that ingest is compared with."""

from django.core.wsgi import get_wsgi_application

_django = get_wsgi_application()

from billing.api.whole_requests import WholeRequests  # noqa: E402 - Django has to be set up first

application = WholeRequests(_django, threads=16)
