"""Reference data of budget checks: budgets, owners and prices, read from the database again after a few seconds."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from threading import Lock
from typing import Final

from django.db.models import Q

from billing.budgets.models import Budget, BudgetStatus
from billing.budgets.scope import Scope
from billing.budgets.selectors import cap_raises, ladder_of, period_of, scope_of, team_tree
from billing.budgets.thresholds import Rung
from billing.rates.selectors import rate_card
from billing.tenancy.models import BillingSetup
from billing.tenancy.ownership import OwnershipBook
from billing.tenancy.selectors import billing_setup, consumer_book
from pricing.rate_card import RateCard

AGAIN_AFTER: Final = timedelta(seconds=3)
TOO_OLD_AFTER: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """A budget with its counter as of one refresh; `generation` orders refreshes, `cap_raise` is added to its cap."""

    id: int
    name: str
    scope: Scope
    period: str
    amount: Decimal
    spent: Decimal
    as_of: datetime
    generation: int
    ladder: Sequence[Rung]
    end: datetime
    reservation: Decimal | None = None
    cap_raise: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Route:
    """Paying team of a consumer, and the budgets that apply."""

    team: str | None
    budgets: tuple[BudgetLine, ...]


@dataclass(frozen=True)
class Reference:
    """Budgets, owners and prices as of one instant; `routes` and `estimates` cache earlier answers.

    `until`: when the first period of a budget ends. `teams`: each with all below it.
    """

    as_of: datetime
    currency: str
    budgets: Sequence[BudgetLine]
    consumers: OwnershipBook
    prices: RateCard
    teams: Mapping[str, frozenset[str]]
    until: datetime | None = None
    routes: dict[tuple[str, str, str], Route] = field(default_factory=dict)
    estimates: dict[str, Decimal | None] = field(default_factory=dict)

    def is_current(self, now: datetime, age: timedelta) -> bool:
        """Return True if the data are younger than `age`, and no period of a budget has ended since."""
        return self.as_of <= now < self.as_of + age and (self.until is None or now < self.until)


def reference_read(now: datetime) -> Reference | None:
    """Read the reference data as of now; None before any set-up."""
    setup = BillingSetup.objects.first()
    if setup is None:
        return None
    budgets = counters_read(now)
    until = min((line.end for line in budgets), default=None)
    return Reference(now, setup.currency, budgets, consumer_book(), rate_card(), team_tree(now), until)


def counters_read(now: datetime) -> list[BudgetLine]:
    """Read the budgets in force now, with their counters and raised caps."""
    tree, raises = team_tree(now), cap_raises(now)
    standings = list(
        BudgetStatus.objects.filter(start__lte=now, end__gt=now)
        .filter(Q(budget__valid_from=None) | Q(budget__valid_from__lte=now))
        .filter(Q(budget__valid_until=None) | Q(budget__valid_until__gt=now))
        .select_related("budget__team").prefetch_related("budget__ladder").order_by("budget_id")
    )  # fmt: skip
    standings += _not_summed(now, {row.budget_id for row in standings})
    return [
        BudgetLine(
            id=row.budget_id, name=str(row.budget), scope=scope_of(row.budget, tree), period=row.period, amount=row.amount,
            spent=row.spent, as_of=row.as_of, generation=row.generation, ladder=ladder_of(row.budget), end=row.end,
            reservation=row.budget.reservation, cap_raise=raises.get(row.budget_id, Decimal(0)),
        )
        for row in standings
    ]  # fmt: skip


def _not_summed(now: datetime, summed: Collection[int]) -> Iterator[BudgetStatus]:
    """Yield a zero status for budgets in force that were never summed in their period."""
    others = Budget.objects.exclude(pk__in=summed).exclude(valid_from__gt=now).exclude(valid_until__lte=now)
    zone = billing_setup().zone
    for budget in others.select_related("team").prefetch_related("ladder", "plan"):
        period = period_of(budget, now, zone)
        if period is not None:
            start, end = period.window.start, period.window.end
            yield BudgetStatus(
                budget=budget, period=period.label, start=start, end=end, amount=period.amount, spent=Decimal("0.00"),
                as_of=start, generation=0,
            )  # fmt: skip


class CurrentReference:
    """Newest reference data of a process: one thread reads the next while others use the last, until that is too old."""

    def __init__(self) -> None:
        self._reading = Lock()
        self._last: Reference | None = None

    def at(self, now: datetime) -> Reference | None:
        """Return the reference data of now; None before any set-up."""
        last = self._last
        if last is not None and last.is_current(now, AGAIN_AFTER):
            return last
        # data that are merely due still serve: only for data too old does a thread wait
        may_wait = last is None or not last.is_current(now, TOO_OLD_AFTER)
        if not self._reading.acquire(blocking=may_wait):
            return last
        try:
            if self._last is last:  # no other thread read it meanwhile
                self._last = reference_read(now)
            return self._last
        finally:
            self._reading.release()
