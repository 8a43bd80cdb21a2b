"""Sums under lists: of every row that a list holds, on any of its pages.

Sums of documents are made by the database, one query a list, and per currency. Rows that are listed but not owed (void
documents, showback months) are shown beside the total, never in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

from django.db.models import Case, CharField, Count, F, QuerySet, Sum, Value, When

from billing.budgets.expected import Expected, expected_by
from billing.budgets.models import Budget, BudgetStatus
from billing.corrections.disputed import AgedDisputes
from billing.corrections.models import Dispute
from billing.invoices.models import Invoice, Note

ZERO = Decimal("0.00")
NOT_OWED = ("shadow", "void")
ORDER = ("issued", "approved", "preview", "draft", "credit", "rebill", *NOT_OWED)
"""States and kinds in the order of pages."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one state or kind: its code, their number, and their amount."""

    code: str
    number: int
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Total:
    """Sum of the rows of one currency; `parts` make it up, `apart` are listed and not in it."""

    currency: str
    parts: Sequence[Part]
    apart: Sequence[Part] = ()

    @property
    def number(self) -> int:
        """Return the number of rows in the total."""
        return sum(part.number for part in self.parts)

    @property
    def amount(self) -> Decimal:
        return sum((part.amount for part in self.parts), ZERO)


def invoice_totals(invoices: QuerySet[Invoice]) -> list[Total]:
    """Return totals of documents by currency: owed ones by status; showback and void documents apart."""
    state = Case(
        When(status=Invoice.Status.VOID, then=Value("void")), When(shadow=True, then=Value("shadow")),
        default=F("status"), output_field=CharField(),
    )  # fmt: skip
    rows = invoices.order_by().values("currency", state=state).annotate(number=Count("pk"), amount=Sum("total"))
    return _totals(rows.values_list("currency", "state", "number", "amount"))


def note_totals(notes: QuerySet[Note]) -> list[Total]:
    """Return totals of credit notes and rebills by currency; the total is the net of both."""
    rows = notes.order_by().values("currency", "kind").annotate(number=Count("pk"), amount=Sum("total"))
    return _totals(rows.values_list("currency", "kind", "number", "amount"))


def dispute_totals(disputes: QuerySet[Dispute]) -> list[Total]:
    rows = disputes.order_by().values_list("currency").annotate(Count("pk"), Sum("amount"))
    return _totals((currency, "", number, amount) for currency, number, amount in rows)


def aged_total(ages: Sequence[AgedDisputes]) -> AgedDisputes:
    return AgedDisputes(0, None, sum(item.number for item in ages), sum((item.disputed for item in ages), ZERO))


def _totals(rows: Iterable[tuple[Any, ...]]) -> list[Total]:
    """Return totals in the order of their currencies from (currency, code, number, amount)."""
    found: dict[str, list[Part]] = {}
    for currency, code, number, amount in rows:
        found.setdefault(currency, []).append(Part(code, number, amount))
    return [_total(currency, found[currency]) for currency in sorted(found)]


def _total(currency: str, parts: list[Part]) -> Total:
    parts.sort(key=lambda part: ORDER.index(part.code) if part.code in ORDER else len(ORDER))
    owed = [part for part in parts if part.code not in NOT_OWED]
    return Total(currency, owed, [part for part in parts if part.code in NOT_OWED])


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """Budget of the list with its standing, which is None before the first count."""

    budget: Budget
    standing: BudgetStatus | None
    now: datetime

    @property
    def spent_as_of(self) -> datetime | None:
        """Return the instant of the sum, if it is old."""
        return None if self.standing is None else self.standing.spent_as_of(self.now)

    @property
    def forecast_as_of(self) -> datetime | None:
        """Return the instant of the forecast, if it is old."""
        return None if self.standing is None else self.standing.forecast_as_of(self.now)

    @property
    def used(self) -> Decimal | None:
        return None if self.standing is None else self.standing.spent / self.standing.amount

    @property
    def expected(self) -> Expected | None:
        """Return the forecast for the end of the period, or the reason why there is none."""
        return None if self.standing is None else expected_by(self.standing)

    @property
    def expected_used(self) -> Decimal | None:
        """Return forecast over budget, as a ratio; None without a forecast."""
        if self.standing is None or self.expected is None or self.expected.p50 is None:
            return None
        return self.expected.p50 / self.standing.amount


@dataclass(frozen=True, slots=True)
class BudgetTotal:
    """Sum of the budgets of one period with their spending; `inside`: number of listed budgets that are not added."""

    period: str
    kind: str
    standings: Sequence[BudgetStatus]
    inside: int
    now: datetime

    @property
    def number(self) -> int:
        return len(self.standings)

    @property
    def amount(self) -> Decimal:
        return sum((row.amount for row in self.standings), ZERO)

    @property
    def spent(self) -> Decimal:
        return sum((row.spent for row in self.standings), ZERO)

    @property
    def encumbered(self) -> Decimal:
        """Return the cost that running jobs are still expected to cause."""
        return sum((row.encumbered for row in self.standings), ZERO)

    @property
    def used(self) -> Decimal:
        return self.spent / self.amount

    @property
    def spent_as_of(self) -> datetime | None:
        """Return the instant of the oldest sum; None if none is old."""
        return min((at for row in self.standings if (at := row.spent_as_of(self.now))), default=None)

    @property
    def forecast_as_of(self) -> datetime | None:
        """Return the instant of the oldest forecast; None if none is old."""
        return min((at for row in self.standings if (at := row.forecast_as_of(self.now))), default=None)

    @property
    def silent_since(self) -> datetime | None:
        """Return the start of the longest silence of a reporter; None if none is silent."""
        return min((row.silent_since for row in self.standings if row.silent_since is not None), default=None)

    @property
    def forecast(self) -> Decimal | None:
        """Return the sum of all forecasts; None while a budget has none."""
        known = [found for row in self.standings if (found := expected_by(row).p50) is not None]
        # a sum of some forecasts would look like less spending
        return sum(known, ZERO) if len(known) == len(self.standings) else None


def budget_totals(rows: Iterable[BudgetRow], tree: Mapping[str, frozenset[str]], now: datetime) -> list[BudgetTotal]:
    """Return a total for every period, of budgets of whole teams; one inside another listed budget is not added again.

    rows: the budgets of the list; one that was not counted yet, or ended before `now`, is in no total.
    tree: every team or group -> its own code with those below it.
    Budgets of a part (a namespace, a model) may overlap each other, so they are in no total.
    """
    periods: dict[tuple[str, str], list[tuple[Budget, BudgetStatus]]] = {}
    for row in rows:
        ends = row.budget.valid_until
        if row.standing is not None and (ends is None or now < ends):
            periods.setdefault((row.standing.period, row.budget.period), []).append((row.budget, row.standing))
    totals = []
    for (period, kind), listed in sorted(periods.items(), key=itemgetter(0)):
        below = _below({budget.team.code for budget, _active_closes in listed if budget.is_whole_team}, tree)
        added = [row for budget, row in listed if budget.is_whole_team and budget.team.code not in below]
        if added:
            totals.append(BudgetTotal(period, kind, added, len(listed) - len(added), now))
    return totals


def _below(codes: set[str], tree: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the teams below any of `codes`, without those at the top."""
    return set().union(*(tree[code] - {code} for code in codes))
