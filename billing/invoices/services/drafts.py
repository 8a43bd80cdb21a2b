"""Drafts of invoices from the charges of a close, with their lines and sums."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final

import msgspec

from billing.invoices.line_rollups import line_rollups
from billing.invoices.lines import (
    InvoiceParties,
    Line,
    draft_document,
    issuer_facts,
    recipient_facts,
    total_of,
)
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine, InvoiceSums
from billing.rating.models import LineDimensions
from billing.runtime.bulk_copy import instances_copy, rows_copy
from billing.tenancy.cost_centers import CostCenters, organisation_of
from billing.tenancy.models import BillingSetup, Team
from billing.tenancy.showback import billing_modes
from metering.intervals import MICROSECOND, Interval
from pricing.rating import Charge

KEY: Final = (*LineDimensions.names(), "correction")
LINE: Final = ("invoice_id", "position", *KEY, "quantity", "unit_price", "amount", "energy_kwh")
UNREVIEWED: Final = "review: none"
"""Approver of drafts in an installation without review."""
KINDS_SUMMED: Final = ("gpu", "tokens", "other")
_key = attrgetter(*KEY)


def charges_by_invoice(charges: Iterable[Charge]) -> dict[tuple[str, bool], list[Charge]]:
    """Return the charges of teams by (team, shadow): usage of a shadow month is never charged, however late."""
    modes = billing_modes()
    grouped: dict[tuple[str, bool], list[Charge]] = {}
    for charge in charges:
        if not charge.key.platform:
            shadow = modes.shadow(charge.key.team, charge.key.charge_period)
            grouped.setdefault((charge.key.team, shadow), []).append(charge)
    return grouped


Draft = tuple[list[Line], InvoiceParties]
"""Lines of an invoice, and its parties."""


def drafts_write(
    period: BillingPeriod, setup: BillingSetup, teams: Mapping[str, Team], number: int, drafts: Iterable[Draft]
) -> list[Invoice]:
    """Store `number` drafts from an iterator: approved at once without review, shadows as previews."""
    # drafts stream to the database; rows of lines need the keys that it returns
    all_lines = list[list[Line]]()

    def made() -> Iterator[Invoice]:
        for lines, parties in drafts:
            all_lines.append(lines)
            yield _invoice(period, setup, teams[parties.team], lines, parties)

    invoices = instances_copy(Invoice, number, made())
    written = [(invoice.pk, lines) for invoice, lines in zip(invoices, all_lines, strict=True)]
    rows_copy(InvoiceLine, LINE, (line_row(pk, line) for pk, lines in written for line in lines))
    rows_copy(InvoiceSums, ("invoice_id", *KINDS_SUMMED, "facets"), (_sums_row(pk, lines) for pk, lines in written))
    return invoices


def line_row(invoice_pk: int, line: Line) -> tuple[Any, ...]:
    """Return the stored row of a line, with the columns of LINE."""
    return (
        invoice_pk, line.position, *_key(line.key), line.quantity, line.charge.unit_price, line.amount, line.energy_kwh,
    )  # fmt: skip


def _invoice(
    period: BillingPeriod, setup: BillingSetup, team: Team, lines: list[Line], parties: InvoiceParties
) -> Invoice:
    approved = setup.review == BillingSetup.Review.NONE
    regular = Invoice.Status.APPROVED if approved else Invoice.Status.DRAFT
    return Invoice(
        period=period,
        team=team,
        shadow=parties.shadow,
        status=Invoice.Status.PREVIEW if parties.shadow else regular,
        approved_by=UNREVIEWED if approved and not parties.shadow else "",
        currency=setup.currency,
        issuer=setup.issuer,
        total=total_of(lines),
        draft=draft_document(parties, lines),
    )


def parties_of(
    period: BillingPeriod, setup: BillingSetup, team: Team, lines: Sequence[Line] = (),
    windows: Mapping[str, Interval] | None = None, *, shadow: bool = False,
) -> InvoiceParties:  # fmt: skip
    """Return the parties of a team's invoice; its cost centres are those of the months in which its usage occurred.

    windows: of every month (`month_windows`), read before: this may run during a COPY, when the connection cannot read.
    """
    months = {line.key.charge_period for line in lines if line.key.correction}
    earlier = [(windows or {})[month] for month in sorted(months)] if team.dated_cost_centers else []
    cost_center, listed = cost_centers_charged(team, period, earlier)
    entity = organisation_of(team, "legal_entity").at(period.window.start)
    return InvoiceParties(
        issuer=setup.issuer, team=team.code, team_name=team.name, cost_center=cost_center,
        currency=setup.currency, month=period.month, zone=period.zone, window=period.window,
        shadow=shadow,
        issuer_facts=issuer_facts(setup), recipient_facts={**recipient_facts(team, entity), **listed},
    )  # fmt: skip


def month_windows() -> dict[str, Interval]:
    """Return the window of every opened month."""
    return {period.month: period.window for period in BillingPeriod.objects.all()}


def cost_centers_charged(team: Team, period: BillingPeriod, earlier: Sequence[Interval]) -> tuple[str, dict[str, Any]]:
    """Return a team's cost centre at the end of a period, and `cost_centers`, if it and earlier months have several."""
    if not team.dated_cost_centers:
        return team.cost_center, {}
    centers = CostCenters.of(team)
    listed = centers.listed([period.window, *earlier], period.zone)
    return centers.at(period.window.end - MICROSECOND), {"cost_centers": listed} if listed else {}


def _sums_row(invoice_pk: int, lines: list[Line]) -> tuple[Any, ...]:
    sums = dict.fromkeys(KINDS_SUMMED, Decimal("0.00"))
    facets = line_rollups(lines)
    for item in facets:
        sums[item.kind if item.kind in sums else "other"] += item.amount
    return (invoice_pk, *sums.values(), msgspec.json.encode(facets).decode())
