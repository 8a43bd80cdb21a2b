"""Command `python -m metering engines`: sends token counters of inference servers, or writes a usage file."""

import argparse
import csv
import logging
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
import msgspec

from metering.command_line import SOMEBODY_DECIDES, add_platform_options, bad_input, log_to_stderr, stop_on_signal
from metering.delivery import DeliveryThread
from metering.engines.readings import WANTED, readings, scraped_once
from metering.engines.samples import Sample, SampleError, read_answer, read_text
from metering.record_checks import RecordError
from metering.records import EngineReading
from metering.spool import Spool, SpoolFullError, open_state

ENDPOINT: Final = "usage/engine-counters"
COLUMNS: Final = ("source", "replica", "model", "time", "started_at", "prompt_tokens", "generation_tokens")
QUERY: Final = '{__name__=~"(vllm|sglang):(prompt|generation)_tokens_(total|created)|process_start_time_seconds"}'
log = logging.getLogger("metering.engines")
Reader = Callable[[datetime], list[EngineReading]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", action="append", metavar="[NAME=]URL", help="/metrics of a replica; may be repeated")
    where.add_argument("--prometheus", metavar="URL", help="a Prometheus that scrapes all of them")
    parser.add_argument("--selector", default="", metavar="LABELS", help='with --prometheus, such as job="vllm"')
    parser.add_argument("--replica-label", default="pod", help="names the replica (default: pod, else instance)")
    parser.add_argument("--source", required=True, help="name of these servers in the ledger")
    parser.add_argument("--model", action="append", default=[], metavar="SERVED=NAME", help="name of a model in the ledger")
    parser.add_argument("--every", type=float, default=300, metavar="S", help="seconds between readings (default: 300)")
    parser.add_argument("--once", action="store_true", help="read once and end")
    parser.add_argument("--state", type=Path, metavar="DIR", help="what is not delivered yet; one per reader")
    add_platform_options(parser)
    parser.add_argument("--out", metavar="FILE", help="one reading into a usage file (CSV, - for standard output)")


def run(options: argparse.Namespace) -> int:
    """Read and report; return 2 if the options are wrong, 3 if a server could not be read or reported."""
    log_to_stderr()
    try:
        models = dict(_pair(text, "--model") for text in options.model)
        if not options.out and not (options.state and options.endpoint and options.token_file):
            raise RecordError("give a destination: --out FILE, or --state DIR with --endpoint and --token-file")
        with httpx.Client(timeout=20) as client:
            readers = dict(_readers(options, client, models))
            return _to_file(options.out, readers) if options.out else _to_platform(options, readers)
    except (RecordError, OSError, sqlite3.Error) as error:
        return bad_input(error)


def read_all(readers: Mapping[str, Reader], now: datetime) -> tuple[list[EngineReading], bool]:
    """Return the present readings, and True if every server was read; failures are logged, and read again next time."""
    found: list[EngineReading] = []
    whole = True
    for name, reader in readers.items():
        try:
            found += reader(now)
        except (httpx.HTTPError, SampleError, RecordError) as error:
            log.error("%s: %s", name, error or type(error).__name__)
            whole = False
    return found, whole


def _readers(
    options: argparse.Namespace, client: httpx.Client, models: Mapping[str, str]
) -> Iterator[tuple[str, Reader]]:
    if options.prometheus:
        address = options.prometheus.rstrip("/")
        query = QUERY if not options.selector else f"{QUERY[:-1]},{options.selector}}}"

        def replica_of(labels: Mapping[str, str]) -> str:
            return labels.get(options.replica_label) or labels.get("instance") or ""

        def ask(now: datetime) -> list[EngineReading]:
            answer = client.get(f"{address}/api/v1/query", params={"query": query, "time": now.timestamp()})
            samples = scraped_once(_counted(list(read_answer(answer.content))), replica_of)
            return readings(samples, source=options.source, now=now, models=models, replica_of=replica_of)

        yield address, ask
        return
    for given in options.url:
        name, url = _pair(given, "--url") if "=" in given.partition("://")[0] else (httpx.URL(given).netloc.decode(), given)
        yield name, _metrics_reader(options.source, client, name, url, models)


def _metrics_reader(source: str, client: httpx.Client, name: str, url: str, models: Mapping[str, str]) -> Reader:
    def read(now: datetime) -> list[EngineReading]:
        samples = read_text(client.get(url).raise_for_status().text, WANTED)
        return readings(samples, source=source, replica_of=lambda labels: name, now=now, models=models)

    return read


def _counted(samples: list[Sample]) -> list[Sample]:
    """Return samples without the starts of processes that are no inference servers."""
    counting = {sample.labels.get("instance") for sample in samples if ":" in sample.name}
    return [sample for sample in samples if ":" in sample.name or sample.labels.get("instance") in counting]


def _to_file(out: str, readers: Mapping[str, Reader]) -> int:
    found, whole = read_all(readers, datetime.now(UTC))
    with nullcontext(sys.stdout) if out == "-" else Path(out).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(msgspec.to_builtins(reading) for reading in found)
    return 0 if whole else SOMEBODY_DECIDES


def _to_platform(options: argparse.Namespace, readers: Mapping[str, Reader]) -> int:
    token_file: Path = options.token_file
    token_file.read_text(encoding="utf-8")
    state = options.state / "engines.sqlite"
    with closing(open_state(state)) as connection:
        spool = Spool(connection)
        with DeliveryThread(state, endpoint=options.endpoint, token_file=token_file) as delivery:
            whole = _read_and_spool(options, readers, connection, spool)
            delivered = delivery.finish(60 if options.once else 5)
    if not delivered:
        sys.stderr.write(f"not everything is delivered: {delivery.last_error or 'no answer'}; it is kept\n")
    return 0 if whole and (delivered or not options.once) else SOMEBODY_DECIDES


def _read_and_spool(
    options: argparse.Namespace, readers: Mapping[str, Reader], connection: sqlite3.Connection, spool: Spool
) -> bool:
    stop = threading.Event() if options.once else stop_on_signal()
    while True:
        found, whole = read_all(readers, datetime.now(UTC))
        try:
            with connection:
                if found:
                    spool.put(ENDPOINT, msgspec.json.encode(found))
        except SpoolFullError as error:
            log.error("%s; counters are cumulative, so the next reading contains what this one would have", error)
        if options.once or stop.wait(options.every):
            return whole if options.once else True


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise RecordError(f"{option} {text!r} must be written NAME=VALUE")
    return name, value
