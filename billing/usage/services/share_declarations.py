"""Declarations of a unit's share of a device, for resources no agent can know; kept reports then enter the ledger.

Nothing closed changes: a share declared after a close is late usage of the next one.
"""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

import msgspec
from django.db import transaction

from billing.tenancy.audit import audit_record
from billing.usage.epochs import ingest_lock_shared
from billing.usage.models import ShareCorrection, ShareDeclaration, UnknownShare
from billing.usage.services.allocations import CorrectionError, allocations_correct, allocations_ingest
from billing.usage.services.outcome import Reporter
from billing.usage.services.quarantine import closed_windows
from metering.accelerators import FRACTION_PLACES
from metering.records import GpuAllocation


class DeclarationError(ValueError):
    """Error of an invalid or repeated declaration."""


def share_declare(
    *, cluster: str, resource: str, device_fraction: Decimal | None, actor: str, reason: str, now: datetime,
    accelerator: str = "", why: str = "", product: str = "",
) -> int:  # fmt: skip
    """Declare a unit's share of a device, for past and future reports; return the number of kept reports it settles.

    `device_fraction`: of a physical device, None if it is no accelerator. `accelerator`, `why`: only for reports with these
    values. `product`: the accelerator's name, if the reports have another or none.  Raises DeclarationError.
    """
    _check(cluster, resource, device_fraction, reason)
    facts = {"cluster": cluster, "resource": resource, "accelerator": accelerator, "why": why}
    with transaction.atomic():
        ingest_lock_shared()
        row, made = ShareDeclaration.objects.get_or_create(
            **facts,
            defaults={"device_fraction": device_fraction, "product": product, "declared_by": actor[:200], "reason": reason},
        )
        if not made:
            raise DeclarationError(f"{cluster}/{resource} was declared by {row.declared_by} on {row.declared_at:%Y-%m-%d}")
        share = "no accelerator" if device_fraction is None else format(device_fraction, "f")
        detail = {**facts, "device_fraction": share, "product": product, "reason": reason}
        audit_record(actor=actor, action="share_declare", subject=f"{cluster}/{resource}", detail=detail)
        given = {name: value for name, value in facts.items() if value}
        kept = list(UnknownShare.objects.select_for_update().filter(settled="", **given).order_by("allocation_id"))
        if device_fraction is None:
            ids = [item.pk for item in kept]
            UnknownShare.objects.filter(pk__in=ids).update(settled=UnknownShare.Settled.NO_ACCELERATOR)
        else:
            _take(kept, actor, now)
    return len(kept)


def share_correct(
    *, cluster: str, resource: str, device_fraction: Decimal, valid_from: datetime, actor: str, reason: str,
    accelerator: str = "",
) -> int:  # fmt: skip
    """Correct a unit's reported share of a device from an instant on; return the number of changed allocations.

    A correction is never edited: a later one replaces it. It must begin after the resource's earlier corrections, and in no
    closed month.  Raises DeclarationError.
    """
    _check(cluster, resource, device_fraction, reason)
    with transaction.atomic():
        ingest_lock_shared()
        last = ShareCorrection.objects.filter(cluster=cluster, resource=resource).order_by("valid_from").last()
        if last is not None and valid_from <= last.valid_from:
            raise DeclarationError(f"{cluster}/{resource} was corrected from {last.valid_from.isoformat()} on: begin later")
        closed = max((end for _, end in closed_windows()), default=None)
        if closed is not None and valid_from < closed:
            raise DeclarationError(f"{valid_from.isoformat()} lies in a closed month: begin from {closed.isoformat()} on")
        correction = ShareCorrection.objects.create(
            cluster=cluster, resource=resource, accelerator=accelerator, device_fraction=device_fraction,
            valid_from=valid_from, declared_by=actor[:200], reason=reason,
        )  # fmt: skip
        try:
            changed = allocations_correct(correction=correction)
        except CorrectionError as error:
            raise DeclarationError(str(error)) from error
        audit_record(
            actor=actor, action="share_correct", subject=f"{cluster}/{resource}",
            detail={"accelerator": accelerator, "device_fraction": format(device_fraction, "f"), "reason": reason,
                    "valid_from": valid_from.isoformat(), "allocations": changed},
        )  # fmt: skip
    return changed


def _check(cluster: str, resource: str, device_fraction: Decimal | None, reason: str) -> None:
    if not reason.strip():
        raise DeclarationError("a declaration needs a reason")
    if not cluster or not resource:
        raise DeclarationError("a declaration names a cluster and a resource")
    if device_fraction is None:
        return
    if not device_fraction.is_finite() or not 0 < device_fraction <= 1:
        raise DeclarationError(f"device fraction {device_fraction} must be above 0 and at most 1")
    exponent = device_fraction.normalize().as_tuple().exponent
    if isinstance(exponent, int) and exponent < -FRACTION_PLACES:
        raise DeclarationError(f"device fraction {device_fraction} has more than {FRACTION_PLACES} decimals")


def _take(kept: Iterable[UnknownShare], actor: str, now: datetime) -> None:
    """Ingest kept reports again: their share is now declared."""
    for item in kept:
        raw = item.record.encode()
        record = msgspec.json.decode(raw, type=GpuAllocation)
        allocations_ingest(
            records=[(0, record, raw)], reporter=Reporter(f"{actor} for {item.reporter}", item.door), now=now,
            from_file=item.door == "import_usage gpu",
        )  # fmt: skip


def no_accelerators_note(*, agent: str, cluster: str, resources: Iterable[str], actor: str, now: datetime) -> None:
    """Declare the resources that an agent is configured to treat as no accelerators; earlier declarations stay.

    `actor`: the reporter's token. The agent chooses its own name, which therefore proves nothing.
    """
    known = set(ShareDeclaration.objects.filter(cluster=cluster).values_list("resource", flat=True))
    for resource in sorted(set(resources) - known):
        share_declare(
            cluster=cluster, resource=resource, device_fraction=None, actor=actor, now=now,
            reason=f"the agent {agent} was started with --no-accelerator",
        )  # fmt: skip
