"""PURE: dated organisation of a team: cost centres, department, legal entity and parent, each from an instant on.

Usage is posted to the cost centre of its own time, and a document belongs to the legal entity of its month.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self
from zoneinfo import ZoneInfo

from metering.intervals import Interval, union

ORGANISATION: Final = ("department", "legal_entity", "parent")
"""Other dated facts of a team; `Team.dated_organisation` lists the values of each fact with more than one."""


@dataclass(frozen=True, slots=True)
class DatedTexts:
    """Texts in order of time, each from an instant (None: always) until the next begins; "" before the first."""

    entries: Sequence[tuple[datetime | None, str]]

    @classmethod
    def stated(cls, listed: Iterable[Mapping[str, Any]]) -> Self:
        """Return the texts of a list of `value` and `valid_from` (RFC 3339 text or null), as in teams and documents."""
        found = [
            (datetime.fromisoformat(item["valid_from"]) if item["valid_from"] else None, item["value"]) for item in listed
        ]
        return cls(tuple(sorted(found, key=lambda entry: (entry[0] is not None, entry[0]))))

    def at(self, instant: datetime) -> str:
        """Return the text at an instant; "" if there is none."""
        value = ""
        for valid_from, entry in self.entries:
            if valid_from is not None and valid_from > instant:
                break
            value = entry
        return value

    def changes(self) -> list[datetime]:
        """Return the instants at which entries begin."""
        return [valid_from for valid_from, _ in self.entries if valid_from is not None]

    def pieces(self, window: Interval) -> list[tuple[Interval, str]]:
        """Cut the window at changes of the text and return each piece with its text; equal neighbours are one piece."""
        found: list[tuple[Interval, str]] = []
        for piece in window.cut(self.changes()):
            value = self.at(piece.start)
            if found and found[-1][1] == value:
                found[-1] = Interval(found[-1][0].start, piece.end), value
            else:
                found.append((piece, value))
        return found


@dataclass(frozen=True, slots=True)
class CostCenters(DatedTexts):
    """Cost centres of a team."""

    @classmethod
    def of(cls, team: Any) -> Self:
        """Return the cost centres of a team: its dated list, else its one cost centre."""
        return cls.stated(team.dated_cost_centers) if team.dated_cost_centers else cls(((None, team.cost_center),))

    def listed(self, windows: Iterable[Interval], zone: str) -> list[dict[str, str | None]]:
        """Return a document's list of cost centres of some windows, each from a local time of `zone`; the first has none.

        Empty if the windows have one cost centre.
        """
        found: list[tuple[datetime, str]] = []
        for window in union(windows):
            found += [
                (piece.start, value) for piece, value in self.pieces(window) if not found or found[-1][1] != value
            ]
        if len({value for _, value in found}) < 2:
            return []
        return [
            {"value": value, "valid_from": start.astimezone(ZoneInfo(zone)).isoformat() if place else None}
            for place, (start, value) in enumerate(found)
        ]


def organisation_of(team: Any, fact: str) -> DatedTexts:
    """Return a dated fact of ORGANISATION of a team, or its one value if it has no dates; `parent` as a code."""
    if listed := team.dated_organisation.get(fact):
        return DatedTexts.stated(listed)
    plain = (team.parent.code if team.parent else "") if fact == "parent" else getattr(team, fact)
    return DatedTexts(((None, plain),))
