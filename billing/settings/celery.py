"""The Celery application. The broker carries wake-up calls only: what is to be done stands in the database."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
app = Celery("suanpan")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
