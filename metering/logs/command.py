"""Command `python -m metering tokens`: reports token usage from a gateway's log, or writes a usage file."""

import argparse
import csv
import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

import msgspec

from metering.command_line import SOMEBODY_DECIDES, add_platform_options, bad_input, log_to_stderr, stop_on_signal
from metering.delivery import DeliveryThread
from metering.logs.checkpoints import Checkpoints
from metering.logs.following import Follower
from metering.logs.formats import FORMATS, Translate, translator
from metering.logs.mapping import Incomplete, LogRecord
from metering.logs.reading import FileReader, Sink, SpoolSink
from metering.numbering import Numbering
from metering.record_checks import RecordError
from metering.records import DETAILS, GATEWAY_ESTIMATE, PAID_BY_CALL, TokenUsage
from metering.spool import Spool, SpoolFullError, locked, open_state

COLUMNS: Final = (
    "source", "id", "time", "consumer", "model", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
    "output_tokens", "reasoning_output_tokens",
)  # fmt: skip
OPTIONAL: Final = (*DETAILS, "tags")
"""Columns that a usage file has only if one of its records states them."""
TABLE_NAMES: Final = {"one-api": "logs", "new-api": "logs", "litellm-spend": "LiteLLM_SpendLogs"}
ROTATED_BEFORE_S: Final = 60.0
"""Time before the first start within which a rotated log is still read: clocks and time stamps differ."""
log = logging.getLogger("metering.tokens")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+",
        help="log files with the rotated ones beside them, directories, an SQLite file, or - for standard input",
    )  # fmt: skip
    parser.add_argument("--format", required=True, choices=FORMATS, help="whose log it is")
    parser.add_argument("--source", help="name of this gateway in the ledger (default: the format)")
    parser.add_argument("--agent", default="log reader", help="name of this reader among those of its source")
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="YAML: field -> path, on top of the format's own")
    parser.add_argument("--consumer", default="", metavar="PATH", help="which field names who is to pay")
    parser.add_argument(
        "--tags", default="", metavar="LIST",
        help="tags to hand on: KEY=PATH,... (litellm-spend: KEY=request_tags, KEY=metadata.NAME); no other is kept",
    )  # fmt: skip
    parser.add_argument("--pattern", default="*", help="which files of a directory (default: all)")
    parser.add_argument("--follow", action="store_true", help="go on until SIGTERM, through rotations")
    parser.add_argument("--state", type=Path, metavar="DIR", help="checkpoints and what is not delivered; one per reader")
    add_platform_options(parser)
    parser.add_argument("--out", metavar="FILE", help="a usage file (CSV, - for standard output) instead of the platform")
    parser.add_argument("--spool-mb", type=int, default=1024, metavar="N", help="most to keep undelivered (default: 1024)")
    parser.add_argument("--poll-seconds", type=float, default=0.5, metavar="S", help="how often to look (default: 0.5)")
    parser.add_argument(
        "--deliver-seconds", type=float, default=600, metavar="S", help="without --follow: how long to try (default: 600)"
    )


def run(options: argparse.Namespace) -> int:
    """Read, report, and print the counts; return 2 after one line on stderr if the options are wrong."""
    log_to_stderr()
    try:
        _check(options)
        translate = translator(
            options.format, source=options.source or options.format, mapping=_mapping(options.mapping),
            consumer=options.consumer, tags=options.tags,
        )  # fmt: skip
        return _to_file(options, translate) if options.out else _to_platform(options, translate)
    except (RecordError, OSError, sqlite3.Error) as error:
        return bad_input(error)


class CsvSink:
    """Sink that writes records as rows of a usage file, and incomplete ones to stderr: a file has no place for them.

    Requests that were paid by the call are counted at the end. Rows wait in a temporary file until all are known, since the
    usage file has only the columns that a record states.
    """

    def __init__(self, rows: IO[str]) -> None:
        self._rows = rows
        self._writer = csv.DictWriter(rows, (*COLUMNS, *OPTIONAL), extrasaction="ignore", lineterminator="\n")
        self._stated: set[str] = set()

    def put(self, records: list[LogRecord]) -> None:
        """Add the records as rows."""
        for item in records:
            if isinstance(item, TokenUsage):
                tags = msgspec.json.encode(item.tags).decode() if item.tags else None
                row = {**msgspec.to_builtins(item), "tags": tags}
                self._stated |= {name for name in OPTIONAL if row[name] is not None}
                self._writer.writerow(row)
            elif not item.is_paid_by_call:
                log.error("%s: %s", item.fields["id"], item.reason)

    def write(self, out: IO[str]) -> None:
        """Write the usage file."""
        self._rows.seek(0)
        columns = [*COLUMNS, *(name for name in OPTIONAL if name in self._stated)]
        writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(csv.DictReader(self._rows, (*COLUMNS, *OPTIONAL)))


def _check(options: argparse.Namespace) -> None:
    if options.out and (options.follow or options.state or options.endpoint):
        raise RecordError("--out writes a file and ends: it goes without --follow, --state and --endpoint")
    if not options.out and not (options.state and options.endpoint and options.token_file):
        raise RecordError("give a destination: --out FILE, or --state DIR with --endpoint and --token-file")
    if "-" in options.files and len(options.files) > 1:
        raise RecordError("- must be alone: standard input is read until it ends")
    for name in options.files:
        if name != "-" and not options.follow and not Path(name).exists():
            raise RecordError(f"{name}: no such file or directory")


