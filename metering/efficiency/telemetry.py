"""PURE: measurements of each pod's devices, minute by minute, from series of the DCGM and Ascend NPU exporters.

A minute of a device is measured if any sample of it lies in the minute, so the scrape interval may be up to the length of
a bucket. Only tensor activity counts as how busy a device was: "GPU utilisation" shows that something ran, and is never a
score.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Final

from metering.accelerators import mig_share, normalised_product
from metering.intervals import Interval
from metering.kube_state import resource_of
from metering.prometheus import Series, workload_label

PERCENT: Final = Fraction(1, 100)
RATIO: Final = Fraction(1)
TENSOR_METRICS: Final[Mapping[str, Fraction]] = {
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": RATIO,
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": RATIO,  # the same field since NVIDIA renamed them
    "npu_chip_info_cube_utilization": PERCENT,  # the matrix unit of an Ascend chip
}
"""Series of the matrix pipe's activity, and the unit of each as a part of the whole."""
PRESENCE_METRICS: Final = (
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_SM_UTIL_RATIO", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", "dcgm_gpu_utilization",
    "npu_chip_info_utilization", "npu_chip_info_overall_utilization", "container_npu_utilization",
)  # fmt: skip
"""Series that show which pod had which device, whatever their value."""
METRICS: Final = (*TENSOR_METRICS, *PRESENCE_METRICS)
POD_METRICS: Final = ("kube_pod_info", "kube_pod_container_resource_requests")
BUCKET: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, order=True)
class PodName:
    """Name of a pod as exporters know it; another pod may have had the same name before."""

    namespace: str
    pod: str


@dataclass(slots=True)
class PodTelemetry:
    """Reports of exporters on one pod in a window. `measured`: buckets per device; `tensor`: ratios per device and bucket.

    `shared`: another pod had one of its devices in the same minute.
    """

    namespace: str
    pod: str
    pod_uid: str
    accelerator: str
    share: Fraction
    measured: dict[str, set[int]]
    tensor: dict[tuple[str, int], Fraction]
    shared: bool = False

    @property
    def devices(self) -> int:
        return len(self.measured)

    @property
    def buckets(self) -> range:
        """Return the buckets from the first to the last minute in which any of its devices was seen."""
        every = [bucket for buckets in self.measured.values() for bucket in buckets]
        return range(min(every), max(every) + 1)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Pods of a window, and names of pods that exporters named but whose UID is unknown."""

    pods: Sequence[PodTelemetry]
    unknown_pods: Sequence[PodName]


def telemetry_of(devices: Iterable[Series], pods: Iterable[Series], window: Interval) -> Telemetry:
    """Join the series of exporters (METRICS) with those of kube-state-metrics (POD_METRICS)."""
    directory = _Directory(pods, window)
    series = list(devices)
    # A target that sets `exported_pod` on any series names itself in `pod` on all others.
    exporters = {_target(one.labels) for one in series if one.labels.get("exported_pod")}
    found: dict[tuple[str, str], PodTelemetry] = {}
    unknown: set[PodName] = set()
    for one in series:
        name = _pod_of(one)
        if not name.pod or ("exported_pod" not in one.labels and _target(one.labels) in exporters):
            continue
        _add(found, unknown, one, name, directory, window)
    _mark_shared(found.values())
    return Telemetry(sorted(found.values(), key=lambda pod: (pod.namespace, pod.pod, pod.pod_uid)), sorted(unknown))


def _add(
    found: dict[tuple[str, str], PodTelemetry],
    unknown: set[PodName],
    one: Series,
    name: PodName,
    directory: "_Directory",
    window: Interval,
) -> None:
    device, unit = _device_of(one.labels), TENSOR_METRICS.get(one.name)
    values: dict[tuple[str, int], list[Fraction]] = defaultdict(list)
    for at, value in one.samples:
        number = (at - window.start) // BUCKET
        uid = one.labels.get("pod_uid") or directory.uid(name, number)
        if uid is None:
            unknown.add(name)
        elif directory.holds_devices(uid, one.labels):
            values[uid, number].append(Fraction(value))
    for (uid, number), reported in values.items():
        pod = found.get((name.namespace, uid)) or _new(found, name, uid, one.labels)
        pod.measured.setdefault(device, set()).add(number)
        if unit is not None:
            pod.tensor[device, number] = sum(reported, Fraction(0)) / len(reported) * unit


def _new(
    found: dict[tuple[str, str], PodTelemetry], name: PodName, uid: str, labels: Mapping[str, str]
) -> PodTelemetry:
    product = labels.get("modelName") or labels.get("model_name") or labels.get("modelname") or ""
    profile = labels.get("GPU_I_PROFILE", "")
    share = mig_share(f"mig-{profile}", product) if profile else None
    accelerator = normalised_product(product.replace(" ", "-"))
    pod = PodTelemetry(name.namespace, name.pod, uid, accelerator, share or Fraction(1), {}, {})
    found[name.namespace, uid] = pod
    return pod


def _pod_of(one: Series) -> PodName:
    """Return the pod that a series names.

    DCGM exporters use pod and namespace, their first versions pod_name and pod_namespace, Ascend's pod_name and namespace.

    Exporters with pod_name set none on an idle device, and a plain `pod` is then the exporter itself.
    """
    dcgm = one.name.startswith("DCGM_")
    pod = workload_label(one.labels, "pod" if dcgm else "pod_name")
    return PodName(workload_label(one.labels, "pod_namespace") or workload_label(one.labels, "namespace"), pod)


def _device_of(labels: Mapping[str, str]) -> str:
    """Return the identity of a card or of a MIG instance on it, independent of the scraped port."""
    card = next((labels[key] for key in ("UUID", "uuid", "vdie_id", "pcie_bus_info", "gpu", "id") if labels.get(key)), "")
    address = labels.get("instance", "")
    node = labels.get("hostname") or labels.get("Hostname") or address.rpartition(":")[0] or address
    instance = labels.get("GPU_I_ID", "")
    # A UUID of NVIDIA is unique by itself, an index only within its node.
    whole = card if card.startswith(("GPU-", "MIG-")) else f"{node}/{card}"
    return f"{whole}/{instance}" if instance else whole


def _target(labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the exporter behind a series: job, namespace and pod of the scrape target."""
    return labels.get("job", ""), labels.get("namespace", ""), labels.get("pod", "")


