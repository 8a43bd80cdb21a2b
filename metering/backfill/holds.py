"""PURE: records of a pod's allocations from series of kube-state-metrics, as estimates with their bounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Final

from metering.accelerator_resources import KAI_RESERVATIONS
from metering.accelerators import NodeFacts, accelerator_name, device_fraction, split_request
from metering.allocation import REASONS, Ending, EndReason
from metering.backfill.pods import PodSeries, original_labels
from metering.backfill.scrapes import Scrapes
from metering.capacity_types import node_capacity_type
from metering.intervals import Interval
from metering.prometheus import Series
from metering.records import GpuAllocation, Workload, hold_id
from metering.requests import Container, effective_requests, slots_of
from metering.shared_devices import ShareUnknownError
from metering.shares import allocated_share

SOURCE: Final = "prometheus"
REFUSED: Final = frozenset({"UnexpectedAdmissionError", "NodeAffinity"})


class BackfillError(ValueError):
    """Error of an allocation that the series show but do not describe: it cannot be billed, so its time is not filled."""


@dataclass(frozen=True, slots=True)
class Site:
    """Cluster of the allocations: its name in the ledger, its nodes' labels, products of nodes without a label, the units of
    each resource that nodes have, and resources beyond the table, each unit of which is a device, with their product.
    """

    cluster: str
    nodes: Mapping[str, Series]
    accelerators: Mapping[str, str]
    capacity: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    extra_resources: Mapping[str, str] = field(default_factory=dict)


def records_of(pod: PodSeries, scrapes: Scrapes, window: Interval, site: Site) -> list[GpuAllocation]:
    """Return the allocations of one pod that reach into the window; open ones are known until its end, or their last scrape.

    Raises BackfillError.
    """
    if not pod.shown and not pod.seen:
        raise BackfillError(f"pod {pod.uid}: it asks for devices, and kube_pod_info does not show on which node it was")
    start = pod.scheduled_at or pod.start_time or (pod.seen[0] if pod.seen else None)
    if start is None or not pod.seen or start >= window.end:
        return []
    if pod.target not in scrapes:
        raise BackfillError(
            f"{pod.namespace}/{pod.name} on {pod.node}: nothing shows when kube-state-metrics at {pod.target[1]} was scraped"
        )
    end = _end_of(pod, scrapes)
    if end is None and pod.seen[-1] < window.start:
        return []
    refused = pod.reasons & REFUSED and not pod.ran and pod.completed_at is None  # by its node, before it got a device
    if end is not None and (end.at <= max(start, window.start) or refused):
        return []
    if end is not None and end.at > window.end:
        end = None
    if pod.unknown:
        raise BackfillError(
            f"{pod.namespace}/{pod.name} on {pod.node}: {', '.join(sorted(pod.unknown))} is unknown: name it with "
            "--resource if it is an accelerator, else with --no-accelerator"
        )
    if pod.namespace in KAI_RESERVATIONS:
        raise BackfillError(f"{pod.namespace}/{pod.name} on {pod.node}: series do not show which pods share the card of KAI")
    asked = split_request(_requests(pod))
    return [
        _record(pod, start, end, window, site, resource, count)
        for resource, count in {**asked.counted, **asked.unknown}.items()
    ]


def _containers(pod: PodSeries) -> tuple[list[Container], list[Container]]:
    """Return containers and init containers as far as the series show them."""
    init = [Container(name, asked, {}, pod.stays.get(name, False)) for name, asked in pod.init_requests.items()]
    return [Container(name, requests) for name, requests in pod.requests.items()], init


def _requests(pod: PodSeries) -> dict[str, int]:
    """Return the effective request if it does not depend on facts that the series do not show.

    Those facts are the order of init containers, and, where kube-state-metrics keeps no series of them, which of them stay
    as sidecars.  Raises BackfillError.
    """
    containers = [Container(name, requests) for name, requests in pod.requests.items()]
    possible = []
    for unshown in (False, True):
        init = [Container(name, asked, {}, pod.stays.get(name, unshown)) for name, asked in pod.init_requests.items()]
        for sidecars_last in (False, True):
            ordered = sorted(init, key=lambda item: item.restartable is sidecars_last)
            possible.append(effective_requests(containers, ordered))
    if any(requests != possible[0] for requests in possible):
        raise BackfillError(
            f"{pod.namespace}/{pod.name} on {pod.node}: the series do not show which of its init containers stay beside the "
            "others (kube_pod_init_container_info with restart_policy), or which begins first"
        )
    return possible[0]


def _end_of(pod: PodSeries, scrapes: Scrapes) -> Ending | None:
    """Return how a pod released its devices, or None if it held them as far as scrapes reach."""
    last = pod.seen[-1]
    if pod.terminal is not None:
        seen_at, phase = pod.terminal
        alive = max((at for at in pod.seen if at < seen_at), default=pod.seen[0])
        reason = _disruption(pod) or (EndReason.COMPLETED if phase == "Succeeded" else EndReason.FAILED)
        if pod.completed_at is not None and pod.completed_at <= seen_at:
            return Ending(pod.completed_at, reason, "kube_pod_completion_time", True, pod.completed_at, pod.completed_at)
        return Ending(seen_at, reason, "kube_pod_status_phase", True, alive, seen_at)
    gone = scrapes.after(last, pod.target)
    if gone is None:
        return None
    reason = _disruption(pod) or (EndReason.DELETED if pod.deletion_at else EndReason.UNKNOWN)
    if pod.deletion_at is not None and last <= pod.deletion_at < gone:
        return Ending(pod.deletion_at, reason, "kube_pod_deletion_timestamp", True, last, pod.deletion_at)
    return Ending(gone, reason, "absent from kube_pod_info", True, last, gone)


def _disruption(pod: PodSeries) -> EndReason | None:
    return next((REASONS[reason] for reason in sorted(pod.reasons) if reason in REASONS), None)


def _record(
    pod: PodSeries, start: datetime, end: Ending | None, window: Interval, site: Site, resource: str, count: int
) -> GpuAllocation:
    labels, extra = original_labels(site.nodes.get(pod.node), resource), site.extra_resources.get(resource)
    named = extra or accelerator_name(resource, labels)
    accelerator = named or site.accelerators.get(pod.node) or site.accelerators.get("*")
    if accelerator is None:
        what = f"kube_node_labels do not show the product of {resource}: give it with --accelerators"
        raise BackfillError(f"{pod.namespace}/{pod.name} on {pod.node}: {what}")
    try:
        facts = NodeFacts(labels, site.capacity.get(pod.node, {}))
        slots = slots_of(*_containers(pod))
        share = Fraction(1) if extra is not None else allocated_share(resource, count, _requests(pod), {}, facts, "", slots)
        fraction, unknown = device_fraction(share), None
    except ShareUnknownError as error:
        fraction, unknown = None, str(error)
    until = min(pod.seen[-1], window.end) if end is None else end.at
    return GpuAllocation(
        allocation_id=hold_id(site.cluster, pod.uid, resource, start), cluster=site.cluster, namespace=pod.namespace,
        pod=pod.name, pod_uid=pod.uid, resource=resource, quantity=count, device_fraction=fraction,
        share_unknown=unknown, accelerator=accelerator, node=pod.node, started_at=start, ended_at=end.at if end else None,
        observed_until=max(until, start), end_reason=str(end.reason) if end else None,
        workload=Workload(pod.owner_kind, pod.owner_name) if pod.owner_name else None,
        priority_class=pod.priority_class or None, end_rule=end.rule if end else None,
        end_estimated=end.estimated if end else None,
        end_earliest=max(end.earliest, start) if end else None, end_latest=end.latest if end else None,
        reconstructed_from=SOURCE, capacity_type=node_capacity_type(labels),
    )  # fmt: skip
