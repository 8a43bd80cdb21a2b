"""Whose pod it is: one story per system, with the labels and annotations that it really writes."""

from dataclasses import replace

import pytest

from metering.attribution import Owner, PodIdentity, attribute, queue_of
from metering.records import Workload

JOB_UID = "7a1c9b52-5a3e-4a52-9a0e-000000000001"


def pod(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, *owners: Owner) -> PodIdentity:
    return PodIdentity("p-0", "pod-uid", labels or {}, annotations or {}, owners)


VOLCANO = pod(
    {"volcano.sh/job-name": "pretrain", "volcano.sh/queue-name": "research", "volcano.sh/task-spec": "worker"},
    {
        "volcano.sh/job-name": "pretrain", "volcano.sh/task-spec": "worker", "volcano.sh/task-index": "3",
        "volcano.sh/job-version": "2", "volcano.sh/job-retry-count": "1", "volcano.sh/queue-name": "research",
        "scheduling.k8s.io/group-name": f"pretrain-{JOB_UID}",
    },
)  # fmt: skip


def test_a_volcano_job_is_named_with_its_uid_version_and_retry() -> None:
    found = attribute(VOLCANO)
    assert found.workload == Workload("Job", "pretrain", JOB_UID)
    assert found.queue == "research"
    assert found.attributes == {
        "task": "worker", "task_index": "3", "job_version": "2", "job_retry": "1", "pod_group": f"pretrain-{JOB_UID}",
    }  # fmt: skip


def test_the_owner_gives_the_uid_of_a_volcano_job_where_it_is_known() -> None:
    owned = replace(VOLCANO, owners=(Owner("Job", "pretrain", "from-owner", "batch.volcano.sh"),))
    assert attribute(owned).workload.uid == "from-owner"


def test_the_queue_of_the_pod_group_is_the_authority() -> None:
    assert queue_of(replace(VOLCANO, pod_group_queue="other")) == "other"


def test_a_deployment_under_volcano_chooses_its_queue_by_the_other_prefix() -> None:
    web = pod(
        {"pod-template-hash": "5d4"},
        {"scheduling.volcano.sh/queue-name": "serving", "scheduling.k8s.io/group-name": "podgroup-abc"},
        Owner("ReplicaSet", "web-5d4", "r"),
    )
    found = attribute(web)
    assert (found.workload, found.queue) == (Workload("Deployment", "web"), "serving")


def test_the_namespace_names_the_queue_only_under_volcano() -> None:
    bare = replace(pod(), namespace_annotations={"scheduling.volcano.sh/queue-name": "ns-queue"})
    assert queue_of(bare) is None
    assert queue_of(replace(bare, scheduler="volcano")) == "ns-queue"


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({"yunikorn.apache.org/app-id": "app-1", "yunikorn.apache.org/queue": "root.nlp"}, {}),
        ({"applicationId": "app-1", "queue": "root.nlp"}, {}),
        ({"spark-app-selector": "app-1", "queue": "root.nlp"}, {}),
        ({}, {"yunikorn.apache.org/app-id": "app-1", "yunikorn.apache.org/queue": "root.nlp"}),
    ],
)
def test_yunikorn_names_application_and_queue(labels: dict[str, str], annotations: dict[str, str]) -> None:
    found = attribute(pod(labels, annotations))
    assert (found.workload, found.queue) == (Workload("Application", "app-1"), "root.nlp")


def test_gang_placeholders_are_charged_to_the_application_of_the_pods_that_replace_them() -> None:
    placeholder = pod(
        {"yunikorn.apache.org/app-id": "app-1"},
        {"yunikorn.apache.org/placeholder": "true", "yunikorn.apache.org/task-group-name": "workers",
         "yunikorn.apache.org/user.info": '{"user": "ann", "groups": ["nlp"]}'},
    )  # fmt: skip
    real = pod({"yunikorn.apache.org/app-id": "app-1", "training.kubeflow.org/job-name": "llm"})
    assert attribute(placeholder).workload == attribute(real).workload == Workload("Application", "app-1")
    assert attribute(placeholder).attributes == {"placeholder": "true", "task_group": "workers", "user": "ann"}


def test_an_application_that_yunikorn_made_up_for_a_whole_namespace_is_no_workload() -> None:
    found = attribute(pod({"applicationId": "yunikorn-nlp-autogen"}, {}, Owner("StatefulSet", "db", "s")))
    assert found.workload == Workload("StatefulSet", "db", "s")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"user": 1}'])
def test_a_broken_user_of_yunikorn_is_left_out(text: str) -> None:
    assert attribute(pod({}, {"yunikorn.apache.org/user.info": text})).attributes == {}


