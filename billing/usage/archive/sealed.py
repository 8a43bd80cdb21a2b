"""Sealed months as read back: their audit entries, verification of their files, and sums computed by DuckDB.

The audit log has each seal's address and the SHA-256 of its manifest; the manifest has the SHA-256 of every file.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from billing.tenancy.models import AuditEntry
from billing.usage.archive.places import Archive, ArchiveError, archive_at, digest_and_size
from billing.usage.archive.rows import KINDS
from billing.usage.contents import TOKEN_COUNTS
from billing.usage.token_file import engine_connected, files_text
from metering.intervals import Interval, from_us, to_us

SCHEMA: Final = "suanpan/usage-seal/1"
ACTION: Final = "usage_seal"
MANIFEST: Final = "manifest.json"
DAY_US: Final = 86_400_000_000

FRACTIONS: Final = 10**12
"""Denominator of device fractions."""
Sums = dict[tuple[str, str], tuple[int, ...]]
"""Sums by source (or cluster) and UTC day: requests and counts of tokens, or device-microseconds times FRACTIONS."""


@dataclass(frozen=True)
class Seal:
    """Sealed month as in the audit log: has rows of epochs below `before`; its close billed epochs below `close_seq`."""

    month: str
    address: str
    folder: str
    close_seq: int
    before: int
    manifest_sha256: str
    sealed_at: datetime

    @cached_property
    def archive(self) -> Archive:
        return archive_at(self.address)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Return the verified manifest.  Raises ArchiveError if it is missing or differs from the noted one."""
        text = b"".join(self.archive.chunks(f"{self.folder}/{MANIFEST}"))
        if (found := sha256(text).hexdigest()) != self.manifest_sha256:
            raise ArchiveError(f"{self.folder}/{MANIFEST}: has SHA-256 {found}, the audit log says {self.manifest_sha256}")
        manifest: dict[str, Any] = json.loads(text)
        return manifest

    @property
    def bytes(self) -> int:
        return sum(int(file["bytes"]) for file in self.manifest["files"])


def seals(month: str | None = None) -> list[Seal]:
    """Return all seals, or those of a month, the oldest first."""
    entries = AuditEntry.objects.filter(action=ACTION).order_by("id")
    return [
        Seal(
            entry.subject, entry.detail["archive"], entry.detail["folder"], entry.detail["close_seq"],
            entry.detail["before"], entry.detail["manifest_sha256"], entry.at,
        )
        for entry in (entries if month is None else entries.filter(subject=month))
    ]  # fmt: skip


def seal_faults(seal: Seal, advance: Callable[[int], None]) -> Iterator[str]:
    """Yield files of a sealed month that are missing or have changed; `advance` is called with the bytes read."""
    try:
        files = seal.manifest["files"]
    except ArchiveError as error:
        yield str(error)
        return
    for file in files:
        name = f"{seal.folder}/{file['name']}"
        try:
            digest, size = digest_and_size(_counted(seal.archive.chunks(name), advance))
        except ArchiveError as error:
            yield str(error)
            continue
        if (digest, size) != (file["sha256"], file["bytes"]):
            yield f"{name}: has SHA-256 {digest} and {size} bytes, its manifest says {file['sha256']} and {file['bytes']}"


def _counted(chunks: Iterator[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for chunk in chunks:
        advance(len(chunk))
        yield chunk


def sealed_files(seal: Seal, kind: str, scratch: Path, advance: Callable[[int], None]) -> list[Path]:
    """Return local paths of a kind's files, each verified against the manifest.  Raises ArchiveError."""
    found = []
    for file in seal.manifest["files"]:
        if file["kind"] == kind:
            path = seal.archive.local(f"{seal.folder}/{file['name']}", scratch)
            file_require(path, file["sha256"])
            advance(file["bytes"])
            found.append(path)
    return found


def file_require(path: Path, expected: str) -> None:
    """Raise ArchiveError if a file is missing or has another SHA-256."""
    try:
        with path.open("rb") as file:
            found, _ = digest_and_size(iter(lambda: file.read(1 << 20), b""))
    except OSError as error:
        raise ArchiveError(f"{path}: {error.strerror or error}") from error
    if found != expected:
        raise ArchiveError(f"{path}: has SHA-256 {found}, its manifest says {expected}")


@dataclass(frozen=True)
class FileFacts:
    """Facts of a sealed file: rows, sums by source and day, and `damaged` rows whose columns do not give their `content`."""

    rows: int
    damaged: int
    sums: Sums


def file_facts(kind: str, path: Path, window: Interval) -> FileFacts:
    """Read a file with DuckDB, an engine independent of the one that wrote it."""
    file = files_text([path])
    with engine_connected() as engine:
        asked = f"SELECT count(*), count(*) FILTER (WHERE {KINDS[kind].content_again()} <> lower(hex(content))) FROM {file}"
        ((rows, damaged),) = engine.execute(asked).fetchall()
        statement = SUMS.get(kind)
        bounds = {"start": to_us(window.start), "end": to_us(window.end)}
        found = engine.execute(statement.format(file=file, **bounds)).fetchall() if statement else []
    return FileFacts(rows, damaged, {(row[0], day_text(row[1])): tuple(map(int, row[2:])) for row in found})


SUMS: Final[Mapping[str, str]] = {
    "tokens": f"""SELECT source, epoch_us(time) // {DAY_US} AS day, count(*), {', '.join(f'sum({n})' for n in TOKEN_COUNTS)}
        FROM {{file}} WHERE epoch_us(time) >= {{start}} AND epoch_us(time) < {{end}} GROUP BY 1, 2 ORDER BY 1, 2""",
    "allocations": f"""SELECT cluster, day,
            sum(CAST(device_fraction * {FRACTIONS} AS HUGEINT) * quantity * greatest(0, least(epoch_us(until), {{end}},
                (day + 1) * {DAY_US}) - greatest(epoch_us(start), {{start}}, day * {DAY_US})))
        FROM {{file}}, (SELECT unnest(range({{start}} // {DAY_US}, ({{end}} - 1) // {DAY_US} + 1)) AS day)
        WHERE epoch_us(start) < (day + 1) * {DAY_US} AND epoch_us(until) > day * {DAY_US} GROUP BY 1, 2 ORDER BY 1, 2""",
}


def day_text(number: int) -> str:
    """Return the date that is a number of days after 1970-01-01.

    >>> day_text(20742)
    '2026-10-16'
    """
    return from_us(number * DAY_US).date().isoformat()


def sums_add(sums: Sums, name: tuple[str, str], values: tuple[int, ...]) -> None:
    found = sums.get(name)
    sums[name] = values if found is None else tuple(a + b for a, b in zip(found, values, strict=True))
