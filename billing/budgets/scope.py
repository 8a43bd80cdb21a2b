"""PURE: scope of a budget, and the period of it that contains an instant."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from billing.usage.scope import UsageScope, fits
from metering.intervals import Interval, billing_month, fiscal_quarter_of, month_of, next_month
from pricing.meters import TOKENS, line_kind


class Spending(Protocol):
    """Spending that a scope is matched with: a line of an invoice, or a day's sum."""

    @property
    def team(self) -> str: ...
    @property
    def cluster(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def consumer(self) -> str: ...
    @property
    def accelerator(self) -> str: ...
    @property
    def sku(self) -> str: ...
    @property
    def kind(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Scope(UsageScope):
    """Teams that spend, and patterns of what they spend on.

    earlier: teams that were below the group before the window alone: their late usage of that time counts.
    partly: for a team that moves, the times at which it is below the group; lines of such teams state their time.
    """

    teams: frozenset[str]
    earlier: frozenset[str] = frozenset()
    partly: tuple[tuple[str, tuple[Interval, ...]], ...] = ()

    def times_of(self, team: str) -> tuple[Interval, ...] | None:
        """Return the times at which a team that moves belongs to the scope; None for a team that does not move."""
        return next((times for code, times in self.partly if code == team), None)

    def counts_at(self, team: str, instant: datetime | None) -> bool:
        """Return True if spending of a team counts at the instant of its use (None: the team does not move)."""
        times = self.times_of(team)
        if times is None or instant is None:
            return team in self.teams
        return any(time.contains(instant) for time in times)

    @property
    def is_everything(self) -> bool:
        """Return True if all spending of the teams counts."""
        return not (self.cluster or self.namespace or self.consumer or self.accelerator or self.model)

    def covers(self, item: Spending) -> bool:
        """Return True if the spending counts. A pattern for a field that the spending lacks does not match."""
        meter = line_kind(item.kind).meter
        return (
            item.team in self.teams
            and fits(self.cluster, item.cluster)
            and fits(self.namespace, item.namespace)
            and fits(self.consumer, item.consumer)
            and (not self.accelerator or (meter is not TOKENS and self.accelerator in (item.accelerator, item.sku)))
            and (not self.model or (meter is TOKENS and fits(self.model, item.sku)))
        )

    def covers_tokens(self, team: str, consumer: str, model: str) -> bool:
        """Return True if tokens of that consumer and model count; an unknown model (empty) counts if none is required."""
        return (
            team in self.teams
            and self.has_tokens
            and fits(self.consumer, consumer)
            and fits(self.model, model)
        )


@dataclass(frozen=True, slots=True)
class BudgetPeriod:
    """One period of a budget: its label, its billing months, its bounds, and its amount."""

    label: str
    months: tuple[str, ...]
    window: Interval
    amount: Decimal


def period_at(
    instant: datetime, *, kind: str, amount: Decimal, plan: Mapping[str, Decimal], zone: str, year_begins: int
) -> BudgetPeriod | None:
    """Return the period of a budget that contains `instant`; None in a month that a plan leaves out. A quarter is one of the
    fiscal year, which begins with the month `year_begins`.

    >>> from datetime import UTC
    >>> quarter = {"kind": "quarter", "amount": Decimal(9), "plan": {}, "zone": "UTC"}
    >>> found = period_at(datetime(2026, 11, 3, tzinfo=UTC), **quarter, year_begins=1)
    >>> found.label, found.months, found.window.end.isoformat()
    ('2026-Q4', ('2026-10', '2026-11', '2026-12'), '2027-01-01T00:00:00+00:00')
    """
    month = month_of(instant, zone)
    if kind == "quarter":
        quarter = fiscal_quarter_of(month, year_begins)
        months = (quarter.first, next_month(quarter.first), next_month(next_month(quarter.first)))
        window = Interval(billing_month(months[0], zone).start, billing_month(months[2], zone).end)
        return BudgetPeriod(f"{quarter.year}-Q{quarter.number}", months, window, amount)
    allowed = plan.get(month) if kind == "plan" else amount
    return None if allowed is None else BudgetPeriod(month, (month,), billing_month(month, zone), allowed)