def test_the_bare_label_queue_of_another_system_is_not_a_queue() -> None:
    assert queue_of(pod({"queue": "celery"})) is None
    assert queue_of(replace(pod({"queue": "root.nlp"}), scheduler="yunikorn")) == "root.nlp"


def test_kueue_names_the_cluster_queue_before_the_local_one() -> None:
    admitted = {
        "kueue.x-k8s.io/queue-name": "user-queue", "kueue.x-k8s.io/local-queue-name": "user-queue",
        "kueue.x-k8s.io/cluster-queue-name": "a800-pool", "kueue.x-k8s.io/podset": "main",
        "batch.kubernetes.io/job-name": "sweep",
    }  # fmt: skip
    found = attribute(pod(admitted, {"kueue.x-k8s.io/workload": "job-sweep-1"}, Owner("Job", "sweep", "j", "batch")))
    assert (found.workload, found.queue) == (Workload("Job", "sweep", "j"), "a800-pool")
    assert found.attributes == {"kueue_workload": "job-sweep-1", "kueue_podset": "main", "local_queue": "user-queue"}
    assert queue_of(pod({"kueue.x-k8s.io/queue-name": "user-queue"})) == "user-queue"


def test_a_kueue_group_of_plain_pods_is_one_workload() -> None:
    assert attribute(pod({"kueue.x-k8s.io/pod-group-name": "group"})).workload == Workload("PodGroup", "group")


def test_kuberay_names_the_resource_that_the_cluster_came_from() -> None:
    labels = {
        "ray.io/cluster": "tune-raycluster-x", "ray.io/node-type": "worker", "ray.io/group": "gpu",
        "ray.io/originated-from-cr-name": "tune", "ray.io/originated-from-crd": "RayJob",
    }  # fmt: skip
    owners = (Owner("RayCluster", "tune-raycluster-x", "c"), Owner("RayJob", "tune", "j"))
    found = attribute(pod(labels, {}, *owners))
    assert found.workload == Workload("RayJob", "tune", "j")
    assert found.attributes == {"ray_cluster": "tune-raycluster-x", "ray_node_type": "worker", "ray_group": "gpu"}
    alone = pod({"ray.io/cluster": "dev"}, {}, Owner("RayCluster", "dev", "c"))
    assert attribute(alone).workload == Workload("RayCluster", "dev", "c")


RAY_POD = {"ray.io/cluster": "tune-vx7k2", "ray.io/node-type": "worker", "ray.io/group": "gpu"}
"""All that KubeRay writes on a pod: where the cluster came from is on the RayCluster."""


@pytest.mark.parametrize(
    ("labels", "owners", "workload"),
    [
        (RAY_POD, (Owner("RayCluster", "tune-vx7k2", "c", "ray.io"), Owner("RayJob", "tune", "j", "ray.io")),
         Workload("RayJob", "tune", "j")),
        (RAY_POD, (Owner("RayCluster", "tune-vx7k2", "c", "ray.io"), Owner("RayService", "chat", "s", "ray.io")),
         Workload("RayService", "chat", "s")),
        (RAY_POD, (Owner("RayCluster", "tune-vx7k2", "c", "ray.io"), Owner("RayJob", "tune-29", "j", "ray.io"),
                   Owner("RayCronJob", "tune", "n", "ray.io")), Workload("RayCronJob", "tune", "n")),
        (RAY_POD, (Owner("RayCluster", "tune-vx7k2", "c", "ray.io"),), Workload("RayCluster", "tune-vx7k2", "c")),
        (RAY_POD, (), Workload("RayCluster", "tune-vx7k2")),
        (VOLCANO.labels,
         (Owner("Job", "pretrain", "v", "batch.volcano.sh"), Owner("CronJob", "nightly", "n", "batch.volcano.sh")),
         Workload("CronJob", "nightly", "n")),
        ({"jobset.sigs.k8s.io/jobset-name": "llm"},
         (Owner("Job", "llm-node-0", "b", "batch"), Owner("JobSet", "llm", "s", "jobset.x-k8s.io"),
          Owner("TrainJob", "llm", "t", "trainer.kubeflow.org")), Workload("TrainJob", "llm", "t")),
        ({"training.kubeflow.org/job-name": "llm"},
         (Owner("PyTorchJob", "llm", "p", "kubeflow.org"), Owner("Workflow", "nightly", "w", "argoproj.io")),
         Workload("Workflow", "nightly", "w")),
        ({"yunikorn.apache.org/app-id": "app-1"},
         (Owner("Job", "x", "j", "batch"), Owner("Workflow", "w", "u", "argoproj.io")), Workload("Application", "app-1")),
    ],
)  # fmt: skip
def test_what_owns_the_job_that_a_label_names_is_the_workload(
    labels: dict[str, str], owners: tuple[Owner, ...], workload: Workload
) -> None:
    """YuniKorn's application owns pods of several controllers, and its placeholders have no other: it stays."""
    assert attribute(pod(labels, {}, *owners)).workload == workload


