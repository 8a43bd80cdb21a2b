"""Groups by time: which teams are below a group, when; and lines of a month split where a team changes its group.

Dated parents (`billing.tenancy.cost_centers`) say of which groups a team is at an instant. A line of a team that moves
within its month is split by its usage at the instants of the moves, to the cent, so that the parts add up to the line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Self

from billing.budgets.models import Budget
from billing.budgets.scope import Scope
from billing.exports.center_amounts import usage_weights
from billing.exports.focus.hours import UsageOfClose
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import known_before
from billing.tenancy.cost_centers import DatedTexts, organisation_of
from billing.tenancy.models import Team
from metering.intervals import Interval
from metering.record_checks import EARLIEST
from pricing.money import split_amount
from pricing.rating import LineKey

Moves = Mapping[str, Sequence[datetime]]
"""Instants at which a team comes below other groups, by team; teams that never do are left out."""


@dataclass(frozen=True)
class GroupTimes:
    """Dated parents of all teams and groups, by code."""

    parents: Mapping[str, DatedTexts]
    moves: Moves = field(init=False)

    def __post_init__(self) -> None:
        changes = sorted({instant for dated in self.parents.values() for instant in dated.changes()})
        found = {}
        for code in self.parents:
            known, mine = self.above(code, EARLIEST), []
            for instant in changes:
                if (above := self.above(code, instant)) != known:
                    known = above
                    mine.append(instant)
            if mine:
                found[code] = mine
        object.__setattr__(self, "moves", found)

    @classmethod
    def read(cls) -> Self:
        return cls({team.code: organisation_of(team, "parent") for team in Team.objects.select_related("parent")})

    def above(self, code: str, instant: datetime) -> frozenset[str]:
        """Return a team's or group's own code with those of all groups above it at an instant."""
        found: set[str] = set()
        while code and code not in found:
            found.add(code)
            code = self.parents[code].at(instant) if code in self.parents else ""
        return frozenset(found)

    def below_at(self, instant: datetime) -> dict[str, frozenset[str]]:
        """Return for every team and group its own code with those of all teams below it at an instant."""
        tree: dict[str, set[str]] = {code: set() for code in self.parents}
        for code in self.parents:
            for above in self.above(code, instant) & tree.keys():
                tree[above].add(code)
        return {code: frozenset(below) for code, below in tree.items()}

    def scope_in(self, budget: Budget, window: Interval) -> Scope:
        """Return the scope of a budget in a window, with the teams of the window and those of before."""
        root, teams, earlier = budget.team.code, set[str](), set[str]()
        partly: list[tuple[str, tuple[Interval, ...]]] = []
        for code in self.parents:
            pieces = Interval(EARLIEST, window.end).cut(self.moves.get(code, ()))
            mine = tuple(piece for piece in pieces if root in self.above(code, piece.start))
            if not mine:
                continue
            (teams if any(piece.overlap(window) for piece in mine) else earlier).add(code)
            if len(mine) < len(pieces):
                partly.append((code, mine))
        return Scope(
            frozenset(teams), budget.cluster, budget.namespace, budget.consumer, budget.accelerator, budget.model,
            earlier=frozenset(earlier), partly=tuple(partly),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LinePart:
    """Part of a line: its usage is from `since` on, and before the next move of the team."""

    key: LineKey
    since: datetime
    amount: Fraction


def lines_by_time(amounts: Mapping[LineKey, Fraction], period: BillingPeriod, moves: Moves) -> list[LinePart]:
    """Split lines of teams that move, by usage and largest remainder; `amounts`: in whole units of the currency.

    A line whose usage has no time is split by elapsed time of its month.
    """
    windows = {row.month: row.window for row in BillingPeriod.objects.all()} | {period.month: period.window}
    pieces = {key: windows[key.charge_period].cut(moves[key.team]) for key in amounts}
    cut = {key for key, parts in pieces.items() if len(parts) > 1}
    usage = UsageOfClose(period, as_of=known_before(period)).of({key.team for key in cut}, only=cut).places if cut else {}
    found: list[LinePart] = []
    for key, amount in amounts.items():
        starts = {piece.start.isoformat(): piece for piece in pieces[key]}
        dated = DatedTexts(tuple((piece.start, text) for text, piece in starts.items()))
        weights = usage_weights(usage.get(key, {}), windows[key.charge_period], dated)
        if not any(weights.values()):
            weights = {text: Fraction(piece.microseconds) for text, piece in starts.items()}
        parts = split_amount(amount, list(weights.values()))
        found += [
            LinePart(key, starts[text].start, Fraction(part)) for text, part in zip(weights, parts, strict=True) if part
        ]
    return found
