"""The server that ingest is compared with."""

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
