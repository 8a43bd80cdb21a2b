"""Events of webhooks: found in the stored data, and sent until the webhook accepts each.

An event is found by what is stored (an issued document, a closed month, an alert), not noted when it happens: a process
that dies loses none, and the unique row per webhook and cause makes none twice. A webhook is served by one process at a time
(its row is locked), and the outcome is stored in the same transaction. If the process dies between the acceptance and
the commit, that event is sent again with the same id.
"""

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from billing.budgets.channels import ChannelError, event_text, post_event
from billing.budgets.models import Alert, Channel, Delivery, WebhookEvent
from billing.budgets.services.deliveries import FIRST_WAIT, LONGEST_WAIT
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.runtime.apart import each_apart, failure_text, log_failure
from billing.tenancy.access import team_and_below
from billing.tenancy.links import portal_link
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup

NEXT: Final = timedelta(minutes=1)
"""Pause of a webhook after a failure, also for the events that wait behind the failed one."""
MOST_AT_ONCE: Final = 500
"""Events of a webhook found, and sent, in one run."""

log = logging.getLogger(__name__)


class Happened(NamedTuple):
    """Event before it has a webhook: its kind, its team if it is of one, its cause, its time and its data."""

    kind: str
    team: Team | None
    subject: str
    at: datetime
    data: Mapping[str, Any]


def webhooks_deliver(*, now: datetime) -> int:
    """Find the events of every webhook and send what is due; return how many were accepted.

    A failing webhook delays no other.
    """
    channels = list(Channel.objects.exclude(events__isnull=True).values_list("pk", flat=True))
    return sum(each_apart(channels, lambda pk: _deliver_to(pk, now)))


def _deliver_to(channel_id: int, now: datetime) -> int:
    with transaction.atomic():
        channel = _locked(channel_id)
        if channel is None:
            return 0
        _store_events(channel, now)
    sent = 0
    while sent < MOST_AT_ONCE and _send_next(channel_id, now):
        sent += 1
    return sent


def _locked(channel_id: int) -> Channel | None:
    """Lock a webhook; None if another process serves it, or if it takes no events any more."""
    rows = Channel.objects.select_for_update(skip_locked=True, no_key=True, of=("self",)).select_related("team")
    return rows.filter(pk=channel_id).exclude(events__isnull=True).first()


def _store_events(channel: Channel, now: datetime) -> None:
    for kind, since in (channel.events or {}).items():
        known = WebhookEvent.objects.filter(channel=channel, kind=kind).values("subject")
        teams = None if channel.team is None else team_and_below(channel.team.pk)
        happened = list(_FOUND[kind](datetime.fromisoformat(since), teams, known))
        WebhookEvent.objects.bulk_create((_event(channel, one, now) for one in happened), ignore_conflicts=True)


def _event(channel: Channel, one: Happened, now: datetime) -> WebhookEvent:
    cause = f"{channel.pk}:{one.kind}:{one.subject}"
    identity = f"evt_{sha256(cause.encode()).hexdigest()[:32]}"
    return WebhookEvent(
        channel=channel, kind=one.kind, team=one.team, subject=one.subject, identity=identity,
        body=event_text(one.kind, identity, one.at, one.data), next_attempt_at=now,
    )  # fmt: skip


def _send_next(channel_id: int, now: datetime) -> bool:
    """Send the event that was tried least, the oldest first; return False if none is due or the webhook refuses it."""
    with transaction.atomic():
        channel = _locked(channel_id)
        due = WebhookEvent.objects.filter(channel=channel_id, status=Delivery.Status.PENDING, next_attempt_at__lte=now)
        event = due.order_by("attempts", "pk").first()
        if channel is None or event is None:
            return False
        try:
            post_event(channel, identity=event.identity, body=event.body, now=now)
        except ChannelError as error:
            log_failure(log, error, "an event waits")
            due.exclude(pk=event.pk).update(next_attempt_at=now + NEXT)
            event.next_attempt_at = now + min(FIRST_WAIT * 2 ** min(event.attempts, 10), LONGEST_WAIT)
            event.attempts += 1
            event.last_error = failure_text(error)
            event.save(update_fields=["next_attempt_at", "attempts", "last_error"])
            return False
        WebhookEvent.objects.filter(pk=event.pk).update(
            status=Delivery.Status.SENT, attempts=F("attempts") + 1, sent_at=now, last_error=""
        )
        return True


