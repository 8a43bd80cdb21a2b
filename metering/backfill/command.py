"""Command `python -m metering backfill`: fills a time that no agent watched, from series of kube-state-metrics."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from metering.allocation_reports import in_batches, report_allocations
from metering.backfill.holds import BackfillError, Site, records_of
from metering.backfill.pods import (
    CAPACITY_METRIC,
    CLAIM_METRIC,
    NODE_LABELS,
    POD_METRICS,
    REQUEST_METRICS,
    PodSeries,
    add_pod_series,
    claims_in_use,
    node_capacity,
    node_labels,
    requesting_pods,
)
from metering.backfill.scrapes import LASTING_PODS, SCRAPE_METRICS, SHARDS_METRIC, Scrapes
from metering.command_line import (
    SOMEBODY_DECIDES,
    add_platform_options,
    add_resource_options,
    bad_input,
    instant,
    json_lines,
    names_by,
    write_text,
)
from metering.intervals import Interval, without
from metering.prometheus import Prometheus, PrometheusError, add_prometheus_options, workload_label
from metering.records import GpuAllocation
from metering.slurm.command import csv_of

MARGIN: Final = timedelta(minutes=10)
"""Time before and after the gap whose scrapes are read as well: they show what was running at its edges."""
PODS_PER_QUERY: Final = 100
NATIVE: Final = 'resource!~"cpu|memory|ephemeral_storage|pods|hugepages_.*|attachable_volumes_.*"'


class Found(msgspec.Struct, frozen=True):
    """Result of a backfill: records, intervals that they fill, problems, and intervals and drivers of claims in use."""

    records: tuple[GpuAllocation, ...]
    filled: tuple[Interval, ...]
    problems: tuple[str, ...]
    claimed: tuple[Interval, ...] = ()
    drivers: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--cluster", required=True, help="name of the cluster in the ledger")
    add_prometheus_options(parser, required=True, help="where the series of kube-state-metrics are")
    parser.add_argument("--from", dest="start", type=instant, required=True, metavar="TIME", help="start of the gap")
    parser.add_argument("--until", type=instant, required=True, metavar="TIME", help="end of the gap")
    parser.add_argument(
        "--accelerators", type=names_by("NODE"), default={}, metavar="NODE=NAME,...",
        help="products of nodes whose labels are not in Prometheus and whose devices nobody shares; *=NAME for all",
    )  # fmt: skip
    add_resource_options(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="FILE.csv is read by `manage.py import_usage gpu`")
    add_platform_options(parser)
    parser.add_argument("--state", type=Path, default=Path("suanpan-backfill.db"), metavar="FILE", help="durable spool")


def run(options: argparse.Namespace) -> int:
    """Read, reconstruct and send or write; return 2 if the input is wrong, 3 if a part of the gap stays."""
    if bool(options.endpoint) != bool(options.token_file) or options.until <= options.start:
        wrong = "--until must be after --from" if options.until <= options.start else "--endpoint needs --token-file"
        return bad_input(f"python -m metering backfill: {wrong}, see --help")
    window = Interval(options.start, options.until)
    try:
        found = read(options, window)
        status = _send(options, found) if options.endpoint else _write(found.records, options.out)
    except (PrometheusError, OSError) as error:
        return bad_input(error)
    return max(status, _report(found, window))


def read(options: argparse.Namespace, window: Interval) -> Found:
    """Return all allocations that reach into the window.  Raises PrometheusError."""
    prometheus = Prometheus.of(options)
    wider, further = Interval(window.start - MARGIN, window.end + MARGIN), dict(options.resource)
    try:
        nodes = node_labels(prometheus.series([NODE_LABELS], wider))
        capacity = node_capacity(prometheus.series([CAPACITY_METRIC], wider, matchers=NATIVE))
        drivers, claimed = claims_in_use(prometheus.series([CLAIM_METRIC], wider), window)
        requests = prometheus.series(REQUEST_METRICS, wider, matchers=NATIVE)
        pods = requesting_pods(requests, further, options.no_accelerator)
        for uids in in_batches(sorted(pods), PODS_PER_QUERY):
            add_pod_series(pods, prometheus.series(POD_METRICS, wider, matchers=f'uid=~"{"|".join(uids)}"'))
        scrapes, problems = _scrapes(prometheus, wider, pods, capacity)
    finally:
        prometheus.close()
    site = Site(options.cluster, nodes, options.accelerators, capacity, further)
    records: list[GpuAllocation] = []
    for uid in sorted(pods):
        try:
            records += records_of(pods[uid], scrapes, window, site)
        except BackfillError as error:
            problems.append(str(error))
    filled = () if problems else tuple(without(scrapes.watched(window), claimed))
    return Found(tuple(records), filled, tuple(problems), tuple(claimed), drivers)


def _scrapes(
    prometheus: Prometheus, wider: Interval, pods: Mapping[str, PodSeries], capacity: Mapping[str, Mapping[str, int]]
) -> tuple[Scrapes, list[str]]:
    """Return the scrapes of kube-state-metrics, and problems with shards that were not scraped.  Raises PrometheusError."""
    lasting = prometheus.series(SCRAPE_METRICS, wider)
    scrapes, problems = Scrapes(lasting), list[str]()
    elsewhere = {pod.target[1] for pod in pods.values() if pod.seen and pod.target not in scrapes}
    if elsewhere:
        instances = "|".join(sorted(elsewhere))
        shown = prometheus.series(["kube_pod_info"], wider, matchers=f'{LASTING_PODS},instance=~"{instances}"')
        scrapes = Scrapes([*lasting, *shown])
        offering = {node for node, units in capacity.items() if any(units.values())}
        unseen = offering - {one.labels.get("node") for one in shown}
        problems += [f"{node}: no kube-state-metrics shows the pods of this node" for node in sorted(unseen)]
    held = [pod for pod in pods.values() if pod.seen and (pod.terminal is None or pod.terminal[0] >= wider.start + MARGIN)]
    for metric, names in zip(SCRAPE_METRICS, ("node", "namespace"), strict=True):
        every = {workload_label(one.labels, names) for one in lasting if one.name == metric}
        unshown = {getattr(pod, names) for pod in held} - every if every else ()
        problems += [f"{metric} does not show {name}: a shard of kube-state-metrics is missing" for name in sorted(unshown)]
    declared = [value for one in prometheus.series([SHARDS_METRIC], wider) for _, value in one.samples]
    if declared and (shards := int(max(declared))) > max(len(scrapes), 1):
        problems.append(f"kube-state-metrics has {shards} shards, and series show {len(scrapes)}")
    return scrapes, problems


def _report(found: Found, window: Interval) -> int:
    """Write to stderr what stays open of the gap; return the exit status."""
    for problem in found.problems:
        sys.stderr.write(f"{problem}; nothing of the gap is filled until all is described\n")
    left_us = window.microseconds - sum(piece.microseconds for piece in found.filled)
    claimed_us = sum(piece.microseconds for piece in found.claimed)
    if claimed_us:
        sys.stderr.write(
            f"{claimed_us / 1_000_000:.0f} s of the gap had claims of {', '.join(found.drivers)} in use, of which no series "
            "shows who held what: claims cannot be backfilled, and these stretches stay a gap\n"
        )
    if left_us > claimed_us and not found.problems:
        sys.stderr.write(
            f"{(left_us - claimed_us) / 1_000_000:.0f} s of the gap have no scrape of kube-state-metrics, or not of each "
            "shard, and stay a gap\n"
        )
    return SOMEBODY_DECIDES if left_us else 0


def _write(records: Sequence[GpuAllocation], path: Path | None) -> int:
    as_csv = path is not None and path.suffix == ".csv"
    if as_csv and (open_ones := sum(record.ended_at is None for record in records)):
        sys.stderr.write(f"{path}: {open_ones} allocations go on: import the file with --until of the gap's end\n")
    write_text(csv_of(records) if as_csv else json_lines(records), path)
    return 0


def _send(options: argparse.Namespace, found: Found) -> int:
    """Send records; attach filled intervals to the last batch."""
    filled = [{"from": piece.start, "until": piece.end} for piece in found.filled]
    return report_allocations(
        options.state, found.records, endpoint=options.endpoint, token_file=options.token_file,
        agent={"name": "backfill", "cluster": options.cluster}, last={"filled": filled},
    )  # fmt: skip
