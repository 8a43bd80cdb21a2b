"""PURE: state of each pod that held devices, from series of kube-state-metrics.

kube-state-metrics keeps no history: a pod that came and went between two scrapes left no trace, and one that vanished did
so at some time between the last scrape with it and the first one without.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from metering.accelerator_resources import CARD_COUNT_LABELS, FALLBACK_PRODUCT_LABEL, KNOWN_SHARING, PRODUCT_LABELS
from metering.backfill.scrapes import Target, target_of
from metering.capacity_types import MARKS, RESERVATIONS, STATED
from metering.claims import OTHER_DRIVERS
from metering.intervals import EPOCH, Interval, union
from metering.kube_state import resource_of, sanitised
from metering.prometheus import Series, workload_label

REQUEST_METRICS: Final = ("kube_pod_container_resource_requests", "kube_pod_init_container_resource_requests")
POD_METRICS: Final = (
    "kube_pod_info", "kube_pod_owner", "kube_pod_status_scheduled_time", "kube_pod_start_time", "kube_pod_completion_time",
    "kube_pod_deletion_timestamp", "kube_pod_status_phase", "kube_pod_status_reason",
    "kube_pod_init_container_info",
)  # fmt: skip
NODE_LABELS: Final = "kube_node_labels"
CLAIM_METRIC: Final = "dra_resource_claims_in_use"
"""Metric of kubelets (since 1.34): claims in use on a node, by driver. It shows that there were claims, not which pod's."""
TERMINAL: Final = ("Succeeded", "Failed")


@dataclass(slots=True)
class PodSeries:
    """State of one pod by its series. `shown`: kube_pod_info has it; `seen`: every scrape that had it bound to a node, the
    last of them by `target`; `stays`: True for an init container that stays beside the others, as a sidecar; `ran`: its
    phase was Running; `unknown`: extended resources that the table does not know, as series write them.
    """

    uid: str
    namespace: str = ""
    name: str = ""
    node: str = ""
    target: Target = ("", "")
    priority_class: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    shown: bool = False
    seen: list[datetime] = field(default_factory=list)
    scheduled_at: datetime | None = None
    start_time: datetime | None = None
    completed_at: datetime | None = None
    deletion_at: datetime | None = None
    ran: bool = False
    terminal: tuple[datetime, str] | None = None
    reasons: set[str] = field(default_factory=set)
    requests: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    init_requests: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    stays: dict[str, bool] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


def requesting_pods(
    series: Iterable[Series], further: Iterable[str] = (), none: Iterable[str] = ()
) -> dict[str, PodSeries]:
    """Return the pods that request extended resources (REQUEST_METRICS), by UID.

    `further`: accelerators beyond the table; `none`: resources that are no accelerators.
    """
    pods: dict[str, PodSeries] = {}
    named, ignored = {sanitised(name): name for name in further}, {sanitised(name) for name in none}
    for one in series:
        uid, written = one.labels.get("uid", ""), one.labels.get("resource", "")
        if not uid or written in ignored or not one.samples:
            continue
        pod, count = pods.setdefault(uid, PodSeries(uid)), int(one.samples[-1][1])
        kept = pod.requests if one.name == REQUEST_METRICS[0] else pod.init_requests
        if resource := named.get(written) or resource_of(written):
            kept[workload_label(one.labels, "container")][resource] = count
        elif count:
            pod.unknown.add(written)
    return pods


def add_pod_series(pods: Mapping[str, PodSeries], series: Iterable[Series]) -> None:
    """Add the facts of POD_METRICS to the pods."""
    for one in series:
        pod = pods.get(one.labels.get("uid", ""))
        if pod is not None and one.samples:
            _add(pod, one)
    for pod in pods.values():
        pod.seen.sort()


def _add(pod: PodSeries, one: Series) -> None:
    labels, value = one.labels, one.samples[-1][1]
    pod.shown |= one.name == "kube_pod_info"
    if one.name == "kube_pod_info" and labels.get("node"):
        pod.namespace, pod.name = workload_label(labels, "namespace"), workload_label(labels, "pod")
        pod.node, pod.priority_class = labels["node"], labels.get("priority_class", "")
        if not pod.seen or one.samples[-1][0] > max(pod.seen):
            pod.target = target_of(labels)
        pod.seen += [at for at, _ in one.samples]
    elif one.name == "kube_pod_owner" and labels.get("owner_is_controller") == "true":
        pod.owner_kind, pod.owner_name = labels.get("owner_kind", ""), labels.get("owner_name", "")
    elif one.name in TIMES and value > 0:
        setattr(pod, TIMES[one.name], EPOCH + timedelta(seconds=int(value)))
    elif one.name == "kube_pod_status_phase" and labels.get("phase") in TERMINAL:
        _add_terminal(pod, labels["phase"], one.samples)
    elif one.name == "kube_pod_status_phase" and labels.get("phase") == "Running":
        pod.ran |= any(reported == 1 for _, reported in one.samples)
    elif one.name == "kube_pod_init_container_info":
        pod.stays[workload_label(labels, "container")] = labels.get("restart_policy") == "Always"
    elif one.name == "kube_pod_status_reason":
        pod.reasons |= {labels.get("reason", "") for _, reported in one.samples if reported == 1}


