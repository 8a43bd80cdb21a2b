"""Celery application. The broker carries wake-up calls only: the work itself is in the database."""

import os
import sys
from contextlib import ExitStack
from logging import getLogger
from logging.config import dictConfig
from typing import Any

from celery import Celery, Task
from celery.signals import before_task_publish, setup_logging, task_postrun, task_prerun
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from billing.runtime.request_id import request_id, request_id_of

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
try:
    settings.INSTALLED_APPS  # noqa: B018 - read here, a mistake in the environment is one line
except ImproperlyConfigured as error:
    sys.exit(f"error: {error}")

_belonging: dict[str, ExitStack] = {}


@before_task_publish.connect(dispatch_uid="id of the request")
def _pass_on(headers: dict[str, Any], **_: Any) -> None:
    """Add the request id to a task's headers."""
    if identifier := request_id():
        headers["request_id"] = identifier


@task_prerun.connect(dispatch_uid="id of the request")
def _begin(task_id: str, task: Task, **_: Any) -> None:
    """Set the request id of a task to that of the request that started it."""
    belonging = _belonging[task_id] = ExitStack()
    belonging.enter_context(request_id_of(task.request.get("request_id") or ""))


@task_postrun.connect(dispatch_uid="id of the request")
def _end(task_id: str, **_: Any) -> None:
    _belonging.pop(task_id).close()


if settings.OTEL_EXPORTER_OTLP_ENDPOINT:
    from billing.settings import tracing  # noqa: F401 - connected after the id of the request, which spans have

if settings.LOG_FORMAT == "json":

    @setup_logging.connect(dispatch_uid="JSON lines")
    def _log_as_json(loglevel: int, **_: Any) -> None:
        """Keep the log configuration of the settings instead of Celery's."""
        dictConfig(settings.LOGGING)
        getLogger("celery").setLevel(loglevel)


app = Celery("suanpan")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
