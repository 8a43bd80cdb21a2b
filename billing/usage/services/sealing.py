"""Sealing of a closed month: its usage as files in an archive, read back, proven equal to the ledger, and audited.

A seal has the rows known before the last close, which nothing can add to any more. Usage that arrives later is in the seal
made after a later close. Nothing is deleted.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from billing.runtime.canonical_json import canonical_json
from billing.tenancy.audit import audit_record
from billing.tenancy.models import AuditEntry
from billing.usage.archive.places import Archive, archive_at, digest_and_size
from billing.usage.archive.rows import KINDS, ROWS_A_FILE, Part, parts, rows_in_ledger
from billing.usage.archive.sealed import (
    FRACTIONS,
    MANIFEST,
    SCHEMA,
    FileFacts,
    Seal,
    Sums,
    file_facts,
    file_require,
    seals,
    sums_add,
)
from billing.usage.digests import digest_of_close, usage_digest
from billing.usage.epochs import one_snapshot
from billing.usage.queries import gpu_time
from billing.usage.scope import EpochFilter
from billing.usage.selectors import last_close_seq
from billing.usage.store.archived import archived_months
from billing.usage.store.sums import COUNTS, token_sums
from metering.intervals import Interval
from pricing.money import EXACT


class SealError(Exception):
    """Error of a month that cannot be sealed: ledger, close and files differ."""


@dataclass(frozen=True)
class ClosedMonth:
    """Month closed as number `close_seq`."""

    month: str
    window: Interval
    zone: str
    close_seq: int


@dataclass
class _Stored:
    """Files, rows and sums stored in the archive so far."""

    files: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    sums: dict[str, Sums] = field(default_factory=lambda: {kind: {} for kind in KINDS})

    def add(self, part: Part, name: str, digest: str, size: int, facts: FileFacts) -> None:
        self.files.append({"name": name, "kind": part.kind, "rows": facts.rows, "bytes": size, "sha256": digest})
        self.rows[part.kind] += facts.rows
        for of, values in facts.sums.items():
            sums_add(self.sums[part.kind], of, values)


def usage_seal(
    *, closed: ClosedMonth, address: str, actor: str, now: datetime, advance: Callable[[int], None] = lambda _: None,
    rows_a_file: int = ROWS_A_FILE,
) -> tuple[Seal, bool]:  # fmt: skip
    """Return the seal of a closed month in an archive, and True if it was made now; a complete earlier seal is reused.

    advance: called with the number of rows written.  Raises ArchiveError, SealError.
    """
    if any(item.month == closed.month for item in archived_months()):
        raise SealError(f"{closed.month}: its records are in an archive; `manage.py usage_restore {closed.month}` first")
    archive, before = archive_at(address), last_close_seq()
    for seal in reversed(seals(closed.month)):
        if (seal.address, seal.before, seal.close_seq) == (archive.address, before, closed.close_seq):
            return seal, False
    folder = f"{closed.month}/through-{before:04d}-{now.astimezone(UTC):%Y%m%dT%H%M%S%fZ}"
    with one_snapshot(), tempfile.TemporaryDirectory() as scratch:
        # one snapshot: digest, sums and rows are of the same instant
        digest = _as_billed(closed)
        expected = ledger_sums(closed.window, before)
        stored = _Stored()
        for kind in KINDS:
            for part in parts(kind, closed.window, before, Path(scratch), advance, rows_a_file):
                _store(archive, folder, part, closed.window, stored, Path(scratch))
        rows = {kind: rows_in_ledger(kind, closed.window, before) for kind in KINDS}
    _require_equal(closed, stored, expected, rows)
    manifest = canonical_json(_manifest(closed, before, now, stored, digest))
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / MANIFEST
        file.write_text(manifest, encoding="utf-8")
        archive.put(f"{folder}/{MANIFEST}", file)
    sha256, _ = digest_and_size(archive.chunks(f"{folder}/{MANIFEST}"))
    noted = {
        "archive": archive.address, "folder": folder, "close_seq": closed.close_seq, "before": before,
        "manifest_sha256": sha256, "rows": stored.rows, "files": len(stored.files),
        "bytes": sum(file["bytes"] for file in stored.files),
    }  # fmt: skip
    audit_record(actor=actor, action="usage_seal", subject=closed.month, detail=noted)
    return seals(closed.month)[-1], True


def _store(archive: Archive, folder: str, part: Part, window: Interval, stored: _Stored, scratch: Path) -> None:
    """Upload a file to the archive, read it back, and verify its hash, rows and content."""
    with part.path.open("rb") as file:
        digest, size = digest_and_size(iter(partial(file.read, 1 << 20), b""))
    name = f"{folder}/{part.path.name}"
    archive.put(name, part.path)
    # removed before the read: scratch never holds two copies of a file
    part.path.unlink()
    back = archive.local(name, scratch)
    file_require(back, digest)
    facts = file_facts(part.kind, back, window)
    if facts.damaged or facts.rows != part.rows:
        raise SealError(f"{name}: {part.rows} rows were written, {facts.rows} came back, {facts.damaged} of them changed")
    stored.add(part, part.path.name, digest, size, facts)
    if back.is_relative_to(scratch):
        back.unlink()


def _as_billed(closed: ClosedMonth) -> dict[str, str]:
    """Return the digest of the usage that the close billed.  Raises SealError if the ledger gives another digest now."""
    noted, now = digest_of_close(closed.month, closed.close_seq), usage_digest(closed.window, closed.close_seq)
    if changed := [kind for kind in noted if noted[kind] != now.get(kind)]:
        raise SealError(
            f"{closed.month}: {', '.join(changed)} are not what close {closed.close_seq} billed;"
            " see `manage.py period_verify`"
        )
    return now


def ledger_sums(window: Interval, before: int) -> dict[str, Sums]:
    """Return tokens by source and UTC day, from the roll-ups where possible; device-microseconds by cluster and UTC day."""
    start = window.start.replace(hour=0, minute=0, second=0, microsecond=0)
    days = window.cut(start + timedelta(days=number) for number in range((window.end - start).days + 1))
    names, epochs = [day.start.date().isoformat() for day in days], EpochFilter(before=before)
    found: dict[str, Sums] = {"tokens": {}, "allocations": {}}
    for item in token_sums(days, epochs):
        sums_add(found["tokens"], (item.source, names[item.piece]), tuple(getattr(item, name) for name in COUNTS))
    for held in gpu_time(days, epochs):
        devices = int(EXACT.multiply(held.device_us, FRACTIONS))
        sums_add(found["allocations"], (held.cluster, names[held.piece]), (devices,))
    return found


def sums_of_manifest(manifest: dict[str, Any]) -> Sums:
    """Return tokens by source and UTC day from a manifest."""
    return {(row["source"], row["day"]): tuple(int(row[name]) for name in COUNTS) for row in manifest["tokens"]}


def _shown(kind: str, values: tuple[int, ...] | None) -> str:
    if values is None:
        return "nothing"
    return _devices(values[0]) if kind == "allocations" else " ".join(map(str, values))


def _devices(parts_of_microseconds: int) -> str:
    return format(EXACT.divide(Decimal(parts_of_microseconds), Decimal(FRACTIONS)).normalize(EXACT), "f")


def _require_equal(closed: ClosedMonth, stored: _Stored, expected: dict[str, Sums], rows: dict[str, int]) -> None:
    differing = [f"{kind}: {rows[kind]} rows in the ledger, {stored.rows[kind]} in the archive"
                 for kind in KINDS if rows[kind] != stored.rows[kind]]  # fmt: skip
    for kind, sums in expected.items():
        kept = stored.sums[kind]
        for name in sorted(name for name in sums.keys() | kept.keys() if sums.get(name) != kept.get(name)):
            here, there = (_shown(kind, found.get(name)) for found in (sums, kept))
            differing.append(f"{kind} of {' on '.join(name)}: {here} in the ledger, {there} in the archive")
    if differing:
        raise SealError(f"{closed.month} is not sealed: {'; '.join(differing[:5])}")


def _manifest(
    closed: ClosedMonth, before: int, now: datetime, stored: _Stored, digest: dict[str, str]
) -> dict[str, Any]:
    """Return the manifest of the archive; numbers that may be large are text."""
    cuts = AuditEntry.objects.filter(action="period_cut_off").order_by("id")
    return {
        "schema": SCHEMA, "month": closed.month, "start": closed.window.start.isoformat(),
        "end": closed.window.end.isoformat(), "zone": closed.zone, "close_seq": closed.close_seq, "before": before,
        "sealed_at": now.isoformat(), "files": stored.files, "rows": stored.rows, "usage_digest": digest,
        "closes": {str(cut.detail.get("close_seq")): {"month": cut.subject, "at": cut.at.isoformat()} for cut in cuts},
        "tokens": [
            {"source": source, "day": day, **{name: str(value) for name, value in zip(COUNTS, values, strict=True)}}
            for (source, day), values in sorted(stored.sums["tokens"].items())
        ],
        "gpu": [
            {"cluster": cluster, "day": day, "device_microseconds": _devices(values[0])}
            for (cluster, day), values in sorted(stored.sums["allocations"].items())
        ],
    }  # fmt: skip
