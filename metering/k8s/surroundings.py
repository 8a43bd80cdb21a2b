"""Surroundings of a pod: its namespace's labels and annotations, its PodGroup's queue, controllers above its owner.

They are looked up once, when a pod is first seen bound, because that description is kept. Objects that cannot be read (no
right, not installed, deleted) are left out: who pays is decided by the namespace's name, which the pod itself has. A request
that fails for now is repeated, for as long as the pod can wait.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from metering.attribution import Owner
from metering.k8s.api import Api, ApiError, RefusedError
from metering.k8s.description import Surroundings
from metering.k8s.objects import OwnerReference, PodFacts, owners_of

FRESH: Final = timedelta(minutes=10)
MOST_KEPT: Final = 10_000
LONGEST_CHAIN: Final = 5
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
OWNERS: Final[Mapping[tuple[str, str], str]] = {
    ("Job", "batch"): "batch/v1/jobs",  # of a CronJob or a JobSet
    ("Job", "batch.volcano.sh"): "batch.volcano.sh/v1alpha1/jobs",  # of a Volcano CronJob
    ("JobSet", "jobset.x-k8s.io"): "jobset.x-k8s.io/v1alpha2/jobsets",  # of a TrainJob
    ("RayCluster", "ray.io"): "ray.io/v1/rayclusters",  # of a RayJob or a RayService
    ("RayJob", "ray.io"): "ray.io/v1/rayjobs",  # of a RayCronJob
    ("Workflow", "argoproj.io"): "argoproj.io/v1alpha1/workflows",  # of a CronWorkflow
    ("PyTorchJob", "kubeflow.org"): "kubeflow.org/v1/pytorchjobs",  # of a Katib Trial, a Workflow, an AppWrapper
    ("MPIJob", "kubeflow.org"): "kubeflow.org/v2beta1/mpijobs",
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): "leaderworkerset.x-k8s.io/v1/leaderworkersets",
    ("Trial", "kubeflow.org"): "kubeflow.org/v1beta1/trials",  # of an Experiment
    ("TaskRun", "tekton.dev"): "tekton.dev/v1/taskruns",  # of a PipelineRun
}
"""Paths of controllers that another may own without the pod showing it, by kind and API group. A Deployment shows in
the hash on the pod, a SparkApplication in labels.
Source: ray-project/kuberay rayjob_controller.go, rayservice_controller.go, raycronjob_controller.go and common/pod.go
(labelPod: no label of the RayJob on pods); kubeflow/trainer plugins/jobset; volcano-sh/volcano
cronjob_controller_util.go."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class _Spec(msgspec.Struct, frozen=True):
    queue: str | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


NOTHING: Final = _Object()


class Lookup:
    """Lookup at the API server that remembers answers for ten minutes; `labels` of a namespace are passed on.

    `owners`: kinds whose own owner is looked up, by kind and API group, with `GROUP/VERSION/PLURAL` of each.
    """

    def __init__(
        self,
        api: Api,
        labels: tuple[str, ...],
        now: Callable[[], datetime],
        owners: Mapping[tuple[str, str], str] = OWNERS,
    ) -> None:
        self._api, self._labels, self._now, self._owners = api, labels, now, owners
        self._kept: dict[str, tuple[datetime, _Object]] = {}

    def __call__(self, facts: PodFacts) -> Surroundings:
        """Return the pod's surroundings."""
        volcano = facts.scheduler == "volcano"
        namespace = self._ask(f"/api/v1/namespaces/{facts.namespace}") if self._labels or volcano else NOTHING
        group = facts.annotations.get(GROUP_NAME) if volcano else None
        folder = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{facts.namespace}/podgroups"
        pod_group = self._ask(f"{folder}/{group}") if group else NOTHING
        owners, complete = self._above(facts)
        around = namespace or NOTHING
        labels = around.metadata.labels or {}
        return Surroundings(
            {key: labels[key] for key in self._labels if key in labels}, around.metadata.annotations or {},
            pod_group.spec.queue if pod_group else None, owners,
            complete and namespace is not None and pod_group is not None,
        )  # fmt: skip

    def _above(self, facts: PodFacts) -> tuple[tuple[Owner, ...], bool]:
        """Return controllers above the pod's first owner, upwards, and True if the chain was followed to its end."""
        found: list[Owner] = []
        owner = facts.owners[0] if facts.owners else None
        while owner is not None and len(found) < LONGEST_CHAIN:
            path = self._owners.get((owner.kind, owner.api_group))
            if path is None:
                break
            group, version, plural = path.split("/")
            seen = self._ask(f"/apis/{group}/{version}/namespaces/{facts.namespace}/{plural}/{owner.name}")
            if seen is None:
                return tuple(found), False
            if seen.metadata.uid != owner.uid:
                break  # another one of that name: the pod's own is gone
            owner = next(iter(owners_of(seen.metadata.owner_references)), None)
            if owner is not None:
                found.append(owner)
        return tuple(found), True

    def _ask(self, path: str) -> _Object | None:
        """Return the object; an empty one if it cannot be read at all, None if it cannot be read now."""
        known = self._kept.get(path)
        if known and self._now() - known[0] < FRESH:
            return known[1]
        try:
            found = msgspec.json.decode(self._api.get(path, {}), type=_Object)
        except RefusedError:
            found = NOTHING
        except (ApiError, msgspec.DecodeError):
            return None
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[path] = (self._now(), found)
        return found
