"""Allocations of unknown share: kept beside the ledger, in no charge, until a report or declaration gives the share.

Reports without a share are stored here; those whose share is known by now go on into the ledger. A declared share is
ingested like any other report, so that its time in closed months is billed as late usage.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from billing.usage import models
from billing.usage.models import ShareDeclaration, UnknownShare
from billing.usage.services.outcome import IngestOutcome, Reporter
from billing.usage.services.quarantine import closed_windows, still_open
from metering.records import GpuAllocation

Indexed = tuple[int, GpuAllocation, bytes]
KNOWN, NO_ACCELERATOR = UnknownShare.Settled.KNOWN, UnknownShare.Settled.NO_ACCELERATOR


def shares_resolve(
    cursor: Any, admitted: Sequence[Indexed], reporter: Reporter, outcome: IngestOutcome
) -> list[Indexed]:
    """Return the reports whose share is known by now, with the share; store the others and count them in `outcome`."""
    unknown = [item for item in admitted if item[1].device_fraction is None]
    known = {record.allocation_id for _, record, _ in admitted if record.device_fraction is not None}
    found = _in_ledger([record.allocation_id for _, record, _ in unknown])
    declared = _declarations({record.cluster for _, record, _ in unknown})
    taken, left = [item for item in admitted if item[1].device_fraction is not None], []
    for index, record, raw in unknown:
        share = found.get(record.allocation_id) or _declared(declared, record)
        if share is None or share[0] is None:
            left.append((index, record, raw, share is not None))
        else:
            taken.append((index, _with_share(record, *share), raw))
            known.add(record.allocation_id)
    # also for allocations that now come with their share
    UnknownShare.objects.filter(allocation_id__in=known).exclude(settled=KNOWN).update(settled=KNOWN)
    _keep(cursor, left, reporter, outcome)
    return sorted(taken, key=lambda item: item[0])


Share = tuple[Decimal | None, str]
"""Fraction of a device (None: no accelerator) and product."""
SHARE: Final = ("allocation_id", "device_fraction", "accelerator")


def _with_share(record: GpuAllocation, fraction: Decimal | None, product: str) -> GpuAllocation:
    return msgspec.structs.replace(
        record, device_fraction=fraction, share_unknown=None, accelerator=product or record.accelerator
    )


def _in_ledger(ids: list[str]) -> dict[str, Share]:
    """Return the stored shares of allocations that were reported or declared with a share before."""
    rows = models.GpuAllocation.objects.filter(allocation_id__in=ids)
    return {name: (fraction, product) for name, fraction, product in rows.values_list(*SHARE)}


def _declarations(clusters: set[str]) -> list[ShareDeclaration]:
    """Return the declarations of clusters, the most specific first."""
    rows = ShareDeclaration.objects.filter(cluster__in=clusters) if clusters else ()
    return sorted(rows, key=lambda row: (not row.why, not row.accelerator))


def _declared(declarations: list[ShareDeclaration], record: GpuAllocation) -> Share | None:
    for row in declarations:
        if (row.cluster, row.resource) == (record.cluster, record.resource) and (
            row.accelerator in ("", record.accelerator) and row.why in ("", record.share_unknown)
        ):
            return row.device_fraction, row.product
    return None


def _keep(
    cursor: Any, left: list[tuple[int, GpuAllocation, bytes, bool]], reporter: Reporter, outcome: IngestOutcome
) -> None:
    """Store the latest report of each allocation; a reported end stays."""
    closed = closed_windows() if left else []
    for _, record, _, declared in sorted(left, key=lambda item: (item[1].allocation_id, item[0])):
        cursor.execute(KEEP, _row(record, reporter, closed) | {"settled": NO_ACCELERATOR if declared else ""})
        if cursor.rowcount:
            outcome.accepted += 1
        else:
            outcome.duplicates += 1


KEPT: Final = (
    "allocation_id", "cluster", "namespace", "pod", "resource", "accelerator", "quantity", "why", "started_at", "until",
    "ended", "billable_from", "record", "reporter", "door", "settled",
)  # fmt: skip
KEEP: Final = f"""
    INSERT INTO usage_unknownshare ({', '.join(KEPT)}) VALUES ({', '.join(f'%({name})s' for name in KEPT)})
    ON CONFLICT (allocation_id) DO UPDATE
    SET until = excluded.until, ended = excluded.ended, record = excluded.record, why = excluded.why,
        accelerator = excluded.accelerator, settled = excluded.settled
    WHERE usage_unknownshare.settled <> 'known' AND NOT usage_unknownshare.ended
      AND (excluded.ended OR excluded.until > usage_unknownshare.until)"""


def _row(record: GpuAllocation, reporter: Reporter, closed: list[tuple[datetime, datetime]]) -> dict[str, Any]:
    return {
        "allocation_id": record.allocation_id, "cluster": record.cluster, "namespace": record.namespace, "pod": record.pod,
        "resource": record.resource, "accelerator": record.accelerator, "quantity": record.quantity,
        "why": record.share_unknown, "started_at": record.started_at, "until": record.known_until,
        "ended": record.ended_at is not None, "billable_from": still_open(record.started_at, closed),
        "record": msgspec.json.encode(record).decode(), "reporter": reporter.name[:512], "door": reporter.door,
    }  # fmt: skip
