"""PURE: attribution of a pod by its labels, annotations and owners: workload, queue, and place within the job.

Names are taken from the system that made the pod, else from the controller that owns it, else from the pod. The owner of
the job that a label names is what the user made: a RayJob above its RayCluster, a CronJob above its Job. A pod name is
never an identity: Volcano gives the pods of a restarted job the same names again, so allocations are keyed on the pod's UID
and job UID, version and retry are attributes. Which team pays is not decided here: labels can be set by the user.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from metering.records import Workload


@dataclass(frozen=True, slots=True)
class Owner:
    """Controller above the pod; `api_group` distinguishes Volcano's Job from the Kubernetes one."""

    kind: str
    name: str
    uid: str | None = None
    api_group: str = ""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Metadata that shows whose pod it is. `owners` go upwards from the pod, as far as they were looked up."""

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owners: Sequence[Owner] = ()
    scheduler: str = ""
    pod_group_queue: str | None = None
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)

    def mark(self, key: str) -> str | None:
        """Return the annotation, or else the label, of that key: several systems write both, or either."""
        return self.annotations.get(key) or self.labels.get(key) or None


@dataclass(frozen=True, slots=True)
class Attribution:
    """Workload, queue (None: unknown) and the place of the pod within its job."""

    workload: Workload
    queue: str | None
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class System:
    """System that marks its pods: keys that name the job, best first, and keys worth keeping as attributes.

    `only_with`: further keys that its pods must have, with their value, or "" for any: other systems write the same names.
    """

    kind: str
    job_keys: tuple[str, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    api_group: str = ""
    only_with: Mapping[str, str] = field(default_factory=dict)


YUNIKORN: Final = System(
    "Application",
    ("yunikorn.apache.org/app-id", "spark-app-selector", "applicationId"),
    {"placeholder": "yunikorn.apache.org/placeholder", "task_group": "yunikorn.apache.org/task-group-name"},
)
VOLCANO: Final = System(
    "Job",
    ("volcano.sh/job-name",),
    {"task": "volcano.sh/task-spec", "task_index": "volcano.sh/task-index", "job_version": "volcano.sh/job-version",
     "job_retry": "volcano.sh/job-retry-count", "pod_group": "scheduling.k8s.io/group-name"},
    "batch.volcano.sh",
)  # fmt: skip
SPARK: Final = System(
    "SparkApplication", ("sparkoperator.k8s.io/app-name",), {**YUNIKORN.attributes, "application": "spark-app-selector"}
)
KUBERAY: Final = System(
    "RayCluster",
    ("ray.io/originated-from-cr-name", "ray.io/cluster"),
    {"ray_cluster": "ray.io/cluster", "ray_node_type": "ray.io/node-type", "ray_group": "ray.io/group"},
)
KUBEFLOW: Final = System(
    "TrainingJob",
    ("training.kubeflow.org/job-name",),
    {"replica_type": "training.kubeflow.org/replica-type", "replica_index": "training.kubeflow.org/replica-index"},
)
JOB_SET: Final = System(
    "JobSet",
    ("jobset.sigs.k8s.io/jobset-name",),
    {"replicated_job": "jobset.sigs.k8s.io/replicatedjob-name"},
)
LEADER_WORKER_SET: Final = System(
    "LeaderWorkerSet",
    ("leaderworkerset.sigs.k8s.io/name",),
    {"group_index": "leaderworkerset.sigs.k8s.io/group-index"},
)
JOB: Final = System("Job", ("batch.kubernetes.io/job-name", "job-name"), {}, "batch")
KUEUE_GROUP: Final = System("PodGroup", ("kueue.x-k8s.io/pod-group-name",))

PART_OF, NAME_LABEL = "app.kubernetes.io/part-of", "app.kubernetes.io/name"
PLATFORMS: Final = (
    System("LLMInferenceService", (NAME_LABEL,), {"component": "app.kubernetes.io/component"},
           only_with={PART_OF: "llminferenceservice"}),
    System("InferenceService", ("serving.kserve.io/inferenceservice",),
           {"component": "component", "revision": "serving.knative.dev/revision"}),
    System("InferenceGraph", ("serving.kserve.io/inferencegraph",)),
    System("InferenceService", ("ome.io/inferenceservice",), {"component": "component"}),
    System("DynamoGraphDeployment", ("nvidia.com/dynamo-graph-deployment-name",),
           {"component": "nvidia.com/dynamo-component", "pod_clique": "grove.io/podclique"}),
    System("PodCliqueSet", (PART_OF,), {"pod_clique": "grove.io/podclique"}, only_with={"grove.io/podclique": ""}),
    System("StormService", ("storm-service-name",), {"role": "role-name"}, only_with={"roleset-name": ""}),
    System("ModelServing", ("modelserving.volcano.sh/name",), {"role": "modelserving.volcano.sh/role"}),
    System("SeldonDeployment", ("seldon-deployment-id",)),
    System("BentoDeployment", ("yatai.ai/bento-deployment",)),
    System("Service", ("serving.knative.dev/service", "serving.knative.dev/configuration"),
           {"revision": "serving.knative.dev/revision"}, "serving.knative.dev"),
    System("VirtualMachine", ("vm.kubevirt.io/name",)),
    System("Workflow", ("workflows.argoproj.io/workflow",)),
    System("PipelineRun", ("tekton.dev/pipelineRun",)),
    System("SkyPilotCluster", ("skypilot-cluster-name", "skypilot-cluster")),
    System("DaskCluster", ("dask.org/cluster-name",), {"component": "dask.org/component"}),
    System("FlinkDeployment", ("app",), {"component": "component"}, only_with={"type": "flink-native-kubernetes"}),
    System("Notebook", ("notebook-name",)),
)  # fmt: skip
"""Platforms that make their pods through other controllers, which change with every revision or are one of several: a label
names the object that the user made. Platforms that build on another come first: KServe before Knative, Dynamo before Grove.
Source: kserve/kserve pkg/constants, pkg/controller/v1alpha1/llmisvc; sgl-project/ome pkg/constants; ai-dynamo/dynamo
deploy/operator/internal/consts; ai-dynamo/grove operator/api/common; vllm-project/aibrix pkg/constants/stormservice.go;
volcano-sh/kthena; SeldonIO/seldon-core operator/apis; bentoml/yatai-deployment; knative/serving pkg/apis/serving;
kubevirt/kubevirt types; argoproj/argo-workflows workflow/common; tektoncd/pipeline; skypilot-org/skypilot
sky/provision/kubernetes; dask/dask-kubernetes; apache/flink-kubernetes-operator; kubeflow/kubeflow notebook-controller."""

SYSTEMS: Final = (SPARK, YUNIKORN, VOLCANO, *PLATFORMS, KUBERAY, KUBEFLOW, JOB_SET, LEADER_WORKER_SET)
"""Systems in the order in which they are tried. YuniKorn comes before the others: its gang placeholders know only the
application, and must be charged to the same workload as the pods that replace them. Spark comes before YuniKorn: on pods of
its operator the application is a random name.
Source: kubeflow/spark-operator pkg/common/spark.go; apache/yunikorn-k8shim pkg/common/constants; volcano-sh/volcano
job_controller_util.go; ray-project/kuberay constant.go; kubeflow/training-operator common_types.go."""
WITHOUT_CONTROLLER: Final = (JOB, KUEUE_GROUP)
"""Systems tried only if no owner is known: a Job may belong to a CronJob, which the owners show and the label does not."""

KUEUE_ATTRIBUTES: Final = {
    "kueue_workload": "kueue.x-k8s.io/workload",
    "kueue_podset": "kueue.x-k8s.io/podset",
    "local_queue": "kueue.x-k8s.io/local-queue-name",
}
KUBEFLOW_KINDS: Final = {
    kind.lower(): kind for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
}
QUEUE_KEYS: Final = (
    "kueue.x-k8s.io/cluster-queue-name",
    "scheduling.volcano.sh/queue-name",  # on pods that are not from a Volcano Job
    "volcano.sh/queue-name",  # on pods that are
    "yunikorn.apache.org/queue",
    "kai.scheduler/queue",
    "runai/queue",  # KAI before 0.6
    "quota.scheduling.koordinator.sh/name",
    "kueue.x-k8s.io/local-queue-name",
    "kueue.x-k8s.io/queue-name",
)
"""Annotations or labels that name the queue, best first.
Source: kai-scheduler/KAI-Scheduler pkg/common/constants, docs/migrationguides/v0.6.0; koordinator-sh/koordinator
apis/extension/elastic_quota.go."""
VOLCANO_NAMESPACE_QUEUE: Final = "scheduling.volcano.sh/queue-name"
HASHES: Final = {"rollouts-pod-template-hash": "Rollout", "pod-template-hash": "Deployment"}
"""Labels with the hash that ends the name of a pod's ReplicaSet, and the kind of the ReplicaSet's owner.
Source: argoproj/argo-rollouts pkg/apis/rollouts/v1alpha1/types.go."""
AUTOGENERATED_APP: Final = "-autogen"
"""Ending of the application under which YuniKorn's admission controller files every unmarked pod of a namespace."""


