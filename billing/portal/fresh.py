"""Freshness and completeness of the figures of pages. Reports are read once a request."""

from collections.abc import Iterable
from datetime import datetime

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.utils import timezone

from billing.invoices.models import BillingPeriod
from billing.rating.freshness import Freshness, Unbilled, freshness
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.usage.reported import Reported
from billing.usage.scope import EVERYTHING, UsageScope
from metering.intervals import Interval, billing_month, month_of


def scope_seen(request: HttpRequest) -> UsageScope:
    """Return the usage that the user may see: that of all teams, or of their own."""
    if access_of(request.user).may(Right.READ):
        return EVERYTHING
    return UsageScope(frozenset(teams_visible_to(request.user).values_list("code", flat=True)))


def scope_of_team(code: str) -> UsageScope:
    return UsageScope(frozenset({code}))


def page_freshness(
    request: HttpRequest, period: BillingPeriod, scope: UsageScope, *, unbilled: Iterable[Unbilled] = (),
    as_of: datetime | None = None,
) -> Freshness | None:
    """Return the freshness of an open month's figures; None for a closed month.

    as_of: the instant of a large month's last assessment.
    """
    if period.status == BillingPeriod.Status.CLOSED:
        return None
    return window_freshness(request, period.window, scope, unbilled=unbilled, as_of=as_of)


def metering(request: HttpRequest, zone: str) -> Freshness | None:
    """Return the freshness of the running month for the user; None for a user without a role."""
    user = getattr(request, "user", AnonymousUser())
    if not user.is_authenticated or not access_of(user).somewhere(Right.READ):
        return None
    window = billing_month(month_of(asked_at(request), zone), zone)
    return window_freshness(request, window, scope_seen(request))


def window_freshness(
    request: HttpRequest, window: Interval, scope: UsageScope, *, unbilled: Iterable[Unbilled] = (),
    as_of: datetime | None = None,
) -> Freshness:  # fmt: skip
    """Return the freshness of the figures of open months."""
    now = as_of or asked_at(request)
    until = max(window.start, min(window.end, now))
    # kept on the request: a page asks for several scopes, and each would read all reports
    known: dict[datetime, Reported] = request.__dict__.setdefault("_reported", {})
    reported = known.setdefault(until, Reported(until))
    return freshness(scope, window, now, unbilled=unbilled, reported=reported)


def asked_at(request: HttpRequest) -> datetime:
    """Return one instant for all of a request."""
    at: datetime = request.__dict__.setdefault("_asked_at", timezone.now())
    return at