def _mapping(path: Path | None) -> Mapping[str, Any] | None:
    if path is None:
        return None
    import yaml  # only a mapping file needs it

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise RecordError(f"{path}: must be an object of field: path")
    return content


def _to_file(options: argparse.Namespace, translate: Translate) -> int:
    connection = sqlite3.connect(":memory:")
    checkpoints = Checkpoints(connection, None)
    with (
        nullcontext(sys.stdout) if options.out == "-" else Path(options.out).open("w", encoding="utf-8", newline="") as out,
        TemporaryFile("w+", encoding="utf-8", newline="") as rows,
    ):
        sink = CsvSink(rows)
        follower = _follower(options, _without_guesses(translate), connection, checkpoints, sink)
        try:
            follower.read_all()
        finally:
            sink.write(out)
    return _report(checkpoints.counts(), follower, once=True)


def _without_guesses(translate: Translate) -> Translate:
    """Return the translation without estimates: a usage file has no column to mark them, and would make them counts."""

    def counted(fields: Mapping[str, Any], derived_id: str) -> list[LogRecord]:
        return [
            Incomplete(msgspec.to_builtins(record), f"{GATEWAY_ESTIMATE}: a usage file does not say so; report it instead")
            if isinstance(record, TokenUsage) and (record.attributes or {}).get("usage_source") == GATEWAY_ESTIMATE
            else record
            for record in translate(fields, derived_id)
        ]

    return counted


def _to_platform(options: argparse.Namespace, translate: Translate) -> int:
    token_file: Path = options.token_file
    token_file.read_text(encoding="utf-8")  # a missing one fails now, not at the first delivery
    state, source = options.state / "tokens.sqlite", options.source or options.format
    with locked(options.state / "lock") as alone:
        if not alone:  # two readers on one state would each take what the other has reported for its own
            raise RecordError(f"{options.state}: another reader works with this state directory")
        with closing(open_state(state)) as connection:
            checkpoints = Checkpoints(connection, options.state / "rejected.jsonl")
            since = checkpoints.settle(format=options.format, source=source) - ROTATED_BEFORE_S
            spool = Spool(connection, max_bytes=options.spool_mb << 20)
            sink = SpoolSink(spool, Numbering(connection))
            follower = _follower(options, translate, connection, checkpoints, sink, since=since)
            with DeliveryThread(state, endpoint=options.endpoint, token_file=token_file) as delivery:
                _read(options, follower, heartbeat(connection, spool, options.agent, source))
                delivered = delivery.finish(5 if options.follow else options.deliver_seconds)
            status = _report(checkpoints.counts(), follower, once=not options.follow)
    if not delivered and not options.follow:
        sys.stderr.write(f"not everything is delivered: {delivery.last_error or 'no answer'}; run again to go on\n")
        return SOMEBODY_DECIDES
    return status


def _follower(
    options: argparse.Namespace, translate: Translate, connection: sqlite3.Connection, checkpoints: Checkpoints,
    sink: Sink, *, since: float | None = None,
) -> Follower:  # fmt: skip
    reader = FileReader(connection, checkpoints, translate, sink, table=TABLE_NAMES.get(options.format, ""))
    since = time.time() if since is None else since
    return Follower(options.files, reader, pattern=options.pattern, since=since, once=not options.follow)


def heartbeat(
    connection: sqlite3.Connection, spool: Spool, agent: str, source: str
) -> Callable[[datetime], None]:
    """Return a function that reports once a minute that the log was read to its end: silence is then no gap."""
    due = 0.0

    def beat(watched_until: datetime) -> None:
        """Report if it is due; after a full spool the next minute tries again."""
        nonlocal due
        if time.monotonic() < due:
            return
        due = time.monotonic() + 60.0
        try:
            with connection:
                spool.put_watermark(agent, source, watched_until)
        except SpoolFullError as error:
            log.error("%s", error)

    return beat


def _read(options: argparse.Namespace, follower: Follower, at_end: Callable[[datetime], None]) -> None:
    """Read once, or until SIGTERM."""
    if options.follow:
        follower.follow(stop_on_signal(), poll_s=options.poll_seconds, at_end=at_end)
    else:
        follower.read_all()


def _report(counts: Mapping[str, int], follower: Follower, *, once: bool) -> int:
    """Print what was read; return 3 if a person must look, as when a run that ends found no usage at all."""
    shown = {"records": "records", "without_usage": "lines without usage", "incomplete": "requests without counts",
             "paid_by_call": "requests paid by the call", "rejected": "bad lines",
             "rejected_not_kept": "bad lines that were not kept"}  # fmt: skip
    sys.stderr.write(", ".join(f"{counts.get(name, 0)} {words}" for name, words in shown.items()
                               if counts.get(name) or name == "records") + "\n")  # fmt: skip
    if counts.get("paid_by_call"):
        sys.stderr.write(f"{PAID_BY_CALL}: these have no tokens, and nothing bills them; charge them elsewhere\n")
    for problem in follower.problems():
        sys.stderr.write(f"{problem}\n")
    bad = sum(counts.get(name, 0) for name in ("rejected", "incomplete", "paid_by_call"))
    empty = once and not bad and not counts.get("records")
    if empty:
        sys.stderr.write("no usage was found: see which log it is (--format), its --pattern and --mapping\n")
    return SOMEBODY_DECIDES if bad or empty or follower.problems() else 0
