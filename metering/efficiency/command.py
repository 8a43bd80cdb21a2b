"""Command `python -m metering efficiency`: samples of each hour from exporters' series and jobs' reports."""

import argparse
import csv
import io
import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import Counter, Gauge, start_http_server

from metering.allocation_reports import RECORDS_PER_BODY, in_batches
from metering.command_line import (
    SOMEBODY_DECIDES,
    add_platform_options,
    bad_input,
    instant,
    json_lines,
    port,
    token_of,
    write_text,
)
from metering.delivery import Delivery
from metering.efficiency.jobs import JobsFile, JobsFileError, peaks_of, read_job, read_jobs_file
from metering.efficiency.scores import Scoring, hours_of, pod_sample, workload_sample
from metering.efficiency.telemetry import METRICS, POD_METRICS, telemetry_of
from metering.intervals import Interval
from metering.prometheus import Prometheus, PrometheusError, add_prometheus_options
from metering.records import EfficiencySample
from metering.spool import Spool, SpoolFullError, open_state

log = logging.getLogger(__name__)
COLUMNS: Final = ("cluster", "pod_uid", "start", "end", "gpu_seconds", "mfu", "hfu", "dtype", "coverage")
ENDPOINT: Final = "usage/efficiency"
MAX_SPOOL_BYTES: Final = 1 << 28
SCHEMA: Final = "CREATE TABLE IF NOT EXISTS efficiency_read (cluster TEXT PRIMARY KEY, until TEXT NOT NULL)"
FLUSH_S: Final = 60.0
TURN_S: Final = 60.0
SETTLED: Final = timedelta(minutes=10)
"""Delay after the end of an hour with which the hour is read: scrapes, remote writes and job logs come late."""
READ_UNTIL: Final = Gauge("suanpan_efficiency_read_until_timestamp_seconds", "End of the last hour that was read")
WAITING: Final = Gauge("suanpan_efficiency_spool_bytes", "What waits to be delivered")
REJECTED: Final = Gauge("suanpan_efficiency_rejected_records", "Records that the platform put into quarantine")
FAILURES: Final = Counter("suanpan_efficiency_failed_reads", "Hours that could not be read and are read again")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--cluster", required=True, help="name of the cluster in the ledger")
    add_prometheus_options(parser, required=False, help="where the exporters' series are")
    parser.add_argument("--jobs", type=Path, metavar="FILE", help="which pods are which training job (YAML)")
    parser.add_argument("--from", dest="start", type=instant, metavar="TIME", help="first hour (RFC 3339)")
    parser.add_argument("--until", type=instant, metavar="TIME", help="end of the last hour (default: now)")
    parser.add_argument("--follow", action="store_true", help="go on with every hour that ends; needs --endpoint")
    parser.add_argument("--trust-reports", action="store_true", help="believe reports that no exporter checks")
    parser.add_argument("--out", type=Path, metavar="FILE", help="FILE.csv is read by `manage.py import_usage efficiency`")
    add_platform_options(parser)
    parser.add_argument("--listen", type=port, metavar="PORT", help="with --follow: serve /metrics there, also as a probe")
    parser.add_argument("--state", type=Path, default=Path("suanpan-efficiency.db"), metavar="FILE", help="durable spool")


def run(options: argparse.Namespace) -> int:
    """Read, score and send or write; return 2 after one line on stderr if the input is wrong, 3 if it is not delivered."""
    if problem := _usage_problem(options):
        return bad_input(f"python -m metering efficiency: {problem}, see --help")
    try:
        if options.endpoint:
            return _send(options)
        until = options.until or datetime.now(UTC) - SETTLED
        with closing(Scorer(options)) as scorer:
            samples = [sample for window in hours_of(options.start, until) for sample in scorer.samples(window)]
        return _write(samples, options.out)
    except (JobsFileError, PrometheusError, OSError) as error:
        return bad_input(error)
    except SpoolFullError as error:
        sys.stderr.write(f"{error}\n")
        return SOMEBODY_DECIDES


def _usage_problem(options: argparse.Namespace) -> str:
    if options.prometheus is None and options.jobs is None:
        return "nothing to read: give --prometheus, --jobs, or both"
    if options.follow and not options.endpoint:
        return "--follow sends: it needs --endpoint"
    if options.listen and not options.follow:
        return "--listen goes with --follow"
    if options.start is None and not options.follow:
        return "--from is missing: the first hour to read"
    if bool(options.endpoint) != bool(options.token_file):
        return "--endpoint and --token-file belong together"
    return ""


