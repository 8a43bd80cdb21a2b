"""State of the installation for `/metrics` and the banner for admins, each fact read in one place."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from celery import current_app
from django.db import connection
from django.db.models import Count, Max, Min, Q
from django.utils import timezone
from kombu.exceptions import ChannelError, OperationalError

from billing.budgets.models import Delivery, WebhookEvent
from billing.explorer.models import ReportSchedule
from billing.invoices.models import DocumentMail, Operation
from billing.monitoring.models import Heartbeat
from billing.tenancy.backups import last_backups
from billing.tenancy.selectors import consumer_book, namespace_book
from billing.usage.reported import EXPECTED, Reported, ReportingState
from billing.usage.scope import EVERYTHING
from billing.usage.selectors import names_used_since
from metering.intervals import Interval

logger = logging.getLogger(__name__)
RECENT: Final = timedelta(hours=3)
"""Time range of usage whose owners are checked: little enough to read at each scrape."""
GIVEN_UP: Final = 3
"""Attempts after which a delivery counts as failed, though it is retried."""
BACKUPS: Final = ("backup_take", "backup_prove")
"""Audit log actions of backups: one taken, one proven by a restore."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Pending operations (closes, issues): their number, the age of the oldest in seconds, and the most attempts of one."""

    pending: int
    oldest_seconds: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Database:
    """Database figures. connections: of all clients of the server; most_connections: the server's limit."""

    size_bytes: int
    connections: int
    most_connections: int


def operations(now: datetime) -> Operations:
    """Return the operations that wait for a worker or a retry."""
    pending = Operation.objects.filter(status=Operation.Status.PENDING)
    found = pending.aggregate(count=Count("id"), oldest=Min("requested_at"), attempts=Max("attempts"))
    age = (now - found["oldest"]).total_seconds() if found["oldest"] else 0.0
    return Operations(found["count"], age, found["attempts"] or 0)


def heartbeats() -> dict[str, datetime | None]:
    """Return the last heartbeat of each part; None for never."""
    known = dict(Heartbeat.objects.values_list("part", "at"))
    return {part: known.get(part) for part in Heartbeat.Part.values}


def backups() -> dict[str, datetime | None]:
    """Return the times of the last backup and of the last proof; None for never."""
    known = last_backups()
    return {action: known.get(action) for action in BACKUPS}


def deliveries_failed() -> dict[str, int]:
    """Count the alerts, documents, events of webhooks and reports that do not reach their recipients."""
    mails = Q(status=DocumentMail.Status.FAILED) | Q(status=DocumentMail.Status.PENDING, attempts__gte=GIVEN_UP)
    return {
        "alert": Delivery.objects.filter(status=Delivery.Status.PENDING, attempts__gte=GIVEN_UP).count(),
        "document": DocumentMail.objects.filter(mails).count(),
        "webhook": WebhookEvent.objects.filter(status=Delivery.Status.PENDING, attempts__gte=GIVEN_UP).count(),
        "report": ReportSchedule.objects.filter(attempts__gte=GIVEN_UP).count(),
    }


def reporting(now: datetime) -> ReportingState:
    """Return the time through which usage is complete, and the silent agents and gateways."""
    return Reported(now).state(EVERYTHING, Interval(now - EXPECTED, now))


def unowned_count(now: datetime) -> int:
    """Count the namespaces and consumers with usage of the last hours that have no owner now."""
    namespaces, consumers = names_used_since(now - RECENT)
    owned_namespaces, owned_consumers = namespace_book(), consumer_book()
    return sum(owned_namespaces.owner(*name, now) is None for name in namespaces) + sum(
        owned_consumers.owner(*name, now) is None for name in consumers
    )


def database() -> Database:
    """Return size and connections from PostgreSQL."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT pg_database_size(current_database()), (SELECT sum(numbackends) FROM pg_stat_database),
                      current_setting('max_connections')::int"""
        )
        size, clients, most = cursor.fetchone()
    return Database(int(size), int(clients), most)


def clock_ahead_seconds() -> float:
    """Return the lead of the clock of this process over the database's, in seconds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (clock,) = cursor.fetchone()
    return (timezone.now() - clock).total_seconds()


def tasks_waiting() -> int | None:
    """Return the number of tasks that no worker has taken; None where the broker is unreachable."""
    broker: Any = current_app.connection_for_read(connect_timeout=2)
    away: tuple[type[Exception], ...] = (OperationalError, OSError, *broker.connection_errors)
    try:
        with broker:
            broker.ensure_connection(max_retries=1, timeout=2)
            with broker.channel() as channel:
                return int(channel.queue_declare(current_app.conf.task_default_queue, passive=True).message_count)
    except ChannelError:  # the queue does not exist while it is empty
        return 0
    except away as error:
        logger.warning("the broker is unreachable: %s", error)
        return None


def silent_by_kind(state: ReportingState) -> Mapping[str, int]:
    kinds = [one.kind for one in state.silent]
    return {kind: kinds.count(kind) for kind in ("agent", "allocations", "gateway")}
