"""What is beside a pod, read from a server over HTTP: namespace, PodGroup, and the controllers above its owner."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from metering.attribution import Owner
from metering.k8s.description import Surroundings
from metering.k8s.objects import PodFacts
from metering.k8s.surroundings import Lookup
from tests.agent.cluster import Object
from tests.agent.rig import Rig, rig

NAMESPACE = "/api/v1/namespaces/nlp"
GROUP = "/apis/scheduling.volcano.sh/v1beta1/namespaces/nlp/podgroups/g"
JOBS = "/apis/batch/v1/namespaces/nlp/jobs/"


def owned(kind: str, name: str, uid: str, group: str, version: str = "v1") -> Object:
    return {"kind": kind, "name": name, "uid": uid, "apiVersion": f"{group}/{version}", "controller": True}


CRON = owned("CronJob", "nightly", "cron-1", "batch")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path / "agent.sqlite") as made:
        made.cluster.add_node("n-1")
        yield made


def lookup(here: Rig, *labels: str) -> Lookup:
    return Lookup(here.api, labels, lambda: here.cluster.now)


def pod(**facts: Any) -> PodFacts:
    return PodFacts("nlp", "p", "u", {"nvidia.com/gpu": 1}, **facts)


def asked(here: Rig) -> list[str]:
    return list(here.server.requests)


def thing(uid: str = "", *references: Object, **more: Any) -> Object:
    return {"metadata": {"name": "x", "uid": uid, "ownerReferences": list(references)}, **more}


def test_nothing_is_asked_that_nobody_wants(here: Rig) -> None:
    assert lookup(here)(pod(owners=(Owner("StatefulSet", "s", "1", "apps"),))) == Surroundings()
    assert asked(here) == []


def test_labels_of_the_namespace_are_passed_on_and_remembered_for_ten_minutes(here: Rig) -> None:
    here.server.others[NAMESPACE] = {"metadata": {"labels": {"cost-center": "CC-1", "other": "x"}}}
    ask = lookup(here, "cost-center", "absent")
    assert ask(pod()).namespace_labels == {"cost-center": "CC-1"}
    here.server.others[NAMESPACE] = {"metadata": {"labels": {"cost-center": "CC-2"}}}
    here.cluster.now += timedelta(minutes=9)
    assert ask(pod()).namespace_labels == {"cost-center": "CC-1"}
    here.cluster.now += timedelta(minutes=1)
    assert ask(pod()).namespace_labels == {"cost-center": "CC-2"}
    assert asked(here) == [NAMESPACE, NAMESPACE]


def test_the_queue_of_a_volcano_pod_is_that_of_its_pod_group(here: Rig) -> None:
    here.server.others[GROUP] = thing(spec={"queue": "research", "minMember": 4})
    here.server.others[NAMESPACE] = {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "default"}}}
    found = lookup(here)(pod(scheduler="volcano", annotations={"scheduling.k8s.io/group-name": "g"}))
    assert (found.pod_group_queue, found.complete) == ("research", True)
    assert found.namespace_annotations == {"scheduling.volcano.sh/queue-name": "default"}
    assert asked(here) == [NAMESPACE, GROUP]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_may_not_be_read_is_left_out_for_ten_minutes(here: Rig, status: int) -> None:
    here.server.fail = [(status, {})]
    ask = lookup(here, "cost-center")
    assert ask(pod()) == Surroundings()
    assert ask(pod()) == Surroundings()
    assert asked(here) == [NAMESPACE]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_cannot_be_read_now_is_asked_for_again(here: Rig, status: int) -> None:
    here.server.others[NAMESPACE] = {"metadata": {"labels": {"cost-center": "CC-1"}}}
    here.server.fail = [(status, {})]
    ask = lookup(here, "cost-center")
    assert ask(pod()) == Surroundings(complete=False)
    assert ask(pod()) == Surroundings({"cost-center": "CC-1"})


def test_a_job_of_a_cron_job_is_followed_to_it(here: Rig) -> None:
    here.server.others[f"{JOBS}nightly-29"] = thing("job-1", CRON)
    found = lookup(here)(pod(owners=(Owner("Job", "nightly-29", "job-1", "batch"),)))
    assert found.owners == (Owner("CronJob", "nightly", "cron-1", "batch"),)
    assert asked(here) == [f"{JOBS}nightly-29"]


def test_a_job_of_the_same_name_is_not_the_pods_own(here: Rig) -> None:
    here.server.others[f"{JOBS}nightly-29"] = thing("job-2", CRON)
    assert lookup(here)(pod(owners=(Owner("Job", "nightly-29", "job-1", "batch"),))) == Surroundings()


def test_a_volcano_job_is_no_kubernetes_job(here: Rig) -> None:
    here.server.others["/apis/batch.volcano.sh/v1alpha1/namespaces/nlp/jobs/nightly-2"] = thing(
        "v-1", {**CRON, "apiVersion": "batch.volcano.sh/v1alpha1"}
    )
    found = lookup(here)(pod(owners=(Owner("Job", "nightly-2", "v-1", "batch.volcano.sh"),)))
    assert found.owners == (Owner("CronJob", "nightly", "cron-1", "batch.volcano.sh"),)
    assert asked(here) == ["/apis/batch.volcano.sh/v1alpha1/namespaces/nlp/jobs/nightly-2"]


def test_a_pod_of_a_train_job_is_followed_through_job_and_job_set(here: Rig) -> None:
    here.server.others[f"{JOBS}llm-node-0"] = thing("b", owned("JobSet", "llm", "s", "jobset.x-k8s.io", "v1alpha2"))
    here.server.others["/apis/jobset.x-k8s.io/v1alpha2/namespaces/nlp/jobsets/llm"] = thing(
        "s", owned("TrainJob", "llm", "t", "trainer.kubeflow.org", "v1alpha1")
    )
    found = lookup(here)(pod(owners=(Owner("Job", "llm-node-0", "b", "batch"),)))
    assert found.owners == (
        Owner("JobSet", "llm", "s", "jobset.x-k8s.io"), Owner("TrainJob", "llm", "t", "trainer.kubeflow.org"),
    )  # fmt: skip


@pytest.mark.parametrize("readable", [True, False])
def test_a_ray_job_is_reported_under_its_own_name(tmp_path: Path, readable: bool) -> None:
    """Where RayClusters may not be read, the pod is reported all the same, of its RayCluster."""
    with rig(tmp_path / "agent.sqlite", look_around=lambda api: Lookup(api, (), api.clock.now)) as made:
        made.cluster.add_node("n-1")
        made.settle()
        if readable:
            clusters = "/apis/ray.io/v1/namespaces/nlp/rayclusters"
            made.server.others[f"{clusters}/tune-vx7k2"] = thing("c", owned("RayJob", "tune", "j", "ray.io"))
        made.cluster.create("u")
        item = made.cluster.pod("u")
        item["metadata"]["labels"] = {"ray.io/cluster": "tune-vx7k2"}
        item["metadata"]["ownerReferences"] = [owned("RayCluster", "tune-vx7k2", "c", "ray.io")]
        made.cluster.put("pods", item)
        made.cluster.bind("u")
        made.report()
        expected = ("RayJob", "tune", "j") if readable else ("RayCluster", "tune-vx7k2", "c")
        assert tuple(made.platform.hold("u")["workload"].values()) == expected


def test_the_controller_of_a_controller_is_followed_upwards_and_not_for_ever(here: Rig) -> None:
    folder = "/apis/ray.io/v1/namespaces/nlp"
    above = owned("RayJob", "tune", "j", "ray.io")
    here.server.others[f"{folder}/rayclusters/tune-x"] = thing("c", {**CRON, "controller": False}, above)
    here.server.others[f"{folder}/rayjobs/tune"] = thing("j")
    cluster = Owner("RayCluster", "tune-x", "c", "ray.io")
    assert lookup(here)(pod(owners=(cluster,))).owners == (Owner("RayJob", "tune", "j", "ray.io"),)
    here.server.others[f"{folder}/rayjobs/tune"] = thing("j", above)  # it claims to own itself
    assert len(lookup(here)(pod(owners=(cluster,))).owners) == 5


def test_a_pod_waits_two_minutes_for_what_stands_beside_it(tmp_path: Path) -> None:
    """The server cannot show the Job when the pod is first seen; thirty seconds later it can."""
    with rig(tmp_path / "agent.sqlite", look_around=lambda api: Lookup(api, (), api.clock.now)) as made:
        made.cluster.add_node("n-1")
        made.settle()
        made.server.others[f"{JOBS}nightly-29"] = thing("job-1", CRON)
        for uid in ("u", "v"):
            made.cluster.create(uid)
            item = made.cluster.pod(uid)
            item["metadata"]["ownerReferences"] = [owned("Job", "nightly-29", "job-1", "batch")]
            made.cluster.put("pods", item)
            made.cluster.bind(uid)
        job = made.server.others.pop(f"{JOBS}nightly-29")
        stream = made.streams["pods"]
        steps = list(stream.steps())
        made.server.fail = [(503, {})] * 2
        for step in steps:
            made.agent.apply("pods", step)
        made.server.fail.clear()
        made.cluster.advance(30)
        made.server.others[f"{JOBS}nightly-29"] = job
        made.report()
        for uid in ("u", "v"):
            assert made.platform.hold(uid)["workload"] == {"kind": "CronJob", "name": "nightly", "uid": "cron-1"}


def test_a_pod_does_not_wait_for_ever(tmp_path: Path) -> None:
    with rig(tmp_path / "agent.sqlite", look_around=lambda api: Lookup(api, ("team",), api.clock.now)) as made:
        made.cluster.add_node("n-1")
        made.settle()
        made.cluster.launch("u")
        for seconds in (60, 61):
            made.cluster.advance(seconds)
            steps = {name: list(stream.steps()) for name, stream in made.streams.items()}
            made.server.fail = [(503, {})] * 9
            for name, found in steps.items():
                for step in found:
                    made.agent.apply(name, step)
            made.deliver()
            made.server.fail.clear()
            reported = list(made.platform.holds)
            assert (reported == []) is (seconds == 60)
        assert made.platform.seconds("u") == 121