class Scorer:
    """Scorer of hours; the jobs file and its logs are read once."""

    def __init__(self, options: argparse.Namespace) -> None:
        jobs_file = read_jobs_file(options.jobs) if options.jobs else JobsFile()
        self._jobs = [read_job(job, options.jobs.parent) for job in jobs_file.jobs]
        self._scoring = Scoring(options.cluster, peaks_of(jobs_file), options.trust_reports)
        self._prometheus = Prometheus.of(options) if options.prometheus else None

    def samples(self, window: Interval) -> list[EfficiencySample]:
        """Return all samples of one hour; write pods that cannot be attributed to stderr."""
        by_pod = self._of_pods(self._prometheus, window) if self._prometheus else []
        by_workload = [workload_sample(reported, window, self._scoring) for reported in self._jobs if reported.job.workload]
        return by_pod + [sample for sample in by_workload if sample]

    def _of_pods(self, prometheus: Prometheus, window: Interval) -> list[EfficiencySample]:
        devices = prometheus.series(METRICS, window)
        pods = prometheus.series(POD_METRICS, window)
        telemetry = telemetry_of(devices, pods, window)
        for name in telemetry.unknown_pods:
            whose = f"{name.namespace}/{name.pod}"
            sys.stderr.write(f"{window.start.isoformat()}: {whose} used devices, but kube_pod_info says no UID of it\n")
        return [pod_sample(pod, self._jobs, window, self._scoring) for pod in telemetry.pods]

    def close(self) -> None:
        """Close the connections."""
        if self._prometheus:
            self._prometheus.close()


def _write(samples: Sequence[EfficiencySample], path: Path | None) -> int:
    as_csv = path is not None and path.suffix == ".csv"
    for sample in samples:
        if as_csv and sample.workload:
            sys.stderr.write(f"{path}: the file has no column for workload {sample.workload_name}: send it, or write JSON\n")
    write_text(csv_of(samples) if as_csv else json_lines(samples), path)
    return 0


def csv_of(samples: Sequence[EfficiencySample]) -> str:
    """Return the usage file of the contract; an empty mfu or hfu is no score."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for sample in samples:
        if sample.pod_uid:
            row = msgspec.to_builtins(sample)
            writer.writerow({name: row[name] for name in COLUMNS})
    return text.getvalue()


class Outbox:
    """State file of the agent of one cluster: samples to be delivered, and the end of the hours that were read."""

    def __init__(self, path: Path, cluster: str) -> None:
        self._connection: sqlite3.Connection = open_state(path)
        self._connection.execute(SCHEMA)
        self._cluster = cluster
        self.spool = Spool(self._connection, max_bytes=MAX_SPOOL_BYTES)

    @property
    def read_until(self) -> datetime | None:
        """Return the end of the last hour that was read, or None."""
        row = self._connection.execute("SELECT until FROM efficiency_read WHERE cluster = ?", (self._cluster,)).fetchone()
        return datetime.fromisoformat(row[0]) if row else None

    def put(self, window: Interval, samples: Sequence[EfficiencySample]) -> None:
        """Keep the samples of a window and the fact that it was read: both or neither.  Raises SpoolFullError."""
        with self._connection:
            for batch in in_batches(samples, RECORDS_PER_BODY):
                self.spool.put(ENDPOINT, msgspec.json.encode(batch))
            self._connection.execute(
                "INSERT INTO efficiency_read VALUES (?, ?) ON CONFLICT (cluster) DO UPDATE SET until = excluded.until",
                (self._cluster, window.end.astimezone(UTC).isoformat()),
            )

    def close(self) -> None:
        """Close the file; waiting bodies stay in it."""
        self._connection.close()


def _send(options: argparse.Namespace) -> int:
    with (
        closing(Outbox(options.state, options.cluster)) as outbox,
        Delivery(outbox.spool, endpoint=options.endpoint, token=token_of(options.token_file)) as delivery,
    ):
        if options.listen:
            start_http_server(options.listen)
        while options.follow:
            _deliver_and_wait(options, outbox, delivery)
        _put_hours(options, outbox, options.until or datetime.now(UTC) - SETTLED)
        delivered = delivery.flush(seconds=FLUSH_S)
        if not delivered:
            waiting = f"{len(outbox.spool)} bodies wait in {options.state}: run again"
            sys.stderr.write(f"{delivery.last_error}; {waiting}\n")
        return 0 if delivered else SOMEBODY_DECIDES


def _put_hours(options: argparse.Namespace, outbox: Outbox, until: datetime) -> None:
    """Read every hour that was not read yet, each in one transaction with the mark that it was read."""
    known = [at for at in (options.start, outbox.read_until) if at]
    # Without a start, --follow begins with the running hour.
    start = max(known, default=until.replace(minute=0, second=0, microsecond=0))
    windows = hours_of(start, until)
    if not windows:
        return
    with closing(Scorer(options)) as scorer:
        for window in windows:
            outbox.put(window, scorer.samples(window))


def _deliver_and_wait(
    options: argparse.Namespace, outbox: Outbox, delivery: Delivery, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Run one turn of --follow: an hour that cannot be read now is read in the next turn."""
    try:
        _put_hours(options, outbox, datetime.now(UTC) - SETTLED)
    except (JobsFileError, PrometheusError, SpoolFullError, OSError) as error:
        FAILURES.inc()
        log.error("%s: this hour is read again in a minute", error)
    delivery.flush(seconds=FLUSH_S)
    if outbox.read_until:
        READ_UNTIL.set(outbox.read_until.timestamp())
    WAITING.set(outbox.spool.bytes)
    REJECTED.set(delivery.rejected_records)
    sleep(TURN_S)
