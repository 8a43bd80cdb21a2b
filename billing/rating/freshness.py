"""Freshness and completeness of a figure: data-through instant, silent reporters, and usage that cannot be billed yet.

Every total, forecast, comparison, alert, summary and export of a month that can still change calls `freshness`.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from billing.rating.assessment import RatingResult
from billing.rating.reference_data import as_counted
from billing.usage.gaps import BEHIND
from billing.usage.reconciliation import SILENT_AFTER
from billing.usage.reported import Reported, ReportingState, Silent
from billing.usage.scope import EVERYTHING, UsageScope
from billing.usage.selectors import not_taken_in
from metering.intervals import Interval
from pricing.money import EXACT

QUARANTINED: Final = ("invalid", "future", "paid_by_call")
UNITS: Final = {"agent problem": "objects", "agent unknown": "resources"}


@dataclass(frozen=True, slots=True)
class Unbilled:
    """Usage that is in no charge yet.

    why: unowned, unpriced, quarantine, conflict, or as an agent reports (agent problem, agent unknown). `team`: None if it
    belongs to no team. `amount`: its worth at list price, None if no part has a price; `partly`: a part has no price.
    `late`: usage of a closed month.
    """

    why: str
    unit: str
    quantity: Decimal
    amount: Decimal | None = None
    partly: bool = False
    team: str | None = None
    late: bool = False


@dataclass(frozen=True)
class Freshness:
    """State of reporting for a scope in the part of a window that has passed (`until`); see `ReportingState`.

    left_out: usage that the assessment behind the figures left out, of every team.
    """

    scope: UsageScope
    window: Interval
    until: datetime
    state: ReportingState
    left_out: tuple[Unbilled, ...] = ()

    @property
    def data_through(self) -> datetime | None:
        """Return the instant up to which usage is complete; None if nothing was ever reported."""
        return self.state.data_through

    @property
    def silent(self) -> tuple[Silent, ...]:
        """Return the silent reporters, the longest silence first."""
        return self.state.silent

    @property
    def gaps(self) -> tuple[Silent, ...]:
        """Return earlier intervals of the window that no agent watched and no later report filled."""
        return self.state.gaps

    @property
    def earlier_gaps(self) -> list[Silent]:
        """Return the gaps except allocation gaps that began when their cluster's agent fell silent (see `silent`)."""
        # an agent counts as silent only after BEHIND, but its gap begins before that
        fell = [(one.place, one.since - BEHIND) for one in self.silent if one.kind == "agent"]
        return [gap for gap in self.gaps if gap.kind != "allocations"
                or not any(gap.place == place and gap.since > since for place, since in fell)]  # fmt: skip

    @property
    def running(self) -> bool:
        """Return True if the window has not ended."""
        return self.until < self.window.end

    @cached_property
    def unbilled(self) -> list[Unbilled]:
        """Return usage of the scope in no charge; for all teams also quarantined records and what agents cannot meter."""
        mine = [item for item in self.left_out if self.scope.teams is None or item.team in self.scope.teams]
        if self.scope == EVERYTHING:
            mine += [
                Unbilled("quarantine" if what in QUARANTINED else what, UNITS.get(what, "records"), Decimal(count))
                for what, _whose, count, _text in not_taken_in(self.window)
            ]
        return _summed(mine)

    @property
    def stale(self) -> bool:
        """Return True if so much data may be missing that no forecast or comparison is made.

        A reporter is silent; or, in a running month, the data end more than SILENT_AFTER ago.
        """
        through = self.data_through
        return bool(self.silent) or (self.running and through is not None and self.until - through > SILENT_AFTER)

    @property
    def silent_since(self) -> datetime | None:
        """Return since when data are missing; None if no reporter is silent."""
        return self.silent[0].since if self.silent else None

    @property
    def missing_since(self) -> datetime | None:
        """Return since when too much is missing for a forecast or comparison; None if the figures suffice."""
        return self.silent_since or (self.data_through if self.stale else None)

    def as_dict(self) -> dict[str, Any]:
        """Return the additional fields of the API: instants in RFC 3339, quantities and amounts as decimal strings."""
        through = self.data_through
        return {
            "data_through": None if through is None else through.isoformat(),
            "missing": {
                "silent": [_silent_dict(item) for item in self.silent],
                "gaps": [_silent_dict(item) for item in self.gaps],
                "unbilled": [
                    {"reason": item.why, "unit": item.unit, "quantity": format(item.quantity, "f"),
                     "amount": None if item.amount is None else format(item.amount, "f"), "partly_priced": item.partly}
                    for item in self.unbilled
                ],
            },
        }  # fmt: skip


def _silent_dict(item: Silent) -> dict[str, Any]:
    return {"kind": item.kind, "place": item.place, "name": item.name, "since": item.since.isoformat()}


def freshness(
    scope: UsageScope, window: Interval, now: datetime, *, unbilled: Iterable[Unbilled] = (),
    reported: Reported | None = None,
) -> Freshness:
    """Compute the freshness and completeness of the figures of a scope in a window at `now`.

    unbilled: what the assessment behind the figures left out (`unbilled_in`). reported: the reports read once by a caller
    that asks for many scopes at one instant.
    """
    until = max(window.start, min(window.end, now))
    known = reported if reported is not None and reported.until == until else Reported(until)
    return Freshness(scope, window, until, known.state(scope, window), tuple(unbilled))


def unbilled_in(assessment: RatingResult) -> list[Unbilled]:
    """Sum what an assessment left out, late usage separately: unowned usage, and unpriced usage by team."""
    nobodys = [
        Unbilled("unowned", item.unit, item.quantity, item.amount, partly=item.amount is None, late=item.late)
        for item in assessment.unowned
    ]
    priceless = [
        Unbilled("unpriced", unit, quantity, partly=True, team=item.team, late=item.late)
        for item in assessment.unpriced
        for quantity, unit in [as_counted(item)]
    ]
    return _summed(nobodys + priceless, apart=True)


def _summed(items: Iterable[Unbilled], *, apart: bool = False) -> list[Unbilled]:
    """Add items up by reason and unit; `apart`: also by team and lateness."""
    found: dict[tuple[str, str, str | None, bool], list[Unbilled]] = defaultdict(list)
    for item in items:
        found[item.why, item.unit, item.team if apart else None, apart and item.late].append(item)
    return [_sum(*key, parts) for key, parts in found.items()]


def _sum(why: str, unit: str, team: str | None, late: bool, parts: list[Unbilled]) -> Unbilled:
    quantity = Decimal(0)
    for part in parts:
        quantity = EXACT.add(quantity, part.quantity)
    known = [part.amount for part in parts if part.amount is not None]
    amount = sum(known, Decimal("0.00")) if known else None
    return Unbilled(why, unit, quantity, amount, any(part.partly for part in parts), team, late)