@pytest.mark.parametrize(
    ("role", "owner"),
    [
        ("driver", Owner("SparkApplication", "etl", "s", "sparkoperator.k8s.io")),
        ("executor", Owner("Pod", "etl-driver", "d")),
    ],
)
def test_driver_and_executors_are_of_the_spark_application(role: str, owner: Owner) -> None:
    labels = {
        "sparkoperator.k8s.io/app-name": "etl", "spark-app-selector": "spark-5f0c", "spark-role": role, "queue": "root.nlp",
    }  # fmt: skip
    found = attribute(pod(labels, {"yunikorn.apache.org/task-group-name": "spark-executor"}, owner))
    assert found.workload == Workload("SparkApplication", "etl", "s" if role == "driver" else None)
    assert found.attributes == {"application": "spark-5f0c", "task_group": "spark-executor"}
    assert found.queue == "root.nlp"


@pytest.mark.parametrize(
    ("labels", "queue"),
    [
        ({"kai.scheduler/queue": "team-a"}, "team-a"),
        ({"runai/queue": "team-b"}, "team-b"),
        ({"quota.scheduling.koordinator.sh/name": "team-c"}, "team-c"),
        ({"kai.scheduler/queue": "team-a", "kueue.x-k8s.io/queue-name": "user-queue"}, "team-a"),
        ({"kai.scheduler/queue": "team-a", "kueue.x-k8s.io/cluster-queue-name": "pool"}, "pool"),
    ],
)
def test_kai_and_koordinator_name_the_queue_by_a_label(labels: dict[str, str], queue: str) -> None:
    assert queue_of(pod(labels)) == queue


@pytest.mark.parametrize(
    ("operator", "owners", "workload"),
    [
        ("pytorchjob-controller", (), Workload("PyTorchJob", "llm")),
        ("", (Owner("MPIJob", "llm", "m"),), Workload("MPIJob", "llm", "m")),
        ("", (), Workload("TrainingJob", "llm")),
    ],
)
def test_kubeflow_v1_shows_the_kind_by_owner_or_operator(
    operator: str, owners: tuple[Owner, ...], workload: Workload
) -> None:
    labels = {
        "training.kubeflow.org/job-name": "llm", "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0", "training.kubeflow.org/operator-name": operator,
    }  # fmt: skip
    found = attribute(pod(labels, {}, *owners))
    assert (found.workload, found.attributes) == (workload, {"replica_type": "worker", "replica_index": "0"})


@pytest.mark.parametrize(
    ("labels", "owners", "workload"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "js", "batch.kubernetes.io/job-name": "js-w-0"},
         (Owner("Job", "js-w-0", "j"), Owner("JobSet", "js", "s")), Workload("JobSet", "js", "s")),
        ({"leaderworkerset.sigs.k8s.io/name": "vllm"}, (Owner("StatefulSet", "vllm-0", "x"),),
         Workload("LeaderWorkerSet", "vllm")),
        ({"batch.kubernetes.io/job-name": "nightly-1"}, (Owner("Job", "nightly-1", "j"), Owner("CronJob", "nightly", "c")),
         Workload("CronJob", "nightly", "c")),
        ({"batch.kubernetes.io/job-name": "once"}, (), Workload("Job", "once")),
        ({"job-name": "once"}, (Owner("Job", "once", "j"),), Workload("Job", "once", "j")),
        ({"pod-template-hash": "5d4"}, (Owner("ReplicaSet", "web-5d4", "r"), Owner("Deployment", "web", "d")),
         Workload("Deployment", "web", "d")),
        ({"pod-template-hash": "5d4"}, (Owner("ReplicaSet", "web-5d4", "r"),), Workload("Deployment", "web")),
        ({"pod-template-hash": "5d4"}, (Owner("ReplicaSet", "own", "r"),), Workload("ReplicaSet", "own", "r")),
        ({}, (Owner("ReplicaSet", "web-5d4", "r"),), Workload("ReplicaSet", "web-5d4", "r")),
        ({}, (Owner("StatefulSet", "db", "s"),), Workload("StatefulSet", "db", "s")),
        ({}, (Owner("Node", "n-1", "n"),), Workload("Pod", "p-0", "pod-uid")),
        ({}, (), Workload("Pod", "p-0", "pod-uid")),
    ],
)  # fmt: skip
def test_controllers_name_the_workload_from_the_top(
    labels: dict[str, str], owners: tuple[Owner, ...], workload: Workload
) -> None:
    assert attribute(pod(labels, {}, *owners)).workload == workload
