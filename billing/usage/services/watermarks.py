"""Watermarks: up to when an agent has told everything. They only move forward.

A watermark that stood still and went on leaves no trace, so an agent says which stretches it could not watch, and whoever
fills one from other sources says that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from billing.usage.models import AgentNote, ClusterScan, WatchNote
from metering.intervals import Interval

NOTE_LENGTH = 512


def watermark_advance(*, agent: str, cluster: str, watermark: datetime) -> None:
    """Note that `agent` has reported all it saw of `cluster` before `watermark`."""
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO usage_agentwatermark (agent, cluster, watermark, reported_at) VALUES (%s, %s, %s, now())
               ON CONFLICT (agent, cluster) DO UPDATE
               SET watermark = greatest(usage_agentwatermark.watermark, excluded.watermark), reported_at = now()""",
            [agent, cluster, watermark],
        )


def watch_notes_add(*, agent: str, cluster: str, kind: str, stretches: Iterable[Interval]) -> None:
    """Note what `agent` says of stretches of `cluster`; the same again changes nothing."""
    WatchNote.objects.bulk_create(
        (
            WatchNote(kind=kind, agent=agent, cluster=cluster, start=stretch.start, until=stretch.end)
            for stretch in stretches
            if stretch.microseconds
        ),
        ignore_conflicts=True,
    )


def agent_notes_add(*, agent: str, cluster: str, kind: str, notes: Mapping[str, str], now: datetime) -> None:
    """Keep what `agent` could not meter in `cluster`, by subject; what was told before keeps its instant."""
    AgentNote.objects.bulk_create(
        (
            AgentNote(kind=kind, agent=agent, cluster=cluster, subject=_within(subject), text=_within(text), at=now)
            for subject, text in notes.items()
        ),
        ignore_conflicts=True,
    )


def _within(text: str) -> str:
    return text.replace("\0", "�")[:NOTE_LENGTH]


@dataclass(frozen=True, slots=True)
class ScanInput:
    """Units that an agent knew to be held at an instant, that a list showed, and that stand in one of the two only."""

    at: datetime
    watched: int
    scanned: int
    differing: int


def cluster_scans_add(*, agent: str, cluster: str, scans: Iterable[ScanInput]) -> None:
    """Keep what scans of `cluster` found; the same instant again changes nothing."""
    ClusterScan.objects.bulk_create(
        (
            ClusterScan(
                agent=agent, cluster=cluster, at=scan.at, watched=scan.watched, scanned=scan.scanned,
                differing=scan.differing,
            )
            for scan in scans
        ),
        ignore_conflicts=True,
    )