def _mark_shared(pods: Iterable[PodTelemetry]) -> None:
    """Mark pods that had one device in the same minute: the device's series measures them together."""
    users: dict[tuple[str, int], list[PodTelemetry]] = defaultdict(list)
    for pod in pods:
        for device, buckets in pod.measured.items():
            for number in buckets:
                users[device, number].append(pod)
    for together in users.values():
        if len(together) > 1:
            for pod in together:
                pod.shared = True


class _Directory:
    """Directory of pods: the UID behind a pod name in each minute, and the pods that requested devices."""

    def __init__(self, series: Iterable[Series], window: Interval) -> None:
        self._uids: dict[PodName, dict[int, str]] = defaultdict(dict)
        self._last: dict[PodName, set[str]] = defaultdict(set)
        self._holders: set[str] = set()
        for one in series:
            labels = one.labels
            name = PodName(workload_label(labels, "namespace"), workload_label(labels, "pod"))
            uid = labels.get("uid", "")
            if one.name == "kube_pod_info" and uid:
                self._last[name].add(uid)
                self._uids[name].update({(at - window.start) // BUCKET: uid for at, _ in one.samples})
            elif one.name == "kube_pod_container_resource_requests" and resource_of(labels.get("resource", "")):
                self._holders.add(uid)

    def uid(self, name: PodName, number: int) -> str | None:
        """Return the UID of that name in that minute; between scrapes the only one that had the name in the window."""
        reported = self._uids.get(name, {}).get(number)
        every = self._last.get(name, set())
        return reported or (next(iter(every)) if len(every) == 1 else None)

    def holds_devices(self, uid: str, labels: Mapping[str, str]) -> bool:
        """Return True if the pod requested devices, as far as that is known: the exporter's own pod did not."""
        claimed = any(label.startswith("dra_") for label in labels)
        return not self._holders or uid in self._holders or claimed


def bucket_interval(window: Interval, number: int) -> Interval:
    """Return the time of a bucket of a window."""
    start = window.start + BUCKET * number
    return Interval(start, min(start + BUCKET, window.end))
