"""Reads of data freshness: the instant through which usage is complete, and silent reporters, for any scope.

They are read once as of an instant. An agent reports a watermark up to which it has seen everything. A gateway reports
none: it counts as complete while its own API token was used within a day. Files are complete for their content, so where
no agent or gateway reports, usage is known through its last hour.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from django.db import connection

from billing.usage.gaps import BEHIND, EDGE, GAPS, Gap, gaps_of
from billing.usage.grid import next_day
from billing.usage.reconciliation import SILENT_AFTER, USUAL_DAYS
from billing.usage.scope import UsageScope, fits
from billing.usage.selectors import usage_span
from billing.usage.store.hours import used_by_source
from metering.intervals import MICROSECOND, Interval

EXPECTED: Final = timedelta(days=31)
"""Longest silence of a reporter that is still expected, as long as another one of the scope reports."""

SAID: Final = """
    SELECT (SELECT array_agg(ARRAY[cluster, agent] ORDER BY cluster, agent) FROM usage_agentwatermark),
           array_agg(source), array_agg(heard)
    FROM (SELECT source, max(last_used_at) AS heard FROM tenancy_apitoken
          WHERE revoked_at IS NULL AND source <> '' AND last_used_at IS NOT NULL AND 'usage:write' = ANY(scopes)
          GROUP BY source) AS token
"""
OWNED: Final = """
    SELECT DISTINCT true, t.code, o.cluster, o.valid_until FROM tenancy_namespaceownership o
    JOIN tenancy_team t ON t.id = o.team_id
    UNION ALL
    SELECT DISTINCT false, t.code, o.source, o.valid_until FROM tenancy_consumerownership o
    JOIN tenancy_team t ON t.id = o.team_id
"""


@dataclass(frozen=True, slots=True)
class Silent:
    """Expected reporter that has not reported since `since`.

    kind: agent, gateway, or allocations (running ones of a cluster without an agent that are no longer reported).
    """

    kind: str
    place: str
    name: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ReportingState:
    """Data freshness of a scope. `data_through`: instant through which its usage is complete; None if none was reported.

    `silent`: silent reporters, the longest first. `gaps`: earlier intervals of the window that were neither watched nor
    filled.
    """

    data_through: datetime | None
    silent: tuple[Silent, ...] = ()
    gaps: tuple[Silent, ...] = ()


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Reporter; `through`: instant up to which its reports are complete; `tolerated`: delay before it counts as silent."""

    kind: str
    place: str
    name: str
    through: datetime
    tolerated: timedelta