def _issued(since: datetime, teams: QuerySet[Team] | None, known: QuerySet[Any]) -> Iterator[Happened]:
    """Yield the invoices, credit notes and rebills that were issued since then."""
    new = Q(issued_at__gte=since) if teams is None else Q(issued_at__gte=since, team__in=teams)
    invoices = Invoice.objects.filter(new).exclude(number__in=known).order_by("issued_at", "number")
    for invoice in invoices.select_related("team", "period").defer("document", "draft")[:MOST_AT_ONCE]:
        yield _of_document(invoice, "invoice", invoice.period.month, {})
    notes = Note.objects.filter(new).exclude(number__in=known).order_by("issued_at", "number")
    for note in notes.select_related("team", "correction__period", "invoice").defer("document", "draft")[:MOST_AT_ONCE]:
        month = note.correction.period.month if note.correction.period else ""
        yield _of_document(note, note.kind, month, {"corrects": note.invoice.number if note.invoice else None})


def _of_document(row: Invoice | Note, kind: str, month: str, more: Mapping[str, Any]) -> Happened:
    if row.number is None or row.issued_at is None:
        raise ValueError(f"{kind} {row.pk}: has no number")
    path = "invoices" if isinstance(row, Invoice) else "credit-notes"
    data = {
        "document": kind, "number": row.number, "team": row.team.code, "month": month, "currency": row.currency,
        "total": _money(row.total), "sha256": row.sha256, **more, "address": _address(f"{path}/{row.number}.json"),
    }  # fmt: skip
    return Happened(WebhookEvent.Kind.ISSUED, row.team, row.number, row.issued_at, data)


def _address(path: str) -> str:
    return f"{settings.PORTAL_URL.rstrip('/')}/api/v1/{path}"


def _closed(since: datetime, _teams: QuerySet[Team] | None, known: QuerySet[Any]) -> Iterator[Happened]:
    """Yield the months that were closed since then: each close has a number of its own."""
    found = set(known.values_list("subject", flat=True))
    closed = BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSED, closed_at__gte=since)
    for period in closed.order_by("close_seq"):
        subject = f"{period.month} {period.close_seq}"
        if subject not in found and period.closed_at is not None:
            data = {
                "month": period.month, "close": period.close_seq, "from": period.start.isoformat(),
                "to": period.end.isoformat(), "address": _address(f"periods/{period.month}"),
            }  # fmt: skip
            yield Happened(WebhookEvent.Kind.CLOSED, None, subject, period.closed_at, data)


def _budget(since: datetime, teams: QuerySet[Team] | None, known: QuerySet[Any]) -> Iterator[Happened]:
    """Yield the alerts of budgets that fired since then."""
    for alert in _alerts(since, teams, known).exclude(kind=Alert.Kind.ANOMALY).select_related("budget"):
        budget = alert.budget
        data = {
            "alert": alert.kind, "level": alert.level, "basis": alert.basis, "percent": alert.percent,
            "budget": budget and {"id": budget.pk, "name": budget.name, "cluster": budget.cluster,
                                  "namespace": budget.namespace, "consumer": budget.consumer,
                                  "accelerator": budget.accelerator, "model": budget.model},
            **_of_alert(alert, portal_link("budget", budget.pk) if budget else ""),
        }  # fmt: skip
        yield Happened(WebhookEvent.Kind.BUDGET, alert.team, alert.cause, alert.fired_at, data)


def _anomaly(since: datetime, teams: QuerySet[Team] | None, known: QuerySet[Any]) -> Iterator[Happened]:
    """Yield the unusual days that were found since then."""
    for alert in _alerts(since, teams, known).filter(kind=Alert.Kind.ANOMALY).select_related("finding"):
        finding = alert.finding
        data = {
            "kind": finding and finding.kind, "sku": finding and finding.sku, "basis": alert.basis,
            **_of_alert(alert, portal_link("anomalies")),
        }  # fmt: skip
        yield Happened(WebhookEvent.Kind.ANOMALY, alert.team, alert.cause, alert.fired_at, data)


_FOUND: Final = {"issued": _issued, "closed": _closed, "budget": _budget, "anomaly": _anomaly}


def _alerts(since: datetime, teams: QuerySet[Team] | None, known: QuerySet[Any]) -> QuerySet[Alert]:
    new = Q(fired_at__gte=since) if teams is None else Q(fired_at__gte=since, team__in=teams)
    return Alert.objects.filter(new).exclude(cause__in=known).select_related("team").order_by("fired_at", "pk")


def _of_alert(alert: Alert, link: str) -> dict[str, Any]:
    return {
        "team": alert.team.code, "period": alert.period, "currency": billing_setup().currency, "value": _money(alert.value),
        "amount": _money(alert.amount), "owner": alert.owner, "data_through": alert.data_time.isoformat(), "address": link,
    }  # fmt: skip


def _money(amount: Decimal) -> str:
    return format(amount, "f")
