"""The Celery application. The broker carries wake-up calls only: what is to be done is in the database."""

import os
import sys

from celery import Celery
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
try:
    settings.INSTALLED_APPS  # noqa: B018 - read here, a mistake in the environment is one line
except ImproperlyConfigured as error:
    sys.exit(f"error: {error}")
app = Celery("suanpan")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
