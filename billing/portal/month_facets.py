"""A month of many teams in sums: what its pages of the whole house are made of, without reading every line."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from billing.closing.snapshots import rollups_of, snapshot_shown
from billing.invoices.line_rollups import Charged, WastingJob, invoiced_rollups
from billing.invoices.models import BillingPeriod
from billing.portal.statements import Month, MonthStatements, assessed_now
from billing.rating.snapshots import result_of
from billing.tenancy.models import Team


@dataclass(frozen=True)
class MonthFacets(Month):
    """What some teams are charged for a month, and what they are only shown.

    `wasting` and `whole`: the jobs and the lines behind the sums, where they were read with them.
    """

    charged: Sequence[Charged]
    shown_only: Sequence[Charged]
    wasting: Sequence[WastingJob] | None = None
    whole: MonthStatements | None = None

    @property
    def shadow(self) -> bool:
        """Whether everything here is only shown and nobody charged."""
        return bool(self.shown_only) and not self.charged

    @property
    def lines(self) -> Sequence[Charged]:
        """What a page shows: what is charged, or where nothing is, what is only shown."""
        return self.shown_only if self.shadow else self.charged


def month_facets(period: BillingPeriod, teams: QuerySet[Team]) -> MonthFacets:
    """The sums of `teams` (those that somebody may see) for one month."""
    if period.status == BillingPeriod.Status.CLOSED:
        return MonthFacets(period, teams, *invoiced_rollups(period, teams))
    if (preview := snapshot_shown(period)) is not None:
        found = rollups_of(preview, teams.values_list("code", flat=True))
        return MonthFacets(
            period, teams, found.charged, found.shadow, found.wasting, assessment=result_of(preview), as_of=preview.as_of
        )
    whole = assessed_now(period, teams)
    charged = [line for item in whole.charged for line in item.lines]
    shown = [line for item in whole.statements if item.shadow for line in item.lines]
    return MonthFacets(period, teams, charged, shown, whole=whole, assessment=whole.assessment)
