"""Corrections of shares once thought known: from an instant on, for stored and future reports.

An allocation that extends beyond the instant ends there by a change of share, and another one continues with the corrected
share. Later reports of its agent, which does not know the correction, are split in the same way, so that each changes
nothing or extends the last part.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import msgspec

from billing.usage import models
from billing.usage.models import ShareCorrection
from metering.allocation import Rule
from metering.records import GpuAllocation, Workload

CHANGED = Rule.SHARE_CHANGED.value
GOES_ON: Final = re.compile(r" from \d{4}-\d\d-\d\dT[\d:.]+\+00:00\Z")
"""Pattern of the suffix in the id of a later part."""
Corrections = Mapping[tuple[str, str], Sequence[ShareCorrection]]
"""Corrections by cluster and resource, in the order of their start."""


def corrections_of(records: Iterable[GpuAllocation]) -> Corrections:
    """Return the corrections of the clusters of these records."""
    found: dict[tuple[str, str], list[ShareCorrection]] = {}
    for row in ShareCorrection.objects.filter(cluster__in={record.cluster for record in records}).order_by("valid_from"):
        found.setdefault((row.cluster, row.resource), []).append(row)
    return found


def parts_of(record: GpuAllocation, corrections: Corrections) -> list[GpuAllocation]:
    """Return a report in parts, one per share; the last part runs or ends like the report.

    The first part keeps the report's id if the report begins before any correction.
    """
    if record.device_fraction is None:
        return [record]
    share, start, name = record.device_fraction, record.started_at, record.allocation_id
    parts = []
    for row in corrections.get((record.cluster, record.resource), ()):
        if row.accelerator not in ("", record.accelerator) or row.device_fraction == share:
            continue
        # the correction begins after the reported time
        if record.started_at < row.valid_from >= record.known_until:
            continue
        at = max(row.valid_from, record.started_at)
        if at > start:
            parts.append(_part(record, name, start, share, end=at))
        share, start, name = row.device_fraction, at, _name(record.allocation_id, at)
    return [*parts, _part(record, name, start, share)]


def _name(allocation_id: str, at: datetime) -> str:
    return f"{allocation_id} from {at.astimezone(UTC).isoformat()}"


def _part(
    record: GpuAllocation, name: str, start: datetime, share: Decimal, end: datetime | None = None
) -> GpuAllocation:
    part = msgspec.structs.replace(record, allocation_id=name, started_at=start, device_fraction=share)
    if end is not None:
        return msgspec.structs.replace(
            part, ended_at=end, observed_until=end, end_reason=CHANGED, end_rule=CHANGED, end_estimated=False,
            end_earliest=end, end_latest=end,
        )  # fmt: skip
    return part if part.end_earliest is None else msgspec.structs.replace(part, end_earliest=max(part.end_earliest, start))


def goes_on(row: models.GpuAllocation, correction: ShareCorrection) -> GpuAllocation:
    """Return the continuation of a stored allocation from the instant of a correction on."""
    facts = row.facts
    workload = facts.get("workload")
    at = max(correction.valid_from, row.started_at)
    return GpuAllocation(
        allocation_id=_name(GOES_ON.sub("", row.allocation_id), at), cluster=row.cluster, namespace=row.namespace,
        pod=row.pod, pod_uid=row.pod_uid, resource=row.resource, quantity=row.quantity,
        device_fraction=correction.device_fraction, accelerator=row.accelerator, node=row.node, started_at=at,
        ended_at=row.ended_at, observed_until=row.observed_until, end_reason=row.end_reason or None,
        scheduler=facts.get("scheduler"), queue=row.queue or None,
        workload=msgspec.convert(workload, Workload) if workload else None, labels=facts.get("labels"),
        priority_class=facts.get("priority_class"), site=row.site or None, pool=facts.get("pool"),
        end_rule=row.end_rule or None, end_estimated=row.end_estimated if row.ended_at else None,
        end_earliest=row.end_earliest and max(row.end_earliest, at), end_latest=row.end_latest,
        reconstructed_from=row.reconstructed_from or None, capacity_type=facts.get("capacity_type"), tags=facts.get("tags"),
    )  # fmt: skip
