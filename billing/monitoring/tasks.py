"""Heartbeats: the scheduler's when it sends the task below, a worker's when it runs it."""

import logging
from typing import Any, Final

from celery import shared_task
from celery.signals import before_task_publish
from django.db import DatabaseError
from django.utils import timezone

from billing.monitoring.models import Heartbeat

logger = logging.getLogger(__name__)
NAME: Final = "billing.monitoring.tasks.heartbeat"


@shared_task(name=NAME, ignore_result=True, expires=60)
def heartbeat() -> None:
    """Store a worker heartbeat. A task that waited longer than a minute expires: it would report an outdated time."""
    heartbeat_note(Heartbeat.Part.WORKER)


@before_task_publish.connect(sender=NAME, dispatch_uid="heartbeat of the scheduler")
def _scheduled(**_: Any) -> None:
    """Store a scheduler heartbeat; an unreachable database must not stop the scheduler's other tasks."""
    try:
        # the signal runs in the process that sends the task, which is the scheduler
        heartbeat_note(Heartbeat.Part.SCHEDULER)
    except DatabaseError as error:
        logger.warning("the scheduler's sign of life could not be stored: %s", error)


def heartbeat_note(part: str) -> None:
    Heartbeat.objects.update_or_create(part=part, defaults={"at": timezone.now()})