SLURM_SCHEDULER: Final = "slurm-bridge-scheduler"
SLURM_JOB: Final = "scheduler.slinky.slurm.net/slurm-jobid"


def accounted_by_slurm(pod: PodIdentity) -> bool:
    """Return True if Slurm also accounts for a pod's devices: jobs run in it (slurmd), or Slurm placed it by its own job.

    Source: SlinkyProject/slurm-operator (NodeSet, app.kubernetes.io/name), SlinkyProject/slurm-bridge; nebius/soperator
    internal/consts.
    """
    named = pod.labels.get(NAME_LABEL) == "slurmd"
    owned = any(owner.kind == "NodeSet" and owner.api_group.startswith("slinky.slurm.net") for owner in pod.owners)
    marked = any(label in pod.labels for label in ("slurm.nebius.ai/nodeset", SLURM_JOB))
    return named or owned or marked or pod.scheduler == SLURM_SCHEDULER


def attribute(pod: PodIdentity) -> Attribution:
    """Return workload, queue and attributes of a pod.

    >>> pod = PodIdentity("web-5d4-x", "u", {"pod-template-hash": "5d4"}, owners=(Owner("ReplicaSet", "web-5d4", "r"),))
    >>> attribute(pod).workload
    Workload(kind='Deployment', name='web', uid=None)
    """
    system = next((item for item in SYSTEMS if _job_name(item, pod)), None)
    if system is None:
        marked = next((_workload(item, pod) for item in WITHOUT_CONTROLLER if _job_name(item, pod)), None)
        workload = _controller(pod) or marked or Workload("Pod", pod.name, pod.uid)
        return Attribution(workload, queue_of(pod), _attributes(pod, None))
    return Attribution(_workload(system, pod), queue_of(pod), _attributes(pod, system))


