"""Watermarks: instants up to which an agent has reported everything. They only move forward.

A watermark that paused and advanced again leaves no trace, so an agent reports the intervals it could not watch, and a
backfill reports the intervals it filled. An agent that lost its state cannot know what its predecessor left out: the server
knows the predecessor's watermark, and notes the time from there to the first list of the new state.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec
from django.db import connection, transaction

from billing.tenancy.models import BillingSetup
from billing.usage.models import AgentDiagnostic, AgentWatermark, ClusterScan, CoverageNote
from billing.usage.services.quarantine import closed_windows, still_open
from metering.intervals import MICROSECOND, Interval, billing_month, month_of

NOTE_LENGTH = 512
LATELY: Final = timedelta(days=27)
"""Interval shorter than any month, so that a note concerns two months at most."""
STEADY: Final = timedelta(minutes=2)
"""Longest pause between reports after which an agent without state information still counts as uninterrupted."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Coverage that an agent reports of its own watch.

    `since`: time of the first complete list of its state; from there on it knows everything but `unwatched`. An agent
    without `since` vouches for all time before the watermark, unless `stateless`: a version that loses its state silently.
    """

    since: datetime | None = None
    unwatched: tuple[Interval, ...] = ()
    stateless: bool = False


def watermark_advance(
    *, agent: str, cluster: str, watermark: datetime, watched: Watched | None = None, now: datetime | None = None
) -> None:
    """Store that `agent` has reported all it saw of `cluster` before `watermark`, and the intervals it did not watch."""
    watched = watched or Watched()
    with transaction.atomic(), connection.cursor() as cursor:
        known = AgentWatermark.objects.select_for_update().filter(agent=agent, cluster=cluster).first()
        stretches = watched.unwatched if known is None else _unwatched(known, watched, watermark, now)
        watch_notes_add(agent=agent, cluster=cluster, kind=CoverageNote.Kind.UNWATCHED, stretches=stretches)
        cursor.execute(
            """INSERT INTO usage_agentwatermark (agent, cluster, watermark, watched_since, reported_at)
               VALUES (%s, %s, %s, %s, coalesce(%s, now()))
               ON CONFLICT (agent, cluster) DO UPDATE
               SET watermark = greatest(usage_agentwatermark.watermark, excluded.watermark),
                   watched_since = coalesce(excluded.watched_since, usage_agentwatermark.watched_since),
                   reported_at = excluded.reported_at""",
            [agent, cluster, watermark, watched.since, now],
        )


def _unwatched(known: AgentWatermark, watched: Watched, watermark: datetime, now: datetime | None) -> list[Interval]:
    """Return the unwatched intervals of the time that this report adds.

    A new state that began after the last watermark leaves the time between unwatched. Time reported before is not reopened
    by another agent of that name (which took over a Lease): its reporter vouched for it.
    """
    if watched.since is None:
        paused = watched.stateless and now is not None and min(now - known.reported_at, watermark - known.watermark) > STEADY
        return [*watched.unwatched, *([Interval(known.watermark, watermark)] if paused else [])]
    found = [
        Interval(max(stretch.start, known.watermark), stretch.end)
        for stretch in watched.unwatched if stretch.end > known.watermark
    ]  # fmt: skip
    if watched.since != known.watched_since and watched.since > known.watermark:
        found.append(Interval(known.watermark, watched.since))
    return found


def watch_notes_add(*, agent: str, cluster: str, kind: str, stretches: Iterable[Interval]) -> None:
    """Store coverage notes of `agent` about intervals of `cluster`; repeated ones change nothing."""
    CoverageNote.objects.bulk_create(
        (
            CoverageNote(kind=kind, agent=agent, cluster=cluster, start=stretch.start, until=stretch.end)
            for stretch in stretches
            if stretch.microseconds
        ),
        ignore_conflicts=True,
    )


@dataclass(frozen=True, slots=True)
class AgentNote:
    """Agent's message about what it could not meter, with its time range."""

    text: str
    since: datetime
    until: datetime


def agent_notes_add(
    *, agent: str, cluster: str, kind: str, notes: Mapping[str, str | AgentNote], now: datetime
) -> None:
    """Store what `agent` could not meter in `cluster`, by subject; a repeated note keeps its first instant.

    A note with a time range is stored for each billing month that it concerns. A text alone is stored once: older agents
    name a month of UTC in the subject.
    """
    setup, closed = BillingSetup.objects.first(), closed_windows()
    zone = setup.zone if setup else "UTC"
    rows = {
        _within(name): (_within(text), at)
        for subject, note in notes.items() for name, text, at in _by_month(subject, note, now, zone, closed)
    }  # fmt: skip
    AgentDiagnostic.objects.bulk_create(
        (
            AgentDiagnostic(kind=kind, agent=agent, cluster=cluster, subject=subject, text=text, at=at)
            for subject, (text, at) in rows.items()
        ),
        ignore_conflicts=True,
    )


def _by_month(
    subject: str, note: str | AgentNote, now: datetime, zone: str, closed: list[tuple[datetime, datetime]]
) -> Iterator[tuple[str, str, datetime]]:
    """Yield subject, text and instant of a note in each of its months; notes of a closed month block the next open one.

    An agent repeats all its notes with each report, so notes of months further back are already stored.
    """
    if isinstance(note, str):
        yield subject, note, now
        return
    last = min(note.until, now)
    for month in dict.fromkeys(month_of(at, zone) for at in (min(max(note.since, last - LATELY), last), last)):
        within = min(last, billing_month(month, zone).end - MICROSECOND)
        yield f"{subject}, {month}", note.text, still_open(within, closed)


def _within(text: str) -> str:
    return text.replace("\0", "�")[:NOTE_LENGTH]


Units = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class Scan(msgspec.Struct, forbid_unknown_fields=True):
    """Comparison of a list of all pods with devices at one instant with the agent's knowledge, in units of resources."""

    at: datetime
    watched: Units
    scanned: Units
    differing: Units


def cluster_scans_add(*, agent: str, cluster: str, scans: Iterable[Scan]) -> None:
    """Store the results of scans of `cluster`; a repeated instant changes nothing."""
    ClusterScan.objects.bulk_create(
        (ClusterScan(agent=agent, cluster=cluster, **msgspec.structs.asdict(scan)) for scan in scans),
        ignore_conflicts=True,
    )
