"""Command `python -m metering slurm`: turns a report of sacct into records for the platform, JSON lines or a usage file."""

import argparse
import csv
import io
import subprocess
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from metering.command_line import (
    SOMEBODY_DECIDES,
    add_platform_options,
    bad_input,
    instant,
    json_lines,
    names_by,
    write_text,
)
from metering.records import GpuAllocation
from metering.slurm.accounting import read_nodes, read_sacct, report_window
from metering.slurm.allocations import DEVICES, allocations_of, uncounted_gres, untracked, untyped
from metering.slurm.jobs import RejectedEntry, Report, ReportError
from metering.slurm.nodes import cut_nodes
from metering.slurm.report import read_report

COLUMNS: Final = (
    "cluster", "namespace", "pod", "pod_uid", "resource", "quantity", "device_fraction", "accelerator", "node", "queue",
    "workload", "started_at", "ended_at", "end_reason", "scheduler", "priority_class", "site", "pool", "labels",
)  # fmt: skip
OPTIONAL: Final = COLUMNS[COLUMNS.index("ended_at") + 1 :]
REJECTS: Final = ".rejects.jsonl"
MOST_NAMED: Final = 20
MOST_DAYS: Final = 366


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="report of sacct, or - for standard input")
    parser.add_argument(
        "--days", type=_days, metavar="N", help="instead of FILE: ask the sacct of this machine for so many days"
    )
    parser.add_argument("--cluster", required=True, help="name of the cluster in the ledger")
    parser.add_argument(
        "--accelerators", type=names_by("TYPE"), default={}, metavar="TYPE=NAME,...",
        help="product of each GRES type; gpu=NAME for devices without a type",
    )  # fmt: skip
    parser.add_argument(
        "--gres", type=_names, default=list(DEVICES), metavar="NAME,...",
        help=f"generic resources that are devices (default: {','.join(DEVICES)})",
    )
    parser.add_argument(
        "--nodes", type=Path, metavar="FILE",
        help="what `scontrol show nodes` printed, which --days asks itself: where MIG cuts cards a device needs a type",
    )  # fmt: skip
    parser.add_argument("--qos", action="store_true", help="say the QOS of each job as its tag qos")
    parser.add_argument("--site", help="name of the site, where the platform knows several")
    parser.add_argument("--delimiter", type=_delimiter, default="|", help="the one given to sacct (default: |)")
    parser.add_argument("--zone", type=_zone, help="time zone of the times in --parsable2 output without an offset")
    parser.add_argument("--now", type=instant, help="how far running jobs were seen (RFC 3339; default: now)")
    parser.add_argument("--format", choices=("json", "csv"), help="default: by the name of --out, else json")
    parser.add_argument(
        "--out", type=Path, metavar="FILE",
        help="instead of standard output; FILE.csv is read by `manage.py import_usage gpu`",
    )  # fmt: skip
    parser.add_argument(
        "--omit", type=_optional, default=(), metavar="COLUMN,...",
        help=f"leave out of the CSV, to repeat an import that did not have them: {', '.join(OPTIONAL)}",
    )  # fmt: skip
    add_platform_options(parser)
    parser.add_argument("--state", type=Path, default=Path("suanpan-slurm.db"), metavar="FILE", help="durable spool")
    parser.add_argument(
        "--rejects", type=Path, metavar="FILE",
        help=f"where lines are kept that cannot be read (default: beside --out, {REJECTS})",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Read, convert and send or write; return 2 and one line on stderr for a wrong report, 3 for rejected entries."""
    if wrong := _conflict(options):
        return bad_input(f"python -m metering slurm: {wrong}, see --help")
    options.file = options.file or "sacct"
    try:
        content, window = read_sacct(options.days) if options.days else (_read(options.file), None)
        report = read_report(content, options.zone, options.delimiter)
        nodes = _nodes(report, options)
    except ReportError as error:
        return bad_input(f"{options.file}: {error}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return bad_input(error)
    records, without = allocations_of(
        report.jobs,
        cluster=options.cluster,
        now=options.now or (window.end if window else datetime.now(UTC)),
        accelerators=options.accelerators,
        gres=options.gres,
        site=options.site,
        cut_nodes=cut_nodes(nodes or ""),
        qos=options.qos,
    )
    uncounted = uncounted_gres(report.jobs, options.gres)
    notes = [f"gres/{name} is not counted; add it with --gres if it is a device" for name in uncounted]
    notes += [UNTYPED] if nodes is None else []
    for note in (*report.notes, *notes):
        sys.stderr.write(f"{options.file}: {note}\n")
    rejected = [*report.rejected, *without, *(untracked(report.jobs) if window else ())]
    as_csv = (options.format or ("csv" if options.out and options.out.suffix == ".csv" else "json")) == "csv"
    try:
        if window and options.endpoint:
            return max(report_window(options, records, rejected, uncounted, window), _keep(rejected, options))
        write_text(csv_of(records, options.omit) if as_csv else json_lines(records), options.out)
        if not records and not rejected:
            sys.stderr.write(f"{options.file}: has no job with devices, there is nothing to import\n")
            return SOMEBODY_DECIDES
        return max(_keep(rejected, options), SOMEBODY_DECIDES if uncounted else 0)
    except OSError as error:
        return bad_input(error)


UNTYPED: Final = (
    "devices without a type are taken for whole cards: where MIG cuts cards, name every type in AccountingStorageTRES, "
    "or give --nodes what `scontrol show nodes` prints"
)


def _nodes(report: Report, options: argparse.Namespace) -> str | None:
    """Return scontrol's text on the nodes, "" if it is not needed, None if it is needed but not known.

    Raises ReportError, OSError.
    """
    if options.nodes:
        return str(options.nodes.read_text())
    if not any(untyped(job, options.gres) for job in report.jobs):
        return ""
    return read_nodes() if options.days else None


def _conflict(options: argparse.Namespace) -> str:
    """Return the message about options that do not go together, "" if there is none."""
    if bool(options.file) == bool(options.days):
        return "give FILE or --days"
    if bool(options.endpoint) != bool(options.token_file):
        return "--endpoint needs --token-file"
    if options.endpoint and (options.file or options.out):
        return "--endpoint goes with --days, and without --out"  # a file does not say of which time it is complete
    return ""


def _keep(rejected: Sequence[RejectedEntry], options: argparse.Namespace) -> int:
    """Write rejected entries to a file of their own, or to stderr; delete the file of an earlier run if there are none."""
    path = options.rejects or (options.out and options.out.with_name(options.out.name + REJECTS))
    lines = [
        {"place": item.source.place, "error": " ".join(str(item.error).split()), "text": item.source.text}
        for item in rejected
    ]
    for line in lines[: MOST_NAMED if path else None]:
        text = "" if path else f": {line['text']}"
        sys.stderr.write(f"{options.file}: {line['place']}: {line['error']}{text}\n")
    if path and lines:
        sys.stderr.write(f"{options.file}: entries not taken, kept in {path}: {len(lines)}\n")
        write_text(json_lines(lines), path)
    elif path:
        path.unlink(missing_ok=True)
    return SOMEBODY_DECIDES if lines else 0


def csv_of(records: Sequence[GpuAllocation], omit: Collection[str] = ()) -> str:
    """Return the usage file of the contract; an empty ended_at is a job that still runs, an unknown share is `unknown`.

    `labels` and `tags` are JSON objects; `tags` is a column only if a job has some.
    """
    text = io.StringIO()
    columns = [name for name in COLUMNS if name not in omit] + ["tags"] * any(record.tags for record in records)
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for record in records:
        row = msgspec.to_builtins(record)
        row["device_fraction"] = row["device_fraction"] or "unknown"
        workload = f"{record.workload.kind}/{record.workload.name}" if record.workload else ""
        objects = {
            name: msgspec.json.encode(given, order="deterministic").decode() if given else ""
            for name, given in (("labels", record.labels), ("tags", record.tags))
        }
        writer.writerow({**row, "workload": workload, **objects})
    return text.getvalue()


def _read(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _days(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to {MOST_DAYS}")
    return int(text)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("must name at least one")
    return names


def _optional(text: str) -> list[str]:
    names = _names(text)
    if unknown := [name for name in names if name not in OPTIONAL]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(OPTIONAL)}")
    return names


def _delimiter(text: str) -> str:
    if not text or "\n" in text:
        raise argparse.ArgumentTypeError("must be at least one character")
    return text


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a known time zone") from error
