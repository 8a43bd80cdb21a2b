"""Digest of the usage that a close billed; the audit chain keeps it, so that a later change is noticed.

It covers what no report can change once the close is made: revisions of allocations, cut to a billed window, with
the charged owner's keys and devices, and their other reported facts; tokens by day, and by hour where the window cuts a
day; noted ends; efficiency samples; optional fields of token records. Sums over hashes of rows depend neither on their
order nor on whether deltas were folded.
"""

import json
from hashlib import sha256
from typing import Any, Final

from django.db import connection

from billing.tenancy.models import AuditEntry
from billing.usage.grid import next_day, next_hour, this_day, this_hour
from billing.usage.scope import EpochFilter
from billing.usage.selectors import late_epochs, late_windows
from billing.usage.store.details import details_checksum
from billing.usage.store.proofs import rollup_checksum
from metering.intervals import Interval, without

KNOWN: Final = "epoch >= %(first)s AND {0}.epoch < %(before)s"
PARTS: Final = {
    "gpu": f"""SELECT count(*), sum(hash_record_extended(ROW(
            a.allocation_id, a.cluster, a.namespace, a.accelerator, a.resource, a.quantity, a.device_fraction, a.pod_uid,
            a.started_at, s.epoch, greatest(s.start, %(start)s), least(s.until, %(end)s)), 0))
        FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
        WHERE s.start < %(end)s AND s.until > %(start)s AND s.{KNOWN.format('s')}""",
    "gpu_facts": f"""SELECT count(*), sum(hash_record_extended(ROW(a.allocation_id, s.epoch, a.site, a.queue, a.facts), 0))
        FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
        WHERE s.start < %(end)s AND s.until > %(start)s AND s.{KNOWN.format('s')}""",
    "ends": f"""SELECT count(*), sum(hash_record_extended(ROW(e.allocation_id, e.epoch, e.ended_at, e.end_reason), 0))
        FROM usage_allocationinterruption e
        WHERE e.{KNOWN.format('e')} AND (e.ended_at IS NULL OR e.ended_at > %(start)s)""",
    "samples": f"""SELECT count(*), sum(hash_record_extended(ROW(e.content_sha256, e.epoch), 0))
        FROM usage_efficiencysample e
        WHERE e.{KNOWN.format('e')} AND e.start < %(end)s AND e."end" > %(start)s""",
}


def usage_digest(window: Interval, close_seq: int) -> dict[str, str]:
    """Return SHA-256 by kind of usage, over what close `close_seq` billed of its window and of windows closed before."""
    billed = [(window, EpochFilter(before=close_seq))]
    billed += [(Interval(late.start, late.end), late_epochs(close_seq)) for late in late_windows(close_seq)]
    kinds = {kind: [_row(statement, *part) for part in billed] for kind, statement in PARTS.items()}
    kinds["tokens"] = [_tokens(*part) for part in billed]
    kinds["details"] = [list(map(str, details_checksum(*part))) for part in billed]
    return {kind: sha256(json.dumps(found).encode()).hexdigest() for kind, found in kinds.items()}


def digest_of_close(month: str, close_seq: int) -> dict[str, str]:
    """Return the digests that the audit log has of a close; empty if an older release made the close."""
    closes = AuditEntry.objects.filter(action="period_close", subject=month, detail__close_seq=close_seq)
    entry = closes.order_by("-id").first()
    return {} if entry is None else entry.detail.get("usage", {})


def _row(statement: str, window: Interval, known: EpochFilter) -> list[str]:
    asked: dict[str, Any] = {"start": window.start, "end": window.end, "first": known.first, "before": known.before}
    with connection.cursor() as cursor:
        cursor.execute(statement, asked)
        return list(map(str, cursor.fetchone()))


def _tokens(window: Interval, known: EpochFilter) -> list[str]:
    """Return the token checksum of whole days in a window, and of hours that it touches before and after them."""
    day = next_day(window.start)
    days = Interval(day, max(day, this_day(window.end)))
    hours = Interval(this_hour(window.start), next_hour(window.end))
    return list(map(str, rollup_checksum([days], list(without([hours], [days])), known)))
