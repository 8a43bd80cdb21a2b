"""PURE: GpuAllocation records of Slurm jobs.

A device is held from start to end, suspended time included: a suspended job gives its CPUs to others, not its devices.
Resource names are `slurm/gpu` and, where Slurm tracks the type, `slurm/gpu:h800`; a type that names a MIG profile is a
slice. The accelerator is the map's name for the type (without a type, for the generic resource's own name, `gpu`), else the
type itself, so that an unmapped type shows up as unpriced under a name that people know.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

import msgspec

from metering.accelerators import device_fraction, mig_share
from metering.record_checks import RecordError
from metering.records import (
    GpuAllocation,
    Workload,
    from_row,
    hold_id,
)
from metering.slurm.jobs import GRES, WAITING, RejectedEntry, SacctError, SlurmJob, Source, gres_counts
from metering.slurm.nodes import PARTITIONED, nodes_of

RESIZED: Final = "resized"
END_REASONS: Final[Mapping[str, str]] = {
    "COMPLETED": "completed",
    "CANCELLED": "deleted",
    "REVOKED": "deleted",  # a sibling in the federation ran instead
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "TIMEOUT": "failed",
    "DEADLINE": "failed",
    "LAUNCH_FAILED": "failed",
    "NODE_FAIL": "node lost",
    "BOOT_FAIL": "node lost",
    "PREEMPTED": "preempted",
    "REQUEUED": "evicted",
    "RESIZING": RESIZED,  # the job goes on under another record, with other devices
}
"""End reasons of the contract by the states of sacct.1; any other state is "unknown"."""

MIG_TYPE: Final = re.compile(r"[_.:-]?([1-7]g\.\d+gb(?:[.+]me)?)\Z")
PIECES: Final = frozenset({"shard", "mps"})
"""Generic resources that count pieces of a GPU.  Source: Slurm, Generic Resource (GRES) Scheduling."""
DEVICES: Final = ("gpu", *sorted(PIECES))
"""Generic resources that are devices on every cluster."""
USAGE_ONLY: Final = frozenset({"gpumem", "gpuutil"})
"""Generic resources that measure usage and allocate nothing."""
MAX_NODES: Final = 1000


def allocations_of(
    jobs: Iterable[SlurmJob],
    *,
    cluster: str,
    now: datetime,
    accelerators: Mapping[str, str] | None = None,
    gres: Sequence[str] = DEVICES,
    site: str | None = None,
    cut_nodes: Collection[str] = (),
    qos: bool = False,
) -> tuple[list[GpuAllocation], list[RejectedEntry]]:
    """Return records of all runs that held devices, and the runs of which none can be made.

    A run that still goes on is open and known until `now`; one that ended when it began takes back earlier reports of it as
    open, as for a runaway job. The same run reported twice is taken once. Of two different runs under one key neither is
    taken, since neither is known to be right. `cut_nodes`: nodes whose cards MIG cuts, on which a device without a type may
    be a slice. `qos`: add each job's QOS as a tag.
    """
    found: dict[str, list[tuple[SlurmJob, GpuAllocation]]] = {}
    rejected: list[RejectedEntry] = []
    for job in jobs:
        try:
            for record in _of_job(job, cluster, now, accelerators or {}, gres, site, cut_nodes):
                record = msgspec.structs.replace(record, tags={"qos": job.qos}) if qos and job.qos else record
                found.setdefault(record.allocation_id, []).append((job, record))
        except SacctError as error:
            rejected.append(RejectedEntry(job.source, error, job))
    ambiguous = {key: runs for key, runs in found.items() if any(record != runs[0][1] for _, record in runs)}
    rejected += [_shares_key(job, record) for runs in ambiguous.values() for job, record in runs]
    return [runs[0][1] for key, runs in found.items() if key not in ambiguous], rejected


def _shares_key(job: SlurmJob, record: GpuAllocation) -> RejectedEntry:
    problem = f"two runs share the key {record.pod_uid}: ask sacct for SLUID or DBIndex"
    return RejectedEntry(job.source, SacctError(job.job_id, "SLUID", problem), job)


def uncounted_gres(jobs: Iterable[SlurmJob], gres: Sequence[str] = DEVICES) -> dict[str, datetime | None]:
    """Return generic resources that jobs held and that no record counts, for a person to decide, and until when they were
    held; None if they still are.
    """
    counted, found = {*gres, *USAGE_ONLY}, dict[str, datetime | None]()
    for job in jobs:
        for name in {name.removeprefix(GRES).partition(":")[0] for name in job.tres if name.startswith(GRES)} - counted:
            before = found.get(name, job.end)
            found[name] = max(before, job.end) if before and job.end else None
    return dict(sorted(found.items()))


def untyped(job: SlurmJob, gres: Sequence[str] = DEVICES) -> bool:
    """Return True if a job held devices for which no type is accounted."""
    for name in set(gres) - PIECES:
        typed = sum(count for key, count in job.tres.items() if key.startswith(f"{GRES}{name}:"))
        if job.tres.get(f"{GRES}{name}", 0) > typed:
            return True
    return False


def untracked(jobs: Iterable[SlurmJob]) -> list[RejectedEntry]:
    """Return a rejected entry if jobs ran and none shows a generic resource, as when AccountingStorageTRES names none."""
    ran = [job for job in jobs if job.start is not None and job.start != job.end and not WAITING & set(job.states)]
    if not ran or any(name.startswith(GRES) for job in ran for name in job.tres):
        return []
    problem = (
        "no job of these days shows a generic resource: name gres/gpu in AccountingStorageTRES of slurm.conf, or waive this "
        "where no job asked for a GPU"
    )
    return [RejectedEntry(Source("report"), SacctError("", "AllocTRES", problem))]


def _of_job(
    job: SlurmJob, cluster: str, now: datetime, accelerators: Mapping[str, str], gres: Sequence[str], site: str | None,
    cut_nodes: Collection[str],
) -> list[GpuAllocation]:  # fmt: skip
    """Return the records of one run.  Raises SacctError."""
    devices = [(name, kind, count) for name in gres for kind, count in gres_counts(job, name)]
    start = job.allocated_from if devices else None
    if start is None:
        return []
    if job.end is None and job.states[0] in END_REASONS:
        raise SacctError(job.job_id, "End", f"missing, though the job is {job.states[0]}")
    try:
        cut = sorted(set(cut_nodes) & set(nodes_of(job.nodes))) if cut_nodes else []
        records = [_record(job, start, cluster, now, accelerators, site, cut, *device) for device in devices]
        return [from_row(GpuAllocation, msgspec.to_builtins(record)) for record in records]  # checked as the ledger will
    except RecordError as error:
        raise SacctError(job.job_id, error.field or "record", str(error)) from error


def _record(
    job: SlurmJob,
    start: datetime,
    cluster: str,
    now: datetime,
    accelerators: Mapping[str, str],
    site: str | None,
    cut: Sequence[str],
    gres: str,
    kind: str,
    count: int,
) -> GpuAllocation:
    if not job.account:
        raise SacctError(job.job_id, "Account", "missing: nobody would be charged")
    resource = f"slurm/{gres}:{kind}" if kind else f"slurm/{gres}"
    pod_uid = f"{job.cluster or cluster}/{job.record_key}"
    return GpuAllocation(
        allocation_id=hold_id(cluster, pod_uid, resource, start),
        cluster=cluster,
        namespace=job.account,
        pod=job.job_id,
        pod_uid=pod_uid,
        resource=resource,
        quantity=count,
        device_fraction=None if (unknown := _share_unknown(gres, kind, cut)) else _fraction(kind),
        share_unknown=unknown,
        accelerator=accelerators.get(kind or gres) or MIG_TYPE.sub("", kind) or kind or gres,
        node=job.nodes if len(job.nodes) <= MAX_NODES else f"{job.nodes[:MAX_NODES]}...",
        started_at=start,
        ended_at=job.end,
        observed_until=None if job.end else max(now, start),
        end_reason=_end_reason(job),
        scheduler="slurm",
        queue=job.partition or None,
        workload=Workload("SlurmJob", job.name or job.job_id),
        labels={"user": job.user} if job.user else None,
        site=site,
    )


def _end_reason(job: SlurmJob) -> str | None:
    if job.end is None:
        return None
    return next((END_REASONS[state] for state in job.states if state in END_REASONS), "unknown")


def _share_unknown(gres: str, kind: str, cut: Sequence[str]) -> str | None:
    """Return why a unit's share of a device is unknown; None if it is known."""
    if gres in PIECES:
        return f"gres/{gres} is a piece of a GPU, and sacct does not say how many make one"
    if cut and not kind:
        nodes = f"{', '.join(cut[:3])}{', ...' if len(cut) > 3 else ''}"
        return f"gres/{gres} has no type, and MIG cuts cards of {nodes}: name every type in AccountingStorageTRES"
    profile = MIG_TYPE.search(kind)
    if PARTITIONED.search(kind) and (not profile or mig_share(f"mig-{profile.group(1)}", _product(kind)) is None):
        return f"the type {kind[:100]!r} names a slice that nobody knows"
    return None


def _product(kind: str) -> str:
    return MIG_TYPE.sub("", kind).replace("_", "-")


def _fraction(kind: str) -> Decimal:
    profile = MIG_TYPE.search(kind)
    share = mig_share(f"mig-{profile.group(1)}", _product(kind)) if profile else None
    return device_fraction(share) if share else Decimal(1)
