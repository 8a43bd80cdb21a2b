"""How fresh and how complete a figure is: through when its data are complete, who is silent, and what cannot be billed yet.

Every total, forecast, comparison, alert, summary and export of a month that can still change asks `freshness`.
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

    why: unowned, unpriced, quarantine, conflict, or as an agent says (agent problem, agent unknown). `team` None where it
    is of no team. `amount`: what of it would be billed at list price, None where no part has a price; `partly`: a part has
    none. `late`: of a closed month.
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
    """What is known of a scope in a window, as far as it has passed (`until`); see `ReportingState`.

    left_out: what the assessment behind the figures left out, of anybody.
    """

    scope: UsageScope
    window: Interval
    until: datetime
    state: ReportingState
    left_out: tuple[Unbilled, ...] = ()

    @property
    def data_through(self) -> datetime | None:
        """Through when the usage is complete; None where none was ever reported."""
        return self.state.data_through

    @property
    def silent(self) -> tuple[Silent, ...]:
        """Who is silent, the longest first."""
        return self.state.silent

    @property
    def gaps(self) -> tuple[Silent, ...]:
        """Earlier stretches of the window that nobody watched or filled."""
        return self.state.gaps

    @property
    def earlier_gaps(self) -> list[Silent]:
        """The gaps without allocations that are open since the agent of their cluster fell silent, who is named himself."""
        fell = [(one.place, one.since - BEHIND) for one in self.silent if one.kind == "agent"]
        return [gap for gap in self.gaps if gap.kind != "allocations"
                or not any(gap.place == place and gap.since > since for place, since in fell)]  # fmt: skip

    @property
    def running(self) -> bool:
        """Whether the window goes on."""
        return self.until < self.window.end

    @cached_property
    def unbilled(self) -> list[Unbilled]:
        """Usage of the scope that is in no charge; for everybody with records in quarantine and what agents cannot meter."""
        mine = [item for item in self.left_out if self.scope.teams is None or item.team in self.scope.teams]
        if self.scope == EVERYTHING:
            mine += [
                Unbilled("quarantine" if what in QUARANTINED else what, UNITS.get(what, "records"), Decimal(count))
                for what, _whose, count, _text in not_taken_in(self.window)
            ]
        return _summed(mine)

    @property
    def stale(self) -> bool:
        """Whether so much may be missing that nothing is forecast from it and nothing compared with it.

        Somebody is silent; or, in a running month of which nobody says how far it is reported, a day went by without usage.
        """
        through = self.data_through
        return bool(self.silent) or (self.running and through is not None and self.until - through > SILENT_AFTER)

    @property
    def silent_since(self) -> datetime | None:
        """Since when data are missing; None where nobody is silent."""
        return self.silent[0].since if self.silent else None

    @property
    def missing_since(self) -> datetime | None:
        """Since when so much is missing that nothing is forecast or compared; None where nothing is."""
        return self.silent_since or (self.data_through if self.stale else None)

    def as_dict(self) -> dict[str, Any]:
        """The additional fields of the API: instants in RFC 3339, quantities and amounts as decimal strings."""
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
    """How fresh and how complete the figures of a scope in a window are at `now`.

    unbilled: what the assessment behind the figures left out (`unbilled_in`). reported: where a caller asks for many scopes
    at one instant, what it read once.
    """
    until = max(window.start, min(window.end, now))
    known = reported if reported is not None and reported.until == until else Reported(until)
    return Freshness(scope, window, until, known.state(scope, window), tuple(unbilled))


def unbilled_in(assessment: RatingResult) -> list[Unbilled]:
    """What an assessment left out, added up, its own and late usage apart: without an owner, and by team without a price."""
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
    """`apart`: teams and late usage are told apart."""
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
