"""Outlook of the explorer's running month: its forecast and budgets, if a budget could have the same scope."""

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from glob import escape
from typing import Any, Final

from django.utils.translation import gettext as _

from billing.budgets.expected import Expected, expected_of
from billing.budgets.scope import Scope
from billing.budgets.selectors import monthly_amounts
from billing.explorer.query import NAMELESS, Query
from billing.explorer.selectors import Explored, Explorer
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.portal.charts import Chart, Series, Value
from billing.portal.templatetags.portal import money
from billing.rates.selectors import slices_priced_on
from billing.rating.selectors import reference_data_known
from billing.tenancy.models import Team
from billing.tenancy.showback import billing_modes
from billing.usage.selectors import last_close_seq
from metering.intervals import MICROSECOND
from pricing.money import round_amount

PATTERNS: Final = ("cluster", "namespace", "consumer", "accelerator", "model")


@dataclass(frozen=True, slots=True)
class Budgeted:
    """Monthly budgets of whole teams: their sum, their number, and the number of `teams` in the query."""

    amount: Decimal
    number: int
    teams: int


@dataclass(frozen=True)
class Outlook:
    """Outlook of the running month under a query. `expected`: None until it is computed.

    `scope`: of charged teams, as is `spent`, which leaves out credit notes and rebills because no budget counts them.
    """

    found: Explored
    period: BillingPeriod
    scope: Scope
    budget: Budgeted | None
    spent: Decimal
    expected: Expected | None = None

    @classmethod
    def of(cls, found: Explored, reader: Explorer) -> "Outlook | None":
        """Return the outlook; None for another range, for filters that no budget can have, and for sums not made yet."""
        query = found.query
        month, today = query.span.month, f"{found.today:%Y-%m}"
        scope = scope_of(query, reader)
        if month != today or query.metric != "cost" or found.shadow or found.missing or scope is None:
            return None
        period = period_of(month)
        scope = replace(scope, teams=billing_modes().teams(scope.teams, month, shadow=False))
        return cls(found, period, scope, _budget(scope, period), found.total.total - reader.noted(query))

    def forecast(self, reader: Explorer, *, silent: bool) -> "Outlook":
        """Return the outlook with the forecast of the month, as of its sums."""
        window = self.period.window
        known = reference_data_known(last_close_seq() + 1)
        return replace(self, expected=expected_of(
            self.scope, window, self.spent, self.found.as_of or reader.now, self.period.zone, known, silent=silent
        ))  # fmt: skip

    @property
    def used(self) -> Decimal | None:
        """Return spending over the budget, as a ratio; None unless every team has a budget."""
        budget = self.budget
        return self.spent / budget.amount if budget and budget.number == budget.teams else None

    def lines(self, chart: Chart) -> Chart:
        """Return the chart of days with lines for the budget of a day and for the forecast of the days to come."""
        days, query = len(self.found.steps), self.found.query
        if query.step != "day" or days != query.span.days:
            return chart
        ahead = [number for number, step in enumerate(self.found.steps) if step.span.first > self.found.today]
        series = list(chart.series)
        if self.budget is not None and self.used is not None:
            daily = round_amount(Fraction(self.budget.amount) / days)
            series.append(Series(_("Budget, a day"), "limit", "unowned", [daily] * days, [money(daily)] * days))
        if self.expected is not None and self.expected.p50 is not None and ahead:
            series += self._expected(ahead, days)
        return replace(chart, series=series)

    def _expected(self, ahead: list[int], days: int) -> list[Series]:
        """Return the forecast beyond the spending so far, spread evenly over the days to come, with its band."""
        found = self.expected

        def placed(end: Decimal | None) -> tuple[list[Value], list[str]]:
            rest = None if end is None else round_amount(Fraction(end - self.spent) / len(ahead))
            values: list[Value] = [rest if number in ahead else None for number in range(days)]
            return values, ["" if value is None else money(rest) for value in values]

        if found is None:
            return []
        series = [Series(_("Forecast, a day"), "dashed", "ink", *placed(found.p50))]
        if found.p10 is not None and found.p90 is not None:
            series.append(Series(_("80 % likely, from"), "edge", "tokens", *placed(found.p10)))
            series.append(Series(_("80 % likely, to"), "band", "tokens", *placed(found.p90)))
        return series


def scope_of(query: Query, reader: Explorer) -> Scope | None:
    """Return the filters as the scope of a budget; None if no budget can have them."""
    asked = query.filter
    if query.search or not set(asked) <= {"team", *PATTERNS} or any(NAMELESS in values for values in asked.values()):
        return None
    if any(len(values) > 1 for name, values in asked.items() if name != "team"):
        return None
    teams = frozenset(asked.get("team", reader.teams)) & frozenset(reader.teams)
    names = {name: asked[name][0] for name in PATTERNS if name in asked}
    if slices_priced_on(names.get("accelerator", "")):
        return None  # a budget of the accelerator counts these slices, which have names of their own here
    patterns: dict[str, Any] = {name: value if name == "accelerator" else escape(value) for name, value in names.items()}
    return Scope(teams, **patterns) if teams else None


def _budget(scope: Scope, period: BillingPeriod) -> Budgeted | None:
    if not scope.is_everything:
        return None
    teams = list(Team.objects.filter(code__in=scope.teams))
    amounts = monthly_amounts(teams, period.month, period.end - MICROSECOND, period.zone)
    return Budgeted(sum(amounts.values(), Decimal(0)), len(amounts), len(teams)) if amounts else None
