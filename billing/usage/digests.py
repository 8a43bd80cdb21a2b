"""Reading: the digest of the usage that a close billed. The audit chain keeps it, so that a later change is noticed.

It takes in what no report can change any more once the close is made: the pieces of allocations as far as they lie in a
billed window, with who is charged for which devices; tokens by day, and by hour where the window cuts a day; ends that were
noted; efficiency samples. Sums over hashes of rows depend neither on their order nor on whether deltas were folded.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from django.db import connection

from billing.usage.fingerprints import WEIGHED
from billing.usage.selectors import EpochFilter, late_epochs, late_windows
from billing.usage.token_sums import COUNTS, next_day, next_hour, this_day, this_hour
from metering.intervals import Interval

KNOWN: Final = "epoch >= %(first)s AND {0}.epoch < %(before)s"
PARTS: Final = {
    "gpu": f"""SELECT count(*), sum(hash_record_extended(ROW(
            a.allocation_id, a.cluster, a.namespace, a.accelerator, a.resource, a.quantity, a.device_fraction, a.pod_uid,
            a.started_at, s.epoch, greatest(s.start, %(start)s), least(s.until, %(end)s)), 0))
        FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
        WHERE s.start < %(end)s AND s.until > %(start)s AND s.{KNOWN.format('s')}""",
    "tokens": f"""SELECT {', '.join(f'sum(t.{name})' for name in COUNTS)},
            sum((hash_record_extended(ROW(t.at, t.dimension), 0) & 65535) * ({WEIGHED}))
        FROM (SELECT day AS at, * FROM token_usage_day d WHERE d.day >= %(day)s AND d.day < %(last_day)s
              UNION ALL SELECT hour, * FROM token_usage_hour h
              WHERE h.hour >= %(hour)s AND h.hour < %(last_hour)s AND NOT (h.hour >= %(day)s AND h.hour < %(last_day)s)) t
        WHERE t.{KNOWN.format('t')}""",
    "ends": f"""SELECT count(*), sum(hash_record_extended(ROW(e.allocation_id, e.epoch, e.ended_at, e.end_reason), 0))
        FROM usage_allocationinterruption e
        WHERE e.{KNOWN.format('e')} AND (e.ended_at IS NULL OR e.ended_at > %(start)s)""",
    "samples": f"""SELECT count(*), sum(hash_record_extended(ROW(e.content_sha256, e.epoch), 0))
        FROM usage_efficiencysample e
        WHERE e.{KNOWN.format('e')} AND e.start < %(end)s AND e."end" > %(start)s""",
}


def usage_digest(window: Interval, close_seq: int) -> dict[str, str]:
    """SHA-256 by kind of usage over what close `close_seq` billed of its window, and of windows closed before it."""
    billed = [(window, EpochFilter(before=close_seq))]
    billed += [(Interval(late.start, late.end), late_epochs(close_seq)) for late in late_windows(close_seq)]
    return {kind: sha256(json.dumps(_part(part, billed)).encode()).hexdigest() for kind, part in PARTS.items()}


def _part(statement: str, billed: Sequence[tuple[Interval, EpochFilter]]) -> list[list[str]]:
    with connection.cursor() as cursor:
        found = []
        for window, known in billed:
            cursor.execute(statement, _asked(window, known))
            found.append([str(value) for value in cursor.fetchone()])
        return found


def _asked(window: Interval, known: EpochFilter) -> dict[str, Any]:
    """Days that lie in the window, and the hours that it touches before and behind them."""
    day, last_day = next_day(window.start), this_day(window.end)
    return {
        "start": window.start, "end": window.end, "first": known.first, "before": known.before, "day": day,
        "last_day": max(day, last_day), "hour": this_hour(window.start), "last_hour": next_hour(window.end),
    }  # fmt: skip
