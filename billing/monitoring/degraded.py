"""Degraded parts of the installation, for the banner of admins; the limits are those of the alert rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from time import monotonic
from typing import Final

from django.utils import timezone

from billing.monitoring import state
from billing.tenancy.audit_anchors import anchor_states
from billing.tenancy.models import AuditEntry

LIMITS: Final = {
    "worker": timedelta(minutes=10), "scheduler": timedelta(minutes=5), "anchor": timedelta(hours=36),
    "backup_take": timedelta(hours=36), "backup_prove": timedelta(days=9),
}  # fmt: skip
"""Longest allowed time since each last succeeded."""
CLOCK_SECONDS: Final = 5
KEPT_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Degraded:
    """Degraded state that needs repair.

    kind: a key of LIMITS, `broker` or `clock`. at: the time of the last success; None for never, or where it is unknown.
    seconds: lead of the clock of this process over the database's.
    """

    kind: str
    at: datetime | None = None
    seconds: float = 0.0


def degraded(now: datetime) -> Iterator[Degraded]:
    """Yield the degraded states. A part or anchor without any success counts from the first entry of the audit log."""
    begun = AuditEntry.objects.order_by("pk").values_list("at", flat=True).first() or now

    def late(kind: str, at: datetime | None) -> Iterator[Degraded]:
        if now - (at or begun) > LIMITS[kind]:
            yield Degraded(kind, at)

    if state.tasks_waiting() is None:  # without a broker every heartbeat is late: report only the cause
        yield Degraded("broker")
    else:
        for part, at in state.heartbeats().items():
            yield from late(part, at)
    for one in anchor_states():
        yield from late("anchor", one.sent_at if one else None)
    for kind, at in state.backups().items():
        if at:  # backups, or their proofs, may be recorded elsewhere
            yield from late(kind, at)
    ahead = state.clock_ahead_seconds()
    if abs(ahead) > CLOCK_SECONDS:
        yield Degraded("clock", seconds=ahead)


def degraded_lately() -> tuple[Degraded, ...]:
    """Return the degraded states, at most half a minute old: detecting an unreachable broker takes seconds."""
    return _asked(int(monotonic() // KEPT_SECONDS))


@lru_cache(maxsize=1)
def _asked(period: int) -> tuple[Degraded, ...]:
    return tuple(degraded(timezone.now()))
