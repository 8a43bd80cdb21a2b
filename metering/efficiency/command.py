"""`python -m metering efficiency`: exporters' series and jobs' reports -> efficiency samples, hour by hour."""

import argparse
import csv
import io
import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import Counter, Gauge, start_http_server

from metering.delivery import Delivery
from metering.efficiency.jobs import JobsFile, JobsFileError, peaks_of, read_job, read_jobs_file
from metering.efficiency.outbox import Outbox
from metering.efficiency.scores import Scoring, hours_of, pod_sample, workload_sample
from metering.efficiency.telemetry import METRICS, POD_METRICS, telemetry_of
from metering.intervals import Interval
from metering.options import instant, port, token_of
from metering.prometheus import Prometheus, PrometheusError
from metering.records import EfficiencySample
from metering.spool import SpoolFullError

log = logging.getLogger(__name__)
BAD_INPUT: Final = 2
MUST_DECIDE: Final = 3
COLUMNS: Final = ("cluster", "pod_uid", "start", "end", "gpu_seconds", "mfu", "hfu", "dtype", "coverage")
FLUSH_S: Final = 60.0
TURN_S: Final = 60.0
SETTLED: Final = timedelta(minutes=10)
"""How long after its end an hour is read: scrapes, remote writes and job logs come late."""
READ_UNTIL: Final = Gauge("suanpan_efficiency_read_until_timestamp_seconds", "End of the last hour that was read")
WAITING: Final = Gauge("suanpan_efficiency_spool_bytes", "What waits to be delivered")
REJECTED: Final = Gauge("suanpan_efficiency_rejected_records", "Records that the platform put into quarantine")
FAILURES: Final = Counter("suanpan_efficiency_failed_reads", "Hours that could not be read and are read again")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("--cluster", required=True, help="name of the cluster in the ledger")
    parser.add_argument("--prometheus", metavar="URL", help="where the exporters' series are")
    parser.add_argument("--prometheus-token-file", type=Path, metavar="FILE", help="bearer token of Prometheus")
    parser.add_argument("--matchers", default="", help="further label matchers, such as cluster=\"hq-1\"")
    parser.add_argument("--jobs", type=Path, metavar="FILE", help="which pods are which training job (YAML)")
    parser.add_argument("--from", dest="start", type=instant, metavar="TIME", help="first hour (RFC 3339)")
    parser.add_argument("--until", type=instant, metavar="TIME", help="end of the last hour (default: now)")
    parser.add_argument("--follow", action="store_true", help="go on with every hour that ends; needs --endpoint")
    parser.add_argument("--trust-reports", action="store_true", help="believe reports that no exporter checks")
    parser.add_argument("--out", type=Path, metavar="FILE", help="FILE.csv is read by `manage.py import_usage efficiency`")
    parser.add_argument("--endpoint", metavar="URL", help="send to this platform instead of printing")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="its token, with scope usage:write")
    parser.add_argument("--listen", type=port, metavar="PORT", help="with --follow: serve /metrics there, also as a probe")
    parser.add_argument("--state", type=Path, default=Path("suanpan-efficiency.db"), metavar="FILE", help="durable spool")


def run(options: argparse.Namespace) -> int:
    """Read, score and send or write; one line on stderr and 2 where the input is wrong, 3 where it is not delivered."""
    problem = _usage_problem(options)
    if problem:
        sys.stderr.write(f"python -m metering efficiency: {problem}, see --help\n")
        return BAD_INPUT
    try:
        if options.endpoint:
            return _send(options)
        until = options.until or datetime.now(UTC) - SETTLED
        with closing(Scorer(options)) as scorer:
            samples = [sample for window in hours_of(options.start, until) for sample in scorer.samples(window)]
        return _write(samples, options.out)
    except (JobsFileError, PrometheusError, OSError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return BAD_INPUT
    except SpoolFullError as error:
        sys.stderr.write(f"{error}\n")
        return MUST_DECIDE


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
    """Makes the samples of an hour; the jobs file and its logs are read once."""

    def __init__(self, options: argparse.Namespace) -> None:
        jobs_file = read_jobs_file(options.jobs) if options.jobs else JobsFile()
        self._jobs = [read_job(job, options.jobs.parent) for job in jobs_file.jobs]
        self._scoring = Scoring(options.cluster, peaks_of(jobs_file), options.trust_reports)
        token_file = options.prometheus_token_file
        token = token_of(token_file) if token_file else None
        self._prometheus = Prometheus(options.prometheus, token=token) if options.prometheus else None
        self._matchers = options.matchers

    def samples(self, window: Interval) -> list[EfficiencySample]:
        """All samples of one hour; what cannot be attributed is said on stderr."""
        by_pod = self._of_pods(self._prometheus, window) if self._prometheus else []
        by_workload = [workload_sample(reported, window, self._scoring) for reported in self._jobs if reported.job.workload]
        return by_pod + [sample for sample in by_workload if sample]

    def _of_pods(self, prometheus: Prometheus, window: Interval) -> list[EfficiencySample]:
        devices = prometheus.series(METRICS, window, matchers=self._matchers)
        pods = prometheus.series(POD_METRICS, window, matchers=self._matchers)
        telemetry = telemetry_of(devices, pods, window, bucket=self._scoring.bucket)
        for name in telemetry.unknown_pods:
            whose = f"{name.namespace}/{name.pod}"
            sys.stderr.write(f"{window.start.isoformat()}: {whose} used devices, but kube_pod_info says no UID of it\n")
        return [pod_sample(pod, self._jobs, window, self._scoring) for pod in telemetry.pods]

    def close(self) -> None:
        """Give the connections back."""
        if self._prometheus:
            self._prometheus.close()


def _write(samples: Sequence[EfficiencySample], path: Path | None) -> int:
    as_csv = path is not None and path.suffix == ".csv"
    text = csv_of(samples) if as_csv else "".join(f"{msgspec.json.encode(sample).decode()}\n" for sample in samples)
    for sample in samples:
        if as_csv and sample.workload:
            sys.stderr.write(f"{path}: the file has no column for workload {sample.workload_name}: send it, or write JSON\n")
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")
    return 0


def csv_of(samples: Sequence[EfficiencySample]) -> str:
    """The usage file of the contract; an empty mfu or hfu is no score."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for sample in samples:
        if sample.pod_uid:
            row = msgspec.to_builtins(sample)
            writer.writerow({name: row[name] for name in COLUMNS})
    return text.getvalue()


def _send(options: argparse.Namespace) -> int:
    outbox = Outbox(options.state, options.cluster)
    delivery = Delivery(outbox.spool, endpoint=options.endpoint, token=token_of(options.token_file))
    try:
        if options.listen:
            start_http_server(options.listen)
        while options.follow:
            _deliver_and_wait(options, outbox, delivery)
        _put_hours(options, outbox, options.until or datetime.now(UTC) - SETTLED)
        delivered = delivery.flush(seconds=FLUSH_S)
        if not delivered:
            waiting = f"{len(outbox.spool)} bodies wait in {options.state}: run again"
            sys.stderr.write(f"{delivery.last_error}; {waiting}\n")
        return 0 if delivered else MUST_DECIDE
    finally:
        delivery.close()
        outbox.close()


def _put_hours(options: argparse.Namespace, outbox: Outbox, until: datetime) -> None:
    """Read every hour that was not read yet, each in a transaction with its place."""
    known = [at for at in (options.start, outbox.read_until) if at]
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
    """One turn of --follow: what cannot be read now is read in the next."""
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
