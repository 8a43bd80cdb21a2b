"""Unmatched budgets: no line of a month counts for them, so their scope may name something unused."""

from collections.abc import Iterator
from fractions import Fraction

from billing.budgets.group_times import GroupTimes
from billing.budgets.models import Budget
from billing.budgets.selectors import period_of
from billing.budgets.spending import spent_on
from billing.closing.exceptions import Context
from billing.closing.unmatched_rules import UnmatchedRule
from metering.intervals import MICROSECOND


def unmatched_budgets(context: Context) -> Iterator[UnmatchedRule]:
    """Yield the budgets in force at the end of the month that cover none of its charges to teams."""
    keys = [charge.key for charge in context.rated.charges if not charge.key.platform]
    spent, groups = {spent_on(key, Fraction(0)) for key in keys}, GroupTimes.read()
    last = context.period.end - MICROSECOND
    for budget in Budget.objects.select_related("team").prefetch_related("plan"):
        scope = groups.scope_in(budget, context.period.window)
        if period_of(budget, last, context.period.zone) is not None and not any(map(scope.covers, spent)):
            yield UnmatchedRule("budgets", str(budget))