@dataclass(frozen=True)
class Reported:
    """Reports of the time before `until`, read once and asked for any scope."""

    until: datetime

    def state(self, scope: UsageScope, window: Interval) -> ReportingState:
        """Return the instant through which a scope's usage in the window is complete, with silent reporters and gaps."""
        concerned = [one for one in self._reporters if self._concerns(one.kind, one.place, scope, window)]
        recent = [one for one in concerned if self.until - one.through <= EXPECTED]
        # long silent reporters count as decommissioned, unless no other one reports
        expected = recent or concerned
        if not expected:
            used = usage_span()
            return ReportingState(None if used is None else min(used.end, self.until))
        through = min((one.through for one in expected if one.kind != "gateway" or self._is_late(one)), default=self.until)
        silent = sorted((one for one in expected if self._is_late(one)), key=lambda one: (one.through, one.place, one.name))
        return ReportingState(
            min(through, self.until), tuple(Silent(one.kind, one.place, one.name, one.through) for one in silent),
            tuple(self._gaps(scope, window)),
        )  # fmt: skip

    def _is_late(self, one: _Reporter) -> bool:
        return self.until - one.through > one.tolerated

    def _concerns(self, kind: str, place: str, scope: UsageScope, window: Interval) -> bool:
        """Return True if a reporter's usage can be in the scope.

        An agent watches a cluster, or reads the log of a source of tokens; a team's scope needs an owner of it in the
        window.
        """
        teams = scope.teams
        of_devices = kind != "gateway" and scope.has_devices and fits(scope.cluster, place)
        if of_devices and (teams is None or _owned(self._clusters, teams, place, window)):
            return True
        if kind == "allocations" or not scope.has_tokens or not fits(scope.source, place):
            return False
        asked = self._sources.keys() if teams is None else teams
        return (kind == "gateway" and teams is None) or _owned(self._sources, asked, place, window)

    @cached_property
    def _reporters(self) -> list[_Reporter]:
        tails = {(gap.cluster, gap.subject): tail for gap in self._reports.gaps if (tail := self._tail(gap)) is not None}
        watched = {cluster for cluster, _ in self._reports.agents}
        found = [
            _Reporter("agent", cluster, agent, tails.get((cluster, f"agent {agent}"), self.until), BEHIND)
            for cluster, agent in self._reports.agents
        ]
        found += [
            _Reporter("allocations", gap.cluster, gap.subject, gap.seen_until, BEHIND)
            for gap in self._reports.gaps if gap.allocations and gap.cluster not in watched
        ]  # fmt: skip
        return found + [
            _Reporter("gateway", source, source, at, SILENT_AFTER)
            for source, at in self._gateways.items() if source not in watched
        ]  # fmt: skip

    def _tail(self, gap: Gap) -> datetime | None:
        """Return the start of an agent's silence if it still lasts, else None."""
        last = gap.unwatched[-1] if gap.unwatched and not gap.allocations else None
        return last.start if last is not None and last.end >= self.until else None

    def _gaps(self, scope: UsageScope, window: Interval) -> Iterable[Silent]:
        watched = {cluster for cluster, _ in self._reports.agents}
        for gap in self._reports.gaps:
            if not self._concerns("allocations" if gap.allocations else "agent", gap.cluster, scope, window):
                continue
            if gap.allocations:
                missing = any(piece.overlap(window) for piece in gap.unwatched)
                if missing and gap.cluster in watched and self.until - gap.seen_until > BEHIND:
                    yield Silent("allocations", gap.cluster, gap.subject, gap.seen_until)
                continue
            for piece in gap.unwatched:
                if piece.end < self.until and piece.end > window.start and piece.start < window.end:
                    yield Silent("agent", gap.cluster, gap.subject.removeprefix("agent "), piece.start)

    @cached_property
    def _reports(self) -> "_Reports":
        with connection.cursor() as cursor:
            cursor.execute(f"{SAID}; {GAPS}", dict[str, Any](hi=self.until, due=self.until, edge=EDGE))  # one round trip
            agents, sources, heard = cursor.fetchone()
            cursor.nextset()
            gaps = gaps_of(cursor.fetchall())
        gateways = dict(zip(sources or (), heard or (), strict=True))
        return _Reports([(cluster, agent) for cluster, agent in agents or ()], gateways, gaps)

    @cached_property
    def _gateways(self) -> dict[str, datetime]:
        """Return the last contact of each gateway; of silent ones only those that used to report nearly every day."""
        quiet = {source: at for source, at in self._reports.heard.items() if self.until - at > SILENT_AFTER}
        heard = {source: at for source, at in self._reports.heard.items() if source not in quiet}
        return heard | _regular_sources(quiet)

    @property
    def _clusters(self) -> "_Places":
        return self._owned_places[0]

    @property
    def _sources(self) -> "_Places":
        return self._owned_places[1]

    @cached_property
    def _owned_places(self) -> "tuple[_Places, _Places]":
        with connection.cursor() as cursor:
            cursor.execute(OWNED)
            rows = cursor.fetchall()
        return _by_team(row[1:] for row in rows if row[0]), _by_team(row[1:] for row in rows if not row[0])


@dataclass(frozen=True, slots=True)
class _Reports:
    """Agents with their clusters, the last contact of gateways, and metering gaps."""

    agents: list[tuple[str, str]]
    heard: dict[str, datetime]
    gaps: list[Gap]


_Places = dict[str, list[tuple[str, datetime | None]]]


def _by_team(rows: Iterable[tuple[str, str, datetime | None]]) -> _Places:
    found: _Places = {}
    for team, place, ends in rows:
        found.setdefault(team, []).append((place, ends))
    return found


def _owned(book: _Places, teams: Iterable[str], place: str, window: Interval) -> bool:
    return any(
        fits(pattern, place) for team in teams for pattern, ends in book.get(team, ())
        if ends is None or ends > window.start
    )  # fmt: skip


def _regular_sources(quiet: dict[str, datetime]) -> dict[str, datetime]:
    """Return those of the quiet sources that reported on at least USUAL_DAYS days of the month before their silence."""
    if not quiet:
        return {}
    looked_at = Interval(min(quiet.values()) - EXPECTED, next_day(max(quiet.values()) + MICROSECOND))
    days = Counter(
        source for source, day in used_by_source("day", quiet, looked_at)
        if quiet[source] - EXPECTED < day <= quiet[source]
    )  # fmt: skip
    return {source: quiet[source] for source, used in days.items() if used >= USUAL_DAYS}