TIMES: Final = {
    "kube_pod_status_scheduled_time": "scheduled_at",
    "kube_pod_start_time": "start_time",
    "kube_pod_completion_time": "completed_at",
    "kube_pod_deletion_timestamp": "deletion_at",
}


def _add_terminal(pod: PodSeries, phase: str, samples: Sequence[tuple[datetime, Decimal]]) -> None:
    """Keep the first scrape that found the pod finished; later changes of its status count for nothing."""
    first = next((at for at, reported in samples if reported == 1), None)
    if first is not None and (pod.terminal is None or first < pod.terminal[0]):
        pod.terminal = (first, phase)


def claims_in_use(series: Iterable[Series], window: Interval) -> tuple[tuple[str, ...], list[Interval]]:
    """Return accelerator drivers whose claims a kubelet reported in use (CLAIM_METRIC), and the times of use in the window.

    A time of use reaches from the scrape before claims were seen to the first one without them.
    """
    drivers: set[str] = set()
    found: list[Interval] = []
    for one in series:
        driver = one.labels.get("driver_name", ANY_DRIVER)
        if driver == ANY_DRIVER or driver in OTHER_DRIVERS:
            continue
        times = [window.start, *(at for at, _ in one.samples), window.end]
        used = [place for place, (_, count) in enumerate(one.samples, start=1) if count > 0]
        cut = [piece for place in used if times[place - 1] < times[place + 1]
               and (piece := Interval(times[place - 1], times[place + 1]).overlap(window))]  # fmt: skip
        drivers |= {driver} if cut else set()
        found += cut
    return tuple(sorted(drivers)), union(found)


ANY_DRIVER: Final = "<any>"


def node_labels(series: Iterable[Series]) -> dict[str, Series]:
    """Return the labels that each node had last, as kube_node_labels reports them."""
    found: dict[str, Series] = {}
    for one in series:
        node = one.labels.get("node", "")
        if one.samples and (node not in found or one.samples[-1][0] > found[node].samples[-1][0]):
            found[node] = one
    return found


def original_labels(one: Series | None, resource: str) -> dict[str, str]:
    """Return those of a node's sanitised labels that describe a unit of the resource or the node's capacity type, under
    their own names.
    """
    wanted = {key for keys in PRODUCT_LABELS.values() for key in keys} | {FALLBACK_PRODUCT_LABEL, *SHARING_LABELS}
    base = resource.removesuffix(".shared")
    wanted |= {*CARD_COUNT_LABELS, *STATED, *MARKS, *RESERVATIONS}
    wanted |= {*(f"{base}.{suffix}" for suffix in ("product", "replicas", "sharing-strategy"))}
    given = one.labels if one else {}
    asked_for = {key: given.get(f"label_{sanitised(snake_case(key))}", "") for key in wanted}
    others = {f"label/{name}": value for name, value in given.items() if not KNOWN_LABELS.fullmatch(name)}
    return {key: value for key, value in {**others, **asked_for}.items() if value}


def snake_case(label: str) -> str:
    """Return a camel-case label's name as kube-state-metrics writes it.

    >>> snake_case("eks.amazonaws.com/capacityType")
    'eks.amazonaws.com/capacity_type'
    """
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", label).lower()


def node_capacity(series: Iterable[Series]) -> dict[str, dict[str, int]]:
    """Return units of each accelerator resource that a node had last, by node, as CAPACITY_METRIC reports them."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for one in series:
        resource = resource_of(one.labels.get("resource", ""))
        if resource and one.samples:
            found[one.labels.get("node", "")][resource] = int(one.samples[-1][1])
    return found


CAPACITY_METRIC: Final = "kube_node_status_capacity"
SHARING_LABELS: Final = (
    "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.count", "nvidia.com/mig.strategy",
    "nvidia.com/mig.config", "nvidia.com/device-plugin.config", "amd.com/compute-memory-partition",
    "cloud.google.com/gke-gpu-sharing-strategy", "cloud.google.com/gke-max-shared-clients-per-gpu",
    "cloud.google.com/gke-gpu-partition-size",
)  # fmt: skip
KNOWN_LABELS: Final = re.compile("label_(?:" + re.sub(r"\\\.|[/-]", "_", KNOWN_SHARING.pattern) + ")")
"""Pattern of labels, as kube-state-metrics writes them, that the rules read or that change no share."""
