"""Ends that were not the team's doing, kept by what was known before and after each close."""

from collections.abc import Sequence
from typing import Any

from metering.allocation import INTERRUPTIONS, Rule

NOTED = INTERRUPTIONS | {Rule.SHARE_CHANGED.value}
"""Ends of holds that were not the team's doing, and ends of their earlier pieces."""
Told = tuple[int | None, object, str, str]
"""Row of the allocation, when it ended (None: it goes on), why, and why it was thought to have ended before."""


def ends_put(cursor: Any, told: Sequence[Told], epoch: int) -> None:
    """Note in this epoch every end by an interruption or a change of share, and what one was corrected to."""
    rows = [(row_id, at, reason) for row_id, at, reason, before in told if {reason, before} & NOTED]
    if rows:
        cursor.execute(
            """INSERT INTO usage_allocationinterruption (allocation_id, epoch, ended_at, end_reason)
               SELECT a.id, %s, a.ended_at, a.reason
               FROM unnest(%s::bigint[], %s::timestamptz[], %s::text[]) AS a (id, ended_at, reason)
               ON CONFLICT (allocation_id, epoch)
               DO UPDATE SET ended_at = excluded.ended_at, end_reason = excluded.end_reason""",
            [epoch, *(list(column) for column in zip(*rows, strict=True))],
        )
