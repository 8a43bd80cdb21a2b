"""Whose pod it is, platform by platform: the labels and owners that each really writes, with its source."""

import pytest

from metering.attribution import Owner, PodIdentity, attribute, queue_of
from metering.records import Workload

SET, DEPLOYMENT = Owner("StatefulSet", "generated", "s", "apps"), Owner("ReplicaSet", "generated-5d4", "r", "apps")
HASH = {"pod-template-hash": "5d4"}
KNATIVE = {"serving.knative.dev/service": "chat-predictor", "serving.knative.dev/configuration": "chat-predictor"}
LLM = {"app.kubernetes.io/part-of": "llminferenceservice", "app.kubernetes.io/name": "llama"}
GROVE = {"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": "disagg",
         "grove.io/podclique": "disagg-0-decode"}  # fmt: skip
CLIQUE = Owner("PodClique", "disagg-0-decode", "q", "grove.io")
RAY = {"ray.io/cluster": "tune-vx7k2"}
Case = tuple[str, dict[str, str], tuple[Owner, ...], tuple[str, str]]

CASES: list[Case] = [
    # kserve/kserve pkg/constants/constants.go: on Knative, Standard, with several nodes, and beside KEDA
    ("KServe, one revision", {**KNATIVE, "serving.kserve.io/inferenceservice": "chat", "component": "predictor",
                              "serving.knative.dev/revision": "chat-predictor-00001", **HASH}, (DEPLOYMENT,),
     ("InferenceService", "chat")),
    ("KServe, the next", {**KNATIVE, "serving.kserve.io/inferenceservice": "chat", "component": "predictor",
                          "serving.knative.dev/revision": "chat-predictor-00002", **HASH}, (DEPLOYMENT,),
     ("InferenceService", "chat")),
    ("KServe Standard", {"app": "isvc.chat-predictor", "serving.kserve.io/inferenceservice": "chat", **HASH}, (DEPLOYMENT,),
     ("InferenceService", "chat")),
    ("KServe, workers", {"app": "isvc.chat-predictor-worker", "serving.kserve.io/inferenceservice": "chat",
                         "leaderworkerset.sigs.k8s.io/name": "chat-predictor"}, (SET,), ("InferenceService", "chat")),
    ("KServe, transformer", {"serving.kserve.io/inferenceservice": "chat", "component": "transformer", **HASH},
     (DEPLOYMENT,),
     ("InferenceService", "chat")),
    ("KServe, a graph", {"serving.kserve.io/inferencegraph": "route", **HASH}, (DEPLOYMENT,), ("InferenceGraph", "route")),
    # kserve/kserve pkg/controller/v1alpha1/llmisvc/workload.go
    ("LLMInferenceService", {**LLM, **HASH}, (DEPLOYMENT,), ("LLMInferenceService", "llama")),
    ("LLMInferenceService, several nodes", {**LLM, "leaderworkerset.sigs.k8s.io/name": "llama-kserve-mn"}, (SET,),
     ("LLMInferenceService", "llama")),
    ("a name that is part of something else", {"app.kubernetes.io/part-of": "shop", "app.kubernetes.io/name": "web", **HASH},
     (DEPLOYMENT,), ("Deployment", "generated")),
    # sgl-project/ome pkg/constants/constants.go
    ("OME", {"ome.io/inferenceservice": "llama-70b", "component": "engine", **HASH}, (DEPLOYMENT,),
     ("InferenceService", "llama-70b")),
    # ai-dynamo/dynamo deploy/operator: on Deployments, on Grove, on LeaderWorkerSets
    ("Dynamo", {"nvidia.com/dynamo-graph-deployment-name": "disagg", "nvidia.com/dynamo-component": "Frontend", **HASH},
     (DEPLOYMENT,), ("DynamoGraphDeployment", "disagg")),
    ("Dynamo on Grove", {**GROVE, "nvidia.com/dynamo-graph-deployment-name": "disagg-graph"}, (CLIQUE,),
     ("DynamoGraphDeployment", "disagg-graph")),
    ("Dynamo, several nodes", {"nvidia.com/dynamo-graph-deployment-name": "disagg",
                               "leaderworkerset.sigs.k8s.io/name": "disagg-decode-0"}, (SET,),
     ("DynamoGraphDeployment", "disagg")),
    # ai-dynamo/grove operator/api/common/labels.go
    ("Grove", GROVE, (CLIQUE,), ("PodCliqueSet", "disagg")),
    ("Grove, a scaling group", {**GROVE, "grove.io/podcliquescalinggroup": "disagg-0-sg"}, (CLIQUE,),
     ("PodCliqueSet", "disagg")),
    # argoproj/argo-rollouts pkg/apis/rollouts/v1alpha1/types.go (DefaultRolloutUniqueLabelKey)
    ("Argo Rollouts", {"rollouts-pod-template-hash": "7b9"}, (Owner("ReplicaSet", "web-7b9", "r", "apps"),),
     ("Rollout", "web")),
    ("Argo Rollouts, canary", {"rollouts-pod-template-hash": "8c1", "role": "canary"},
     (Owner("ReplicaSet", "web-8c1", "r", "apps"),), ("Rollout", "web")),
    # vllm-project/aibrix pkg/constants/stormservice.go
    ("AIBrix", {"storm-service-name": "vllm-1p1d", "roleset-name": "vllm-1p1d-roleset-x", "role-name": "prefill"},
     (Owner("RoleSet", "vllm-1p1d-roleset-x", "o", "orchestration.aibrix.ai"),), ("StormService", "vllm-1p1d")),
    # volcano-sh/kthena docs: labels of model pods
    ("Kthena", {"modelserving.volcano.sh/name": "deepseek-pd", "modelserving.volcano.sh/role": "prefill"},
     (Owner("ModelServing", "deepseek-pd", "m", "workload.serving.volcano.sh"),), ("ModelServing", "deepseek-pd")),
    # SeldonIO/seldon-core operator/apis/machinelearning.seldon.io/v1
    ("Seldon", {"seldon-deployment-id": "fraud", "seldon-app": "fraud-default", **HASH}, (DEPLOYMENT,),
     ("SeldonDeployment", "fraud")),
    # bentoml/yatai-deployment
    ("BentoML", {"yatai.ai/bento-deployment": "summary", **HASH}, (DEPLOYMENT,), ("BentoDeployment", "summary")),
    # knative/serving pkg/apis/serving/register.go
    ("Knative", {"serving.knative.dev/service": "embed", "serving.knative.dev/revision": "embed-00003", **HASH},
     (DEPLOYMENT,),
     ("Service", "embed")),
    ("Knative, a configuration", {"serving.knative.dev/configuration": "embed", **HASH}, (DEPLOYMENT,),
     ("Service", "embed")),
    # kubevirt/kubevirt staging/src/kubevirt.io/api/core/v1/types.go
    ("KubeVirt", {"vm.kubevirt.io/name": "desk-7", "kubevirt.io/domain": "desk-7"},
     (Owner("VirtualMachineInstance", "desk-7", "v", "kubevirt.io"),), ("VirtualMachine", "desk-7")),
    # argoproj/argo-workflows workflow/common/common.go
    ("Argo Workflows", {"workflows.argoproj.io/workflow": "train-x2k"},
     (Owner("Workflow", "train-x2k", "w", "argoproj.io"),),
     ("Workflow", "train-x2k")),
    ("a CronWorkflow", {"workflows.argoproj.io/workflow": "train-17"},
     (Owner("Workflow", "train-17", "w", "argoproj.io"), Owner("CronWorkflow", "train", "c", "argoproj.io")),
     ("CronWorkflow", "train")),
    # tektoncd/pipeline pkg/apis/pipeline/register.go
    ("Tekton", {"tekton.dev/pipelineRun": "build-1", "tekton.dev/taskRun": "build-1-test"},
     (Owner("TaskRun", "build-1-test", "t", "tekton.dev"),), ("PipelineRun", "build-1")),
    # skypilot-org/skypilot sky/provision/kubernetes/instance.py
    ("SkyPilot", {"skypilot-cluster-name": "dev-ann-1f2e", "skypilot-cluster": "dev"}, (),
     ("SkyPilotCluster", "dev-ann-1f2e")),
    # dask/dask-kubernetes operator
    ("Dask", {"dask.org/cluster-name": "etl", "dask.org/component": "worker"}, (DEPLOYMENT,), ("DaskCluster", "etl")),
    # apache/flink-kubernetes-operator: native mode
    ("Flink", {"app": "stream", "type": "flink-native-kubernetes", "component": "taskmanager"}, (DEPLOYMENT,),
     ("FlinkDeployment", "stream")),
    ("an app of another", {"app": "stream", **HASH}, (DEPLOYMENT,), ("Deployment", "generated")),
    # kubeflow/kubeflow components/notebook-controller
    ("a notebook", {"notebook-name": "ann", "statefulset": "ann"}, (Owner("StatefulSet", "ann", "s", "apps"),),
     ("Notebook", "ann")),
    # kubeflow/katib pkg/controller.v1beta1: Pod - PyTorchJob - Trial - Experiment
    ("Katib", {"training.kubeflow.org/job-name": "grid-a1"},
     (Owner("PyTorchJob", "grid-a1", "p", "kubeflow.org"), Owner("Trial", "grid-a1", "t", "kubeflow.org"),
      Owner("Experiment", "grid", "e", "kubeflow.org")), ("Experiment", "grid")),
    # ray-project/kuberay ray-operator/controllers/ray
    ("a RayCluster", RAY, (Owner("RayCluster", "tune-vx7k2", "c", "ray.io"),), ("RayCluster", "tune-vx7k2")),
    ("a RayJob", RAY, (Owner("RayCluster", "tune-vx7k2", "c", "ray.io"), Owner("RayJob", "tune", "j", "ray.io")),
     ("RayJob", "tune")),
    ("a RayService", RAY, (Owner("RayCluster", "tune-vx7k2", "c", "ray.io"), Owner("RayService", "chat", "s", "ray.io")),
     ("RayService", "chat")),
    # kubernetes-sigs/lws api/leaderworkerset/v1; kubernetes-sigs/jobset api/jobset/v1alpha2
    ("a LeaderWorkerSet", {"leaderworkerset.sigs.k8s.io/name": "vllm"}, (SET,), ("LeaderWorkerSet", "vllm")),
    ("a JobSet", {"jobset.sigs.k8s.io/jobset-name": "js", "batch.kubernetes.io/job-name": "js-w-0"},
     (Owner("Job", "js-w-0", "j", "batch"), Owner("JobSet", "js", "s", "jobset.x-k8s.io")), ("JobSet", "js")),
    # kubeflow/trainer pkg/runtime/framework/plugins/jobset
    ("a TrainJob", {"jobset.sigs.k8s.io/jobset-name": "llm"},
     (Owner("Job", "llm-node-0", "b", "batch"), Owner("JobSet", "llm", "s", "jobset.x-k8s.io"),
      Owner("TrainJob", "llm", "t", "trainer.kubeflow.org")), ("TrainJob", "llm")),
    # kubeflow/training-operator pkg/apis/kubeflow.org/v1; kubeflow/mpi-operator
    ("a PyTorchJob", {"training.kubeflow.org/job-name": "llm"}, (Owner("PyTorchJob", "llm", "p", "kubeflow.org"),),
     ("PyTorchJob", "llm")),
    ("an MPIJob", {"training.kubeflow.org/job-name": "allreduce"}, (Owner("MPIJob", "allreduce", "m", "kubeflow.org"),),
     ("MPIJob", "allreduce")),
    # kubeflow/spark-operator pkg/common/spark.go; volcano-sh/volcano; kubernetes-sigs/kueue pod groups
    ("Spark", {"sparkoperator.k8s.io/app-name": "etl", "spark-app-selector": "spark-1"}, (Owner("Pod", "etl-driver", "d"),),
     ("SparkApplication", "etl")),
    ("Volcano", {"volcano.sh/job-name": "pretrain"}, (Owner("Job", "pretrain", "v", "batch.volcano.sh"),),
     ("Job", "pretrain")),
    ("a group of Kueue", {"kueue.x-k8s.io/pod-group-name": "sweep"}, (), ("PodGroup", "sweep")),
    # OpenShift, DeploymentConfig; Kubernetes, workloads
    ("a DeploymentConfig", {"deploymentconfig": "web", "deployment": "web-3"},
     (Owner("ReplicationController", "web-3", "r"),),
     ("DeploymentConfig", "web")),
    ("a Deployment", HASH, (Owner("ReplicaSet", "web-5d4", "r", "apps"),), ("Deployment", "web")),
    ("a CronJob", {"batch.kubernetes.io/job-name": "nightly-1"},
     (Owner("Job", "nightly-1", "j", "batch"), Owner("CronJob", "nightly", "c", "batch")), ("CronJob", "nightly")),
    ("a pod", {}, (), ("Pod", "p-0")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "labels", "owners", "workload"), CASES, ids=[case[0] for case in CASES])
def test_a_pod_is_of_what_its_owner_made(
    name: str, labels: dict[str, str], owners: tuple[Owner, ...], workload: tuple[str, str]
) -> None:
    found = attribute(PodIdentity("p-0", "pod-uid", labels, {}, owners)).workload
    assert (found.kind, found.name) == workload


def test_parts_of_a_service_are_told_apart_and_its_queue_stays() -> None:
    labels = {**GROVE, "nvidia.com/dynamo-graph-deployment-name": "disagg", "nvidia.com/dynamo-component": "Decode",
              "kai.scheduler/queue": "serving"}  # fmt: skip
    found = attribute(PodIdentity("p-0", "u", labels, {}, (CLIQUE,)))
    assert found.workload == Workload("DynamoGraphDeployment", "disagg")
    assert found.attributes == {"component": "Decode", "pod_clique": "disagg-0-decode"}
    assert queue_of(PodIdentity("p-0", "u", labels)) == "serving"