def queue_of(pod: PodIdentity) -> str | None:
    """Return the queue: PodGroup -> Kueue cluster queue -> Volcano -> YuniKorn -> KAI -> Koordinator -> Kueue local -> None.

    Only the PodGroup is authoritative: Volcano's webhook may have filled it from the namespace, which the pod does not
    show. The bare label `queue` belongs to YuniKorn only on its own pods.
    """
    if pod.pod_group_queue:
        return pod.pod_group_queue
    if marked := next((value for key in QUEUE_KEYS if (value := pod.mark(key))), None):
        return marked
    if pod.scheduler == "yunikorn" or _job_name(YUNIKORN, pod):
        return pod.mark("queue")
    return pod.namespace_annotations.get(VOLCANO_NAMESPACE_QUEUE) if pod.scheduler == "volcano" else None


def _job_name(system: System, pod: PodIdentity) -> str | None:
    if any((found := pod.mark(key)) is None or (value and found != value) for key, value in system.only_with.items()):
        return None
    name = next((value for key in system.job_keys if (value := pod.mark(key))), None)
    if system is YUNIKORN and name and name.endswith(AUTOGENERATED_APP):
        return None
    return name


def _workload(system: System, pod: PodIdentity) -> Workload:
    """Return the job that labels name, or the top of its owner chain."""
    name = _job_name(system, pod) or pod.name
    kind = _kind(system, pod)
    # The label names an owner in the chain, at whose top is the user's object.
    if (kind, name) in ((owner.kind, owner.name) for owner in pod.owners):
        kind, name, uid = pod.owners[-1].kind, pod.owners[-1].name, pod.owners[-1].uid
        return Workload(kind, name, uid)
    return Workload(kind, name, _volcano_job_uid(pod, name) if system is VOLCANO else None)


def _kind(system: System, pod: PodIdentity) -> str:
    if system is KUBERAY and pod.mark("ray.io/originated-from-cr-name"):
        return pod.mark("ray.io/originated-from-crd") or system.kind
    if system is KUBEFLOW:
        operator = (pod.mark("training.kubeflow.org/operator-name") or "").removesuffix("-controller")
        owner = next((item.kind for item in pod.owners if item.kind.lower() in KUBEFLOW_KINDS), None)
        return owner or KUBEFLOW_KINDS.get(operator.lower(), system.kind)
    return system.kind


def _volcano_job_uid(pod: PodIdentity, job: str) -> str | None:
    """Return the UID of a Volcano Job: its PodGroup is named `<job>-<uid of the job>`; None if the name shows none."""
    group = pod.mark("scheduling.k8s.io/group-name") or ""
    return group.removeprefix(f"{job}-") if group.startswith(f"{job}-") and group != f"{job}-" else None


def _controller(pod: PodIdentity) -> Workload | None:
    """Return the top of the owner chain.

    A ReplicaSet whose owner was not looked up shows the name of its Deployment or Argo Rollout, and a ReplicationController
    that of its DeploymentConfig.
    """
    owners = [owner for owner in pod.owners if owner.kind != "Node"]  # a Node owns the mirror of a static pod
    if not owners:
        return None
    top = owners[-1]
    for key, kind in HASHES.items():
        suffix = f"-{pod.labels.get(key, '')}"
        if top.kind == "ReplicaSet" and suffix != "-" and top.name.endswith(suffix) and top.name != suffix:
            return Workload(kind, top.name.removesuffix(suffix))
    if top.kind == "ReplicationController" and (config := pod.labels.get("deploymentconfig")):
        return Workload("DeploymentConfig", config)
    return Workload(top.kind, top.name, top.uid)


def _attributes(pod: PodIdentity, system: System | None) -> dict[str, str]:
    keys = {**KUEUE_ATTRIBUTES, **(system.attributes if system else {})}
    found = {name: value for name, key in keys.items() if (value := pod.mark(key))}
    user = _yunikorn_user(pod)
    return {**found, "user": user} if user else found


def _yunikorn_user(pod: PodIdentity) -> str | None:
    try:
        info: Any = msgspec.json.decode(pod.annotations.get("yunikorn.apache.org/user.info") or "null")
    except msgspec.DecodeError:
        return None
    user = info.get("user") if isinstance(info, dict) else None
    return user if isinstance(user, str) and user else None
