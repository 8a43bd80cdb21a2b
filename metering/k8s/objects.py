"""PURE: pods and nodes decoded from bytes of the API server, reduced to the fields that are billed.

Other fields are not decoded: a relist of a large cluster then costs a sixtieth of decoding whole objects, and environment
values never reach the agent's memory or disk.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec

from metering.accelerator_resources import COUNTED, KAI_RESERVATIONS, KAI_SCHEDULERS, KAI_SHARE, POD_GRANTS, ROWS, ShareRule
from metering.accelerators import is_extended, resource_row
from metering.attribution import Owner
from metering.claims import HiddenClaim, PodClaim, PodClaims, claims_named
from metering.kai import FRACTION, MEMORY, OF_CONTAINER, kai_devices, speaks_of_share
from metering.observations import TERMINAL, Condition, ContainerState, PodSnapshot
from metering.requests import Container, RequestError, Slot, effective_requests, quantities_of, slots_of

Stamp = Annotated[datetime, msgspec.Meta(tz=True)]
KEPT_DOMAINS: Final = {
    "volcano.sh", "koordinator.sh", "scheduling.k8s.io",
    "yunikorn.apache.org", "x-k8s.io", "kubeflow.org", "ray.io", "resource.kubernetes.io",
} | {grant.partition("/")[0] for row in ROWS for grant in row.grants}  # fmt: skip
"""Domains of annotations that say whose a pod is or what it was granted. Others are not kept: a last-applied configuration
holds environment values."""
CLASS_DOMAIN: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of resources that Kubernetes names after a device class: the claim behind them shows the devices."""
KAI_NAMES: Final = (f'"{FRACTION}"'.encode(), f'"{MEMORY}"'.encode(), f'"{OF_CONTAINER}'.encode())
KAI_GROUP: Final = "runai-gpu-group"
"""Label by which KAI marks the pods that share a device, and the pod that keeps it for them; `runai-gpu-group/GROUP` where
one shares several.  Source: kai-scheduler/KAI-Scheduler pkg/common/resources/gpu_sharing.go."""
LOST_NODE: Final = "node.kubernetes.io/unreachable"


