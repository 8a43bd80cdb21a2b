"""`python -m metering slurm`: a report of sacct -> allocation records, as JSON lines or as a usage file."""

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from metering.records import GpuAllocation
from metering.slurm.allocations import allocations_of, uncounted_gres
from metering.slurm.jobs import SacctError, SlurmJob
from metering.slurm.sacct_json import read_json
from metering.slurm.sacct_text import read_text

BAD_INPUT: Final = 2
COLUMNS: Final = (
    "cluster", "namespace", "pod", "pod_uid", "resource", "quantity", "device_fraction", "accelerator", "node", "queue",
    "workload", "started_at", "ended_at",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("file", metavar="FILE", help="report of sacct, or - for standard input")
    parser.add_argument("--cluster", required=True, help="name of the cluster in the ledger")
    parser.add_argument(
        "--accelerators", type=_pairs, default={}, metavar="TYPE=NAME,...",
        help="product of each GRES type; gpu=NAME for devices without a type",
    )  # fmt: skip
    parser.add_argument(
        "--gres", type=_names, default=["gpu"], metavar="NAME,...", help="generic resources that are devices (default: gpu)"
    )
    parser.add_argument("--zone", type=_zone, help="time zone of the times in --parsable2 output without an offset")
    parser.add_argument("--now", type=_instant, help="how far running jobs were seen (RFC 3339; default: now)")
    parser.add_argument("--format", choices=("json", "csv"), help="default: by the name of --out, else json")
    parser.add_argument(
        "--out", type=Path, metavar="FILE",
        help="instead of standard output; FILE.csv is read by `manage.py import_usage gpu`",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Read, convert and write; one line on stderr and 2 where the report is wrong."""
    try:
        jobs = read_jobs(_read(options.file), options.zone)
        records = allocations_of(
            jobs,
            cluster=options.cluster,
            now=options.now or datetime.now(UTC),
            accelerators=options.accelerators,
            gres=options.gres,
        )
    except (SacctError, OSError) as error:
        told = error.strerror or error if isinstance(error, OSError) else error
        sys.stderr.write(f"{options.file}: {' '.join(str(told).split())}\n")
        return BAD_INPUT
    for name in uncounted_gres(jobs, options.gres):
        sys.stderr.write(f"{options.file}: gres/{name} is not counted; add it with --gres if it is a device\n")
    as_csv = (options.format or ("csv" if options.out and options.out.suffix == ".csv" else "json")) == "csv"
    return _write(csv_of(records) if as_csv else json_lines_of(records), options.out)


def read_jobs(content: bytes, zone: ZoneInfo | None = None) -> list[SlurmJob]:
    """Jobs of either form.  Raises SacctError."""
    return read_json(content) if content.lstrip()[:1] in (b"{", b"[") else read_text(content, zone)


def json_lines_of(records: Sequence[GpuAllocation]) -> str:
    """One record per line, as `POST usage/gpu-allocations` takes them."""
    return "".join(f"{msgspec.json.encode(record).decode()}\n" for record in records)


def csv_of(records: Sequence[GpuAllocation]) -> str:
    """The usage file of the contract; an empty ended_at is a job that still runs, a share that nobody knows is `unknown`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for record in records:
        row = msgspec.to_builtins(record)
        row["device_fraction"] = row["device_fraction"] or "unknown"
        workload = f"{record.workload.kind}/{record.workload.name}" if record.workload else ""
        writer.writerow({**{name: row[name] for name in COLUMNS}, "workload": workload})
    return text.getvalue()


def _read(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _write(text: str, path: Path | None) -> int:
    if path is None:
        sys.stdout.write(text)
        return 0
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"{path}: {error.strerror or error}\n")
        return BAD_INPUT
    return 0


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("must name at least one")
    return names


def _pairs(text: str) -> dict[str, str]:
    pairs = [item.partition("=") for item in text.split(",") if item.strip()]
    for kind, _, name in pairs:
        if not kind.strip() or not name.strip():
            raise argparse.ArgumentTypeError(f"{text!r} must be written TYPE=NAME,TYPE=NAME")
    return {kind.strip(): name.strip() for kind, _, name in pairs}


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a known time zone") from error


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not an RFC 3339 instant") from error
    if instant.utcoffset() is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no offset")
    return instant.astimezone(UTC)
