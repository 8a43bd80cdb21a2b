"""PURE: owner of a namespace or a consumer at an instant.

The most specific pattern wins: an exact cluster before a pattern, then an exact namespace before a pattern, then more
literal characters. Among equals the pattern that sorts first wins, so that the answer never depends on row order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fnmatch import translate
from functools import lru_cache
from re import Pattern, compile

from metering.intervals import Interval
from metering.names import as_name

WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Owner:
    """Team that pays; `platform`: it does so as the platform (recovered through tokens)."""

    team: str
    platform: bool = False


@dataclass(frozen=True, slots=True)
class OwnershipRow:
    """Ownership row: `scope` is a cluster or a gateway source, `name` a namespace or consumer; both may be patterns."""

    scope: str
    name: str
    owner: Owner
    valid_from: datetime | None = None
    valid_until: datetime | None = None

    def covers(self, instant: datetime) -> bool:
        return (self.valid_from is None or self.valid_from <= instant) and (
            self.valid_until is None or instant < self.valid_until
        )


    def names(self, scope: str, name: str) -> bool:
        """Return True if the patterns of this row match (scope, name)."""
        return _matches(self.scope, scope) and _matches(self.name, name)


class OwnershipBook:
    """Ownership rows of one kind, with the look-up of the owner of (scope, name) at an instant."""

    def __init__(self, rows: Iterable[OwnershipRow]) -> None:
        self._exact: dict[tuple[str, str], list[OwnershipRow]] = {}
        patterns: list[OwnershipRow] = []
        for row in rows:
            if _literal(row.scope) and _literal(row.name):
                self._exact.setdefault((row.scope, row.name), []).append(row)
            else:
                patterns.append(row)
        self._patterns = sorted(patterns, key=_specificity)
        self._by_prefix: dict[str, list[int]] = {}
        for rank, row in enumerate(self._patterns):
            self._by_prefix.setdefault(_literal_prefix(row.name), []).append(rank)
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix})
        self._matching: dict[tuple[str, str], list[OwnershipRow]] = {}

    def owner(self, scope: str, name: str, instant: datetime) -> Owner | None:
        """Return the owner at `instant`, or None."""
        for row in self.rows_of(scope, name):
            if row.covers(instant):
                return row.owner
        return None

    def rows_of(self, scope: str, name: str) -> list[OwnershipRow]:
        """Return all rows for a name, the most specific first; cached, since a name is looked up at many instants.

        A name stored before the rule for names existed is also matched in the spelling of `as_name`.
        """
        known = self._matching.get((scope, name))
        if known is None:
            spellings = dict.fromkeys([(scope, name), (as_name(scope), as_name(name))])
            exact = [row for spelling in spellings for row in self._exact.get(spelling, ())]
            fitting = sorted({rank for spelling in spellings for rank in self._fitting(*spelling)})
            known = self._matching[scope, name] = [*exact, *map(self._patterns.__getitem__, fitting)]
        return known

    def _fitting(self, scope: str, name: str) -> Iterator[int]:
        for length in self._lengths:
            for rank in self._by_prefix.get(name[:length], ()) if length <= len(name) else ():
                if self._patterns[rank].names(scope, name):
                    yield rank

    def teams(self, scope: str, name: str) -> set[str]:
        """Return every team that may own (scope, name) at some instant."""
        return {row.owner.team for row in self.rows_of(scope, name)}

    @property
    def rows(self) -> list[OwnershipRow]:
        """Return all rows, those without a wildcard first."""
        return [row for group in self._exact.values() for row in group] + self._patterns

    def changes(self) -> set[datetime]:
        """Return every instant at which some ownership begins or ends."""
        return {at for row in self.rows for at in (row.valid_from, row.valid_until) if at is not None}

    def literal_scopes(self, window: Interval) -> dict[str, list[Interval]]:
        """Return scopes that rows name without a wildcard, each with the time of the window in which they do."""
        found: dict[str, list[Interval]] = {}
        for row in self.rows:
            start, end = max(row.valid_from or window.start, window.start), min(row.valid_until or window.end, window.end)
            if _literal(row.scope) and start < end:
                found.setdefault(row.scope, []).append(Interval(start, end))
        return found

    def names_scope(self, scope: str, instant: datetime) -> bool:
        """Return True if anything of a scope has an owner just before `instant`."""
        return any(
            _matches(row.scope, scope)
            and (row.valid_from is None or row.valid_from < instant)
            and (row.valid_until is None or instant <= row.valid_until)
            for row in self.rows
        )


def _literal(pattern: str) -> bool:
    return WILDCARDS.isdisjoint(pattern)


def _literal_prefix(pattern: str) -> str:
    """Return the prefix of all names that the pattern matches; an index by it avoids testing every team's pattern."""
    return pattern[: min((at for mark in WILDCARDS if (at := pattern.find(mark)) >= 0), default=len(pattern))]


def _specificity(row: OwnershipRow) -> tuple[object, ...]:
    def literal_characters(pattern: str) -> int:
        return sum(character not in "*?" for character in pattern)

    return (
        not _literal(row.scope), -literal_characters(row.scope),
        not _literal(row.name), -literal_characters(row.name),
        row.scope, row.name,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Pattern[str]:
    return compile(translate(pattern))


def _matches(pattern: str, value: str) -> bool:
    return pattern == value or (not _literal(pattern) and _compiled(pattern).match(value) is not None)