class Fields(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of decoded objects: unknown fields are skipped, names are those of the API."""


class OwnerReference(Fields, frozen=True, gc=False):
    """Entry of metadata.ownerReferences[]."""

    kind: str
    name: str
    uid: str | None = None
    api_version: str = ""
    controller: bool | None = None


class Metadata(Fields, frozen=True, gc=False):
    """Field `metadata` of a pod or node."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""
    creation_timestamp: Stamp | None = None
    deletion_timestamp: Stamp | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


Quantities = dict[str, str | int] | None


class Resources(Fields, frozen=True, gc=False):
    """Field `resources` of a container."""

    requests: Quantities = None
    limits: Quantities = None


class ContainerSpec(Fields, frozen=True, gc=False):
    """Container of the spec."""

    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None


class PodSpec(Fields, frozen=True, gc=False):
    """Field `spec` of a pod."""

    node_name: str | None = None
    scheduler_name: str | None = None
    priority_class_name: str | None = None
    containers: tuple[ContainerSpec, ...] | None = None
    init_containers: tuple[ContainerSpec, ...] | None = None
    overhead: Quantities = None
    resource_claims: tuple[PodClaim, ...] | None = None


class Terminated(Fields, frozen=True, gc=False):
    """Field `state.terminated` of a container."""

    finished_at: Stamp | None = None


class Running(Fields, frozen=True, gc=False):
    """Field `state.running` of a container: its presence says that the container runs."""


class State(Fields, frozen=True, gc=False):
    """Current state of a container."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Fields, frozen=True, gc=False):
    """Status of a container; `last_state` shows that it ran before a restart."""

    name: str = ""
    state: State | None = None
    last_state: State | None = None


class ObjectCondition(Fields, frozen=True, gc=False):
    """Condition of a pod or node."""

    type: str
    status: str = "Unknown"
    reason: str | None = None
    message: str | None = None
    last_transition_time: Stamp | None = None


class PodStatus(Fields, frozen=True, gc=False):
    """Field `status` of a pod."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    start_time: Stamp | None = None
    conditions: tuple[ObjectCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resource_claim_statuses: tuple[PodClaim, ...] | None = None
    extended_resource_claim_status: HiddenClaim | None = None


class Pod(Fields, frozen=True, gc=False):
    """Pod as far as it is billed. Metadata and status of pods without accelerators are never decoded."""

    metadata: msgspec.Raw
    spec: PodSpec
    status: msgspec.Raw = msgspec.Raw(b"{}")


class Taint(Fields, frozen=True, gc=False):
    """Entry of spec.taints[] of a node."""

    key: str


class NodeSpec(Fields, frozen=True, gc=False):
    """Field `spec` of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(Fields, frozen=True, gc=False):
    """Field `status` of a node."""

    capacity: Quantities = None
    allocatable: Quantities = None
    conditions: tuple[ObjectCondition, ...] | None = None


class Node(Fields, frozen=True, gc=False):
    """Node as far as it is billed."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


NO_CLAIMS: Final = PodClaims()
NO_ALIASES: Final[Mapping[str, str]] = {}


class SliceMetadata(Fields, frozen=True, gc=False):
    """Field `metadata` of a ResourceSlice."""

    name: str
    resource_version: str = ""


class Slice(Fields, frozen=True, gc=False):
    """ResourceSlice: devices of a node, or of a part of the cluster, under one driver."""

    metadata: SliceMetadata
    spec: dict[str, Any]


class PodFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts of a pod that do not change while it holds devices: identity, requests, claims. `slots`: its containers, where a
    scheduler wrote what it gave to each.
    """

    namespace: str
    name: str
    uid: str
    requests: dict[str, int]
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owners: tuple[Owner, ...] = ()
    scheduler: str = ""
    priority_class: str = ""
    created_at: Stamp | None = None
    claims: PodClaims = NO_CLAIMS
    slots: tuple[Slot, ...] = ()

    @property
    def subject(self) -> str:
        """Return the subject of the pod's problems, with its UID, since a name alone is given again to other pods."""
        return f"pod {self.namespace}/{self.name} ({self.uid})"


class SeenPod(msgspec.Struct, frozen=True):
    """Pod with accelerators: its facts, and the metadata and status from which snapshots are made."""

    facts: PodFacts
    metadata: Metadata
    status: PodStatus
    node: str

    @property
    def version(self) -> int:
        """Return the resource version; versions grow, and are comparable by contract since KEP-5504."""
        return int(self.metadata.resource_version)

    def snapshot(self, observed_at: datetime) -> PodSnapshot:
        """Return a snapshot as the rules of allocations read it."""
        statuses = (*(self.status.init_container_statuses or ()), *(self.status.container_statuses or ()))
        return PodSnapshot(
            uid=self.facts.uid, version=self.version, observed_at=observed_at, phase=self.status.phase, node=self.node,
            reason=self.status.reason or "", message=(self.status.message or "")[:200],
            conditions=tuple(
                Condition(item.type, item.status, item.last_transition_time, item.reason or "", (item.message or "")[:200])
                for item in self.status.conditions or () if item.type in TELLING
            ),
            containers=tuple(_container_state(item) for item in statuses), start_time=self.status.start_time,
            deletion_timestamp=self.metadata.deletion_timestamp,
            deletion_grace_seconds=self.metadata.deletion_grace_period_seconds,
        )  # fmt: skip


TELLING: Final = frozenset({"PodScheduled", "DisruptionTarget", "Ready"})
"""Types of conditions that show when an allocation began or why it ended."""

T = TypeVar("T")


class ListMetadata(Fields, frozen=True, gc=False):
    """Field `metadata` of a list page; `continue_` is the token of the next page."""

    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class Page(Fields, Generic[T], frozen=True, gc=False):
    """Page of a list."""

    metadata: ListMetadata = ListMetadata()
    items: list[T] | None = None


class WatchEvent(Fields, frozen=True, gc=False):
    """Line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class Failure(Fields, frozen=True, gc=False):
    """Status object: the reason why the server refuses."""

    code: int = 0
    reason: str | None = None
    message: str | None = None


class GroupVersion(Fields, frozen=True, gc=False):
    """Version of an API group, as discovery reports it."""

    version: str = ""


class ApiGroup(Fields, frozen=True, gc=False):
    """API group, as discovery reports it."""

    versions: tuple[GroupVersion, ...] = ()


class VersionOnly(Fields, frozen=True, gc=False):
    """Object of any kind, reduced to its version."""

    metadata: ListMetadata = ListMetadata()


watch_event: Final = msgspec.json.Decoder(WatchEvent)
api_group: Final = msgspec.json.Decoder(ApiGroup)
failure_of: Final = msgspec.json.Decoder(Failure)
version_of: Final = msgspec.json.Decoder(VersionOnly)
_metadata: Final = msgspec.json.Decoder(Metadata)
_status: Final = msgspec.json.Decoder(PodStatus)


def seen_pod(pod: Pod, aliases: Mapping[str, str] = NO_ALIASES) -> SeenPod | None:
    """Return the pod with its requests for extended resources and its claims; None if it has neither.

    `aliases`: the table's name of a resource that a plugin offers under a name of its own.

    A share of KAI is requested by annotation: the requesting pod holds it, and the pod by which KAI reserves the card for
    all that share it holds nothing. KAI gives no share to a pod that requests whole devices, and none that it did not place.

    Raises RequestError for a quantity that is no whole number and for a pod that shares a card in a way that is not
    understood, and msgspec.ValidationError for an object that is no pod.
    """
    requests = _requests(pod.spec, aliases)
    if not requests and not pod.spec.resource_claims and not _names_class(pod.spec) and not _may_share(pod):
        return None
    metadata, status = _metadata.decode(pod.metadata), _status.decode(pod.status)
    shares = bool(kai_groups(metadata.labels))
    if shares and metadata.namespace in KAI_RESERVATIONS:
        return None
    if not any(map(_is_nvidia, requests)):
        if _asks_kai(pod) and (devices := kai_devices(metadata.annotations or {})):
            requests = {**requests, KAI_SHARE: devices}
        elif shares and pod.spec.node_name and status.phase not in TERMINAL:
            raise RequestError(f"it shares a card ({KAI_GROUP}), and nothing on it that is understood says how much of it")
    claims = _claims(pod.spec, status)
    if not requests and not claims.counted:
        return None
    granted = any(map(POD_GRANTS.fullmatch, metadata.annotations or {}))
    slots = _slots(pod.spec, aliases) if granted or any(map(_is_by_container, requests)) else ()
    facts = PodFacts(
        namespace=metadata.namespace, name=metadata.name, uid=metadata.uid, requests=requests,
        labels=metadata.labels or {}, annotations=_kept(metadata.annotations or {}),
        owners=owners_of(metadata.owner_references)[:1],
        scheduler=pod.spec.scheduler_name or "", priority_class=pod.spec.priority_class_name or "",
        created_at=metadata.creation_timestamp, claims=claims, slots=slots,
    )  # fmt: skip
    return SeenPod(facts, metadata, status, pod.spec.node_name or "")


def kai_groups(labels: Mapping[str, str] | None) -> frozenset[str]:
    """Return the groups of pods that share a device of KAI to which a pod belongs by its labels."""
    return frozenset(group for label, group in (labels or {}).items() if label.partition("/")[0] == KAI_GROUP)


def kept_for(pod: Pod) -> tuple[Metadata, frozenset[str]] | None:
    """Return metadata and groups of KAI's own pod that keeps a device for sharing pods; None for any other pod."""
    if KAI_GROUP.encode() not in bytes(pod.metadata):
        return None
    metadata = _metadata.decode(pod.metadata)
    groups = kai_groups(metadata.labels)
    return (metadata, groups) if groups and metadata.namespace in KAI_RESERVATIONS else None


def owners_of(references: tuple[OwnerReference, ...] | None) -> tuple[Owner, ...]:
    """Return the owners of an object, its controller first."""
    ordered = sorted(references or (), key=lambda owner: not owner.controller)
    return tuple(Owner(item.kind, item.name, item.uid, item.api_version.rpartition("/")[0]) for item in ordered)


Complaint = tuple[str, str]
"""Subject that cannot be read, and the reason."""


def complaint(kind: str, metadata: object, error: Exception) -> Complaint:
    """Return the problem of an object of `pods`, `nodes`, ..., named by as much of its metadata as there is: two objects
    with the same fault are two problems.
    """
    known = metadata if isinstance(metadata, dict) else {}
    namespace, name, uid = (str(known.get(field) or "")[:253] for field in ("namespace", "name", "uid"))
    if not name and not uid:
        return f"{kind}: {str(error)[:100]}", f"cannot be read: {error}"
    return f"{kind.removesuffix('s')} {namespace}{'/' if namespace else ''}{name} ({uid})", f"cannot be read: {error}"


def node_quantities(given: Quantities, aliases: Mapping[str, str] = NO_ALIASES) -> dict[str, int]:
    """Return units per extended resource; an unreadable quantity is left out, other resources of the node stay."""
    found: dict[str, int] = {}
    for name, value in (given or {}).items():
        try:
            found.update(quantities_of({aliases.get(name, name): value}))
        except RequestError:
            continue
    return found


def node_condition(node: Node) -> str:
    """Return why a node is unusable: `not ready`, `unknown`, `cordoned`, several joined; "" if it is usable."""
    ready = next((item.status for item in node.status.conditions or () if item.type == "Ready"), "Unknown")
    lost = any(taint.key == LOST_NODE for taint in node.spec.taints or ())
    words = {"True": [], "False": ["not ready"]}.get(ready, ["unknown"])
    return ", ".join([*(["unknown"] if lost and not words else words), *(["cordoned"] if node.spec.unschedulable else [])])


def _requests(spec: PodSpec, aliases: Mapping[str, str]) -> dict[str, int]:
    """Return effective requests, without building anything for the many pods that request cpu and memory only."""
    if not any(map(_extended, _asked_names(spec))):
        return {}
    overhead = quantities_of(spec.overhead) if spec.overhead else None
    init = _containers(spec.init_containers, aliases)
    return effective_requests(_containers(spec.containers, aliases), init, overhead)


def _slots(spec: PodSpec, aliases: Mapping[str, str]) -> tuple[Slot, ...]:
    return slots_of(_containers(spec.containers, aliases), _containers(spec.init_containers, aliases))


def _containers(specs: tuple[ContainerSpec, ...] | None, aliases: Mapping[str, str]) -> list[Container]:
    return [_container(item, aliases) for item in specs or ()]


def _asked_names(spec: PodSpec) -> Iterator[str]:
    """Yield names of the resources that containers request."""
    for item in (*(spec.containers or ()), *(spec.init_containers or ())):
        if item.resources:
            yield from item.resources.requests or ()
            yield from item.resources.limits or ()


def _claims(spec: PodSpec, status: PodStatus) -> PodClaims:
    if not spec.resource_claims and status.extended_resource_claim_status is None:
        return NO_CLAIMS
    return claims_named(spec.resource_claims, status.resource_claim_statuses, status.extended_resource_claim_status)


def _names_class(spec: PodSpec) -> bool:
    return any(name.startswith(CLASS_DOMAIN) for name in _asked_names(spec))


@lru_cache(maxsize=4096)
def _extended(name: str) -> bool:
    return "/" in name and is_extended(name)


def _container(spec: ContainerSpec, aliases: Mapping[str, str]) -> Container:
    given = spec.resources or Resources()
    requests = _only_extended(given.requests, spec.name, aliases)
    limits = _only_extended(given.limits, spec.name, aliases)
    return Container(spec.name, requests, limits, spec.restart_policy == "Always")


def _only_extended(given: Quantities, container: str, aliases: Mapping[str, str]) -> dict[str, int]:
    named = {aliases.get(name, name): value for name, value in (given or {}).items() if _extended(name)}
    return quantities_of(named, container) if named else {}


def _kept(annotations: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value for key, value in annotations.items() if _is_kept(key.partition("/")[0]) or speaks_of_share(key)
    }


def _asks_kai(pod: Pod) -> bool:
    """Return True if KAI placed the pod and its metadata, not decoded, may name annotations of KAI."""
    if pod.spec.scheduler_name not in KAI_SCHEDULERS:
        return False
    text = bytes(pod.metadata)
    return any(name in text for name in KAI_NAMES)


def _may_share(pod: Pod) -> bool:
    """Return True if the pod may share a card by KAI; called for every pod, so without decoding it."""
    return _asks_kai(pod) or KAI_GROUP.encode() in bytes(pod.metadata)


def _is_by_container(resource: str) -> bool:
    return resource_row(resource).share is ShareRule.PERCENT


def _is_nvidia(resource: str) -> bool:
    row = resource_row(resource)
    return row.vendor == "nvidia" and row.kind in COUNTED


@lru_cache(maxsize=4096)
def _is_kept(domain: str) -> bool:
    return any(domain == name or domain.endswith(f".{name}") for name in KEPT_DOMAINS)


def _container_state(item: ContainerStatus) -> ContainerState:
    state, before = item.state or State(), item.last_state or State()
    ended = state.terminated
    started = bool(state.running or ended or before.terminated or before.running)
    return ContainerState(item.name, started, ended is not None, ended.finished_at if ended else None)
