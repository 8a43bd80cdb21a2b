"""The WSGI entry point of web workers."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.config.settings")
application = get_wsgi_application()
