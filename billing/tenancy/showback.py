"""Reads of billing modes: teams that are charged, and teams that are only shown their charge, by month of usage.

Usage of a month in showback is never charged, however late it is reported.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from billing.tenancy.models import BillingMode


@dataclass
class BillingModes:
    """Modes by team; a month before every row of its team is charged.

    >>> modes = BillingModes.of([("nlp", "2026-10", True), ("nlp", "2027-01", False)])
    >>> [modes.shadow("nlp", month) for month in ("2026-09", "2026-10", "2026-12", "2027-01")]
    [False, True, True, False]
    """

    by_team: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, bool]]) -> "BillingModes":
        """Return the modes of (team, first month, shadow) rows."""
        modes = cls()
        for team, month, shadow in sorted(rows):
            modes.by_team.setdefault(team, []).append((month, shadow))
        return modes

    def shadow(self, team: str, month: str) -> bool:
        """Return True if usage of `month` is only shown to the team."""
        known = self.by_team.get(team, [])
        index = bisect_right(known, (month, True)) - 1
        return index >= 0 and known[index][1]

    def teams(self, teams: Iterable[str], month: str, *, shadow: bool) -> frozenset[str]:
        """Return those of some teams that are charged for usage of `month`, or only shown it."""
        return frozenset(team for team in teams if self.shadow(team, month) == shadow)


def billing_modes() -> BillingModes:
    rows = BillingMode.objects.values_list("team__code", "from_month", "mode")
    return BillingModes.of((team, month, mode == BillingMode.Mode.SHADOW) for team, month, mode in rows)
