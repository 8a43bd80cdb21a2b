"""Delivery of alerts to channels: grouped, at the right hour, repeated until each channel has accepted each alert.

A channel is served by one process at a time (its row is locked) and the outcome is stored in the same transaction.
If the process dies between a channel's yes and the commit, that one message is sent again: never lost, and twice only
then; its reference shows readers that it is the same.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from secrets import token_hex
from typing import Final
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.translation import gettext, override

from billing.budgets.channels import ChannelError, event_text, post_event, send
from billing.budgets.models import Alert, Channel, Delivery
from billing.budgets.selectors import active_mutes
from billing.runtime.apart import failure_text, log_failure
from billing.tenancy.audit import audit_record
from billing.tenancy.links import portal_link
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import billing_setup

LONGEST_WAIT: Final = timedelta(hours=6)
FIRST_WAIT: Final = timedelta(minutes=1)
MOST_AT_ONCE: Final = 50
BASES: Final = ("forecast", "commitment", "actual")

log = logging.getLogger(__name__)


def alerts_deliver(*, now: datetime) -> int:
    """Send due alerts; returns how many deliveries succeeded. A failing channel delays no other."""
    due = Delivery.objects.filter(status=Delivery.Status.PENDING, next_attempt_at__lte=now)
    channels = list(due.order_by("channel").values_list("channel", flat=True).distinct())
    return sum(_deliver_to(channel, now) for channel in channels)


def _deliver_to(channel_id: int, now: datetime) -> int:
    """Send message after message, each in its own transaction, until none is ready or the channel refuses."""
    sent = 0
    while (count := _send_next(channel_id, now)) > 0:
        sent += count
    return sent


def _send_next(channel_id: int, now: datetime) -> int:
    with transaction.atomic():
        # no_key: alerts that fire meanwhile insert deliveries, which reference this row
        rows = Channel.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=channel_id)
        channel = rows.first()
        if channel is None:
            return 0  # another process serves it, or it was deleted
        setup = billing_setup()
        ready = _ready(channel, now, setup.zone)
        if not ready:
            return 0
        team = ready[0].alert.team_id
        return _send_group(channel, setup, [row for row in ready if row.alert.team_id == team][:MOST_AT_ONCE], ready, now)


def _ready(channel: Channel, now: datetime, zone: str) -> list[Delivery]:
    mutes = [(mute.team_id, mute.budget_id) for mute in active_mutes(now)]
    waiting = (
        Delivery.objects.filter(channel=channel, status=Delivery.Status.PENDING, next_attempt_at__lte=now)
        .select_related("alert__team", "alert__budget__team", "alert__finding")
        .order_by("alert__team__code", "alert_id")
    )
    unmuted = [
        row for row in waiting
        if not any(team == row.alert.team_id and budget in (None, row.alert.budget_id) for team, budget in mutes)
    ]  # fmt: skip
    ready = {row.pk for row in unmuted if _may_send(channel, row.alert, now, zone)}
    # an alert that goes takes the waiting thresholds of its budget along
    going = {_same_budget(row.alert) for row in unmuted if row.pk in ready} - {None}
    return [row for row in unmuted if row.pk in ready or _same_budget(row.alert) in going]


def _same_budget(alert: Alert) -> tuple[int, str] | None:
    """Return a grouping key: thresholds of one budget and period share a message, even if lower ones could wait longer."""
    if alert.kind != Alert.Kind.THRESHOLD or alert.budget_id is None:
        return None
    return alert.budget_id, alert.period


def _may_send(channel: Channel, alert: Alert, now: datetime, zone: str) -> bool:
    """Return True if an alert may go now: urgent ones at once, others at the digest or after the quiet hours."""
    if alert.level == Alert.Level.URGENT:
        return True
    local = now.astimezone(ZoneInfo(zone))
    if channel.digest_at is not None:
        return alert.fired_at < last_digest(channel.digest_at, local)
    return not is_quiet(channel.quiet_from, channel.quiet_until, local.time())


def last_digest(at: time, local: datetime) -> datetime:
    """Return the latest instant of the daily digest that is not in the future."""
    today = local.replace(hour=at.hour, minute=at.minute, second=at.second, microsecond=0)
    return today if today <= local else today - timedelta(days=1)


def is_quiet(start: time | None, end: time | None, moment: time) -> bool:
    """Return True if the moment lies in [start, end), which may pass midnight.

    >>> is_quiet(time(22), time(7), time(6, 59)), is_quiet(time(22), time(7), time(7)), is_quiet(None, None, time(3))
    (True, False, False)
    """
    if start is None or end is None:
        return False
    return start <= moment < end if start <= end else moment >= start or moment < end


def _send_group(
    channel: Channel, setup: BillingSetup, group: list[Delivery], ready: list[Delivery], now: datetime
) -> int:
    """Send one message about alerts of one team.

    If the channel refuses it, all that is ready for the channel waits longer; if it cannot be made, these alerts do.
    """
    try:
        with transaction.atomic():
            title, body = message_of([delivery.alert for delivery in group], setup, channel.language)
            send(channel, title=title, body=body)
    except Exception as error:  # noqa: BLE001 - the edge of the loop: no error may delay another team or channel
        waiting = ready if isinstance(error, ChannelError) else group
        log_failure(log, error, "%d alerts wait", len(waiting))
        for delivery in waiting:
            delivery.next_attempt_at = now + min(FIRST_WAIT * 2 ** min(delivery.attempts, 10), LONGEST_WAIT)
            delivery.attempts += 1
            delivery.last_error = failure_text(error)
        Delivery.objects.bulk_update(waiting, ["next_attempt_at", "attempts", "last_error"])
        return 0
    rows = Delivery.objects.filter(pk__in=[delivery.pk for delivery in group])
    return rows.update(status=Delivery.Status.SENT, attempts=F("attempts") + 1, sent_at=now, last_error="")


@dataclass(frozen=True, slots=True)
class GroupedAlert:
    """An alert of a message; `also`: lower thresholds of the same budget and period."""

    alert: Alert
    also: list[Alert]
    link: str


def grouped(alerts: list[Alert]) -> Iterator[GroupedAlert]:
    """Yield the alerts; of thresholds of one budget and period only the gravest, with the lower ones in `also`."""
    groups: dict[object, list[Alert]] = {}
    for alert in alerts:
        groups.setdefault(_same_budget(alert) or alert.pk, []).append(alert)
    for group in groups.values():
        gravest = max(group, key=_gravity)
        link = portal_link("budget", gravest.budget_id) if gravest.budget_id else portal_link("anomalies")
        yield GroupedAlert(gravest, sorted((alert for alert in group if alert is not gravest), key=_gravity), link)


def _gravity(alert: Alert) -> tuple[bool, int, int]:
    """Return a sort key: an urgent level first, then the percentage, then actual above forecast spending."""
    return alert.level == Alert.Level.URGENT, alert.percent or 0, BASES.index(alert.basis) if alert.basis in BASES else 0


def message_of(alerts: list[Alert], setup: BillingSetup, language: str = "") -> tuple[str, str]:
    """Return title and text in a language, by default the installation's: each alert with its scope, through when its data
    are complete, its owner, what to do and where to look.
    """
    context = {
        "alerts": list(grouped(alerts)), "team": alerts[0].team, "setup": setup, "inbox": portal_link("inbox"),
    }  # fmt: skip
    with override(language or settings.LANGUAGE_CODE):
        title = " ".join(render_to_string("alerts/title.txt", context).split())
        return title, render_to_string("alerts/body.txt", context).strip() + "\n"


def channel_test(*, channel: Channel, actor: str) -> Channel:
    """Send a test message or event, recognizable as one.  Raises ChannelError, which names no address."""
    if channel.events:
        identity, now = f"evt_test_{token_hex(12)}", timezone.now()
        body = event_text("test", identity, now, {"channel": channel.name, "actor": str(actor)})
        post_event(channel, identity=identity, body=body, now=now)
        audit_record(actor=actor, action="channel_test", subject=channel.name)
        return channel
    with override(channel.language or settings.LANGUAGE_CODE):
        title = gettext("Suanpan: test message")
        text = gettext("%(actor)s sent this to see whether the channel %(name)s works. Nothing has to be done.")
    body = "\n".join(filter(None, [text % {"actor": actor, "name": channel.name}, portal_link("channels")])) + "\n"
    send(channel, title=title, body=body)
    audit_record(actor=actor, action="channel_test", subject=channel.name)
    return channel
