"""A month of many teams in sums: what its pages of the whole house are made of, without reading every line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from django.db.models import QuerySet

from billing.closing.snapshots import rollups_of, snapshot_shown
from billing.invoices.line_rollups import Charged, WastingJob, invoiced_rollups
from billing.invoices.models import BillingPeriod
from billing.portal.statements import MonthStatements, assessed_now
from billing.rating.freshness import Unbilled, unbilled_in
from billing.rating.snapshots import result_of
from billing.tenancy.models import Team

ZERO = Decimal("0.00")


@dataclass(frozen=True)
class MonthFacets:
    """What some teams are charged for a month, and what they are only shown.

    `preview`: the amounts can still change. `as_of`: when a large month was last assessed. `wasting` and `whole`: the jobs
    and the lines behind the sums, where they were read with them. `unrated` says why teams of the page cannot be rated and
    are in no sum; with `entangled` what others pay hangs on them. `unbilled`: usage of anybody that is in no sum.
    """

    period: BillingPeriod
    charged: Sequence[Charged]
    shown_only: Sequence[Charged]
    preview: bool
    as_of: datetime | None = None
    wasting: Sequence[WastingJob] | None = None
    whole: MonthStatements | None = None
    unrated: Mapping[str, str] = field(default_factory=dict)
    entangled: bool = False
    unbilled: Sequence[Unbilled] = ()

    @property
    def shadow(self) -> bool:
        """Whether everything here is only shown and nobody charged."""
        return bool(self.shown_only) and not self.charged

    @property
    def lines(self) -> Sequence[Charged]:
        """What a page shows: what is charged, or where nothing is, what is only shown."""
        return self.shown_only if self.shadow else self.charged

    def of_kind(self, kind: str) -> Decimal:
        """Sum of one kind of what is charged."""
        return sum((line.amount for line in self.charged if line.key.kind == kind), ZERO)


def month_facets(period: BillingPeriod, teams: QuerySet[Team]) -> MonthFacets:
    """The sums of `teams` (those that somebody may see) for one month."""
    if period.status == BillingPeriod.Status.CLOSED:
        return MonthFacets(period, *invoiced_rollups(period, teams), preview=False)
    if (preview := snapshot_shown(period)) is not None:
        found, known = rollups_of(preview, teams.values_list("code", flat=True)), result_of(preview)
        mine = teams.filter(code__in=known.faults).order_by("code") if known.faults else ()
        unrated = {team.code: known.faults[team.code] for team in mine}
        return MonthFacets(
            period, found.charged, found.shadow, True, preview.as_of, found.wasting, None, unrated, known.entangled,
            unbilled_in(known),
        )  # fmt: skip
    whole = assessed_now(period, teams)
    charged_lines = [line for item in whole.charged for line in item.lines]
    shown = [line for item in whole.statements if item.shadow for line in item.lines]
    return MonthFacets(
        period, charged_lines, shown, whole.preview, whole.as_of, None, whole, whole.unrated, whole.entangled,
        whole.unbilled,
    )  # fmt: skip
