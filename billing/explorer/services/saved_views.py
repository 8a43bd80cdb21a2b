"""Writes of saved views and of their report schedules."""

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from billing.budgets.models import Channel
from billing.explorer.models import ReportSchedule, SavedView
from billing.tenancy.access import Right, access_of
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from metering.intervals import day_of
from metering.messages import Message, UserError

LONGEST_NAME = 100
MOST_VIEWS = 100


class SavedViewError(UserError, ValueError):
    """Invalid saved view or report."""

    code = "saved_view"


def views_seen(user: User) -> QuerySet[SavedView]:
    """Return the views of a person, and those shared with a team that the person may see."""
    teams = access_of(user).teams(Right.READ)
    return SavedView.objects.filter(Q(owner=user) | Q(team__in=teams)).select_related("owner", "team")


def channels_allowed(user: User) -> QuerySet[Channel]:
    """Return the channels for reports of a person, without webhooks: of teams whose budgets the person may edit, or all."""
    access, messages = access_of(user), Channel.objects.filter(events__isnull=True)
    if access.may(Right.BUDGET):
        return messages
    return messages.filter(team__in=access.teams(Right.BUDGET))


def view_put(*, owner: User, name: str, query: str, actor: str, team: Team | None = None) -> SavedView:
    """Store a query under a name, replacing an earlier one of that name; its reports use the new query from then on.

    Raises SavedViewError.
    """
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME:
        raise SavedViewError(Message("a view needs a name of at most %(n)s characters", n=LONGEST_NAME))
    if team is not None and not access_of(owner).may(Right.READ, team):
        raise SavedViewError(Message("team %(code)s: there is no such team", code=team.code))
    with transaction.atomic():
        # without the view of this name: replacing is possible at the limit
        if SavedView.objects.filter(owner=owner).exclude(name=name).count() >= MOST_VIEWS:
            raise SavedViewError(Message("at most %(n)s views of one person are kept", n=MOST_VIEWS))
        earlier = SavedView.objects.select_for_update().filter(owner=owner, name=name).first()
        view, _ = SavedView.objects.update_or_create(owner=owner, name=name, defaults={"query": query, "team": team})
        if earlier is not None and earlier.query != query:
            for report in view.schedules.select_related("view", "channel"):
                _record_put(report, actor)
    return view


def view_delete(*, view: SavedView, actor: str) -> None:
    with transaction.atomic():
        for report in view.schedules.select_related("view", "channel"):
            report_end(report=report, actor=actor)
        view.delete()


def report_put(
    *, view: SavedView, channel: Channel, cadence: str, hour: int, actor: str, now: datetime, zone: str
) -> ReportSchedule:
    """Schedule a view of its owner from the next hour on.  Raises SavedViewError."""
    if not channels_allowed(view.owner).filter(pk=channel.pk).exists():
        raise SavedViewError(Message("%(name)s: is no channel of your teams", name=channel.name))
    with transaction.atomic():
        report, _ = ReportSchedule.objects.update_or_create(
            view=view, channel=channel, cadence=cadence,
            defaults={"hour": hour, "next_at": next_time(cadence, hour, now, zone), "attempts": 0, "last_error": ""},
        )  # fmt: skip
        _record_put(report, actor)
    return report


def _record_put(report: ReportSchedule, actor: str) -> None:
    """Record in the audit log which query is sent where and when."""
    view = report.view
    detail = {"channel": report.channel.name, "cadence": report.cadence, "hour": report.hour, "query": view.query}
    audit_record(actor=actor, action="explorer_report_put", subject=str(view), detail=detail)


def report_end(*, report: ReportSchedule, actor: str) -> None:
    with transaction.atomic():
        detail = {"channel": report.channel.name, "cadence": report.cadence}
        audit_record(actor=actor, action="explorer_report_ended", subject=str(report.view), detail=detail)
        report.delete()


def next_time(cadence: str, hour: int, now: datetime, zone: str) -> datetime:
    """Return the next local hour of a cadence after `now`.

    >>> from datetime import UTC
    >>> next_time("weekly", 8, datetime(2026, 11, 23, 4, tzinfo=UTC), "UTC").isoformat()
    '2026-11-23T08:00:00+00:00'
    >>> next_time("monthly", 8, datetime(2026, 11, 23, 4, tzinfo=UTC), "UTC").isoformat()
    '2026-12-01T08:00:00+00:00'
    """
    day = day_of(now, zone)
    while True:
        at = datetime.combine(day, time(hour), ZoneInfo(zone))
        fits = {"daily": True, "weekly": day.weekday() == 0, "monthly": day.day == 1}[cadence]
        if fits and at > now:
            return at
        day += timedelta(days=1)
