"""What pages say of how fresh and how complete their figures are. Reports are read once a request."""

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
    """The usage that the person sees: everybody's, or that of their teams."""
    if access_of(request.user).may(Right.READ):
        return EVERYTHING
    return UsageScope(frozenset(teams_visible_to(request.user).values_list("code", flat=True)))


def scope_of_team(code: str) -> UsageScope:
    return UsageScope(frozenset({code}))


def page_freshness(
    request: HttpRequest, period: BillingPeriod, scope: UsageScope, *, unbilled: Iterable[Unbilled] = (),
    as_of: datetime | None = None,
) -> Freshness | None:
    """How fresh the figures of a month are that can still change; None of a closed month.

    as_of: when a large month was last assessed.
    """
    if period.status == BillingPeriod.Status.CLOSED:
        return None
    return window_freshness(request, period.window, scope, unbilled=unbilled, as_of=as_of)


def metering(request: HttpRequest, zone: str) -> Freshness | None:
    """How fresh the running month is of what the person sees; None for who sees nothing."""
    user = getattr(request, "user", AnonymousUser())
    if not user.is_authenticated or not access_of(user).somewhere(Right.READ):
        return None
    window = billing_month(month_of(asked_at(request), zone), zone)
    return window_freshness(request, window, scope_seen(request))


def window_freshness(
    request: HttpRequest, window: Interval, scope: UsageScope, *, unbilled: Iterable[Unbilled] = (),
    as_of: datetime | None = None,
) -> Freshness:  # fmt: skip
    """How fresh the figures of open months are."""
    now = as_of or asked_at(request)
    until = max(window.start, min(window.end, now))
    known: dict[datetime, Reported] = request.__dict__.setdefault("_reported", {})
    reported = known.setdefault(until, Reported(until))
    return freshness(scope, window, now, unbilled=unbilled, reported=reported)


def asked_at(request: HttpRequest) -> datetime:
    """One instant for all of a request."""
    at: datetime = request.__dict__.setdefault("_asked_at", timezone.now())
    return at
