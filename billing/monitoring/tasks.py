"""Signs of life: the scheduler's when it sends the task below, a worker's when it does it."""

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
    """Note that a worker is at work. What waited longer than a minute says nothing of now, and is dropped."""
    heartbeat_note(Heartbeat.Part.WORKER)


@before_task_publish.connect(sender=NAME, dispatch_uid="heartbeat of the scheduler")
def _scheduled(**_: Any) -> None:
    """Note that the scheduler is at work; a database that is away must not keep it from its other tasks."""
    try:
        heartbeat_note(Heartbeat.Part.SCHEDULER)
    except DatabaseError as error:
        logger.warning("the scheduler's sign of life could not be stored: %s", error)


def heartbeat_note(part: str) -> None:
    Heartbeat.objects.update_or_create(part=part, defaults={"at": timezone.now()})
