"""Pods for which Slurm accounts as well: somebody decides which of the two agents reports them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metering.k8s.description import Scope, SlurmPods
from tests.agent.rig import Rig, rig

SLINKY = {"ownerReferences": [{"kind": "NodeSet", "name": "gpu", "uid": "s", "apiVersion": "slinky.slurm.net/v1beta1",
                               "controller": True}]}  # fmt: skip
MARKS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (SLINKY, {}),  # SlinkyProject/slurm-operator
    ({"labels": {"app.kubernetes.io/name": "slurmd", "app.kubernetes.io/component": "worker"}}, {}),
    ({"labels": {"slurm.nebius.ai/nodeset": "worker"}}, {}),  # nebius/soperator
    ({"labels": {"scheduler.slinky.slurm.net/slurm-jobid": "113"}}, {}),  # SlinkyProject/slurm-bridge
    ({}, {"schedulerName": "slurm-bridge-scheduler"}),
]


@contextmanager
def agent(tmp_path: Path, slurm_pods: SlurmPods | None) -> Iterator[Rig]:
    with rig(tmp_path / "agent.sqlite", scope=Scope("hq-1", slurm_pods=slurm_pods)) as here:
        here.cluster.add_node("n-1")
        yield here


def launch(here: Rig, metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    """A pod of Slurm in the namespace slurm, and one that is none of it."""
    here.cluster.create("w", 4, namespace="slurm", **spec)
    pod = here.cluster.pod("w")
    pod["metadata"] |= metadata
    here.cluster.put("pods", pod)
    here.cluster.bind("w")
    here.cluster.launch("other", 2)
    here.settle()
    here.deliver()


@pytest.mark.parametrize(("metadata", "spec"), MARKS)
def test_while_nobody_decides_they_are_counted_and_a_problem(
    tmp_path: Path, metadata: dict[str, Any], spec: dict[str, Any]
) -> None:
    with agent(tmp_path, None) as here:
        launch(here, metadata, spec)
        assert {record["pod_uid"]: record["quantity"] for record in here.platform.holds.values()} == {"w": 4, "other": 2}
        [(subject, text)] = here.platform.agent["problems"].items()
        assert subject.startswith("Slurm in namespace slurm")
        assert "--slurm-pods" in text


@pytest.mark.parametrize(("metadata", "spec"), MARKS)
def test_left_out_they_are_billed_by_the_jobs_alone(tmp_path: Path, metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    with agent(tmp_path, SlurmPods.LEAVE_OUT) as here:
        launch(here, metadata, spec)
        assert [record["pod_uid"] for record in here.platform.holds.values()] == ["other"]
        assert "problems" not in here.platform.agent
        found = here.scan()
        here.watch()
        assert here.judge(found).pods == 0


def test_counted_they_are_pods_as_any_other(tmp_path: Path) -> None:
    with agent(tmp_path, SlurmPods.COUNT) as here:
        launch(here, SLINKY, {})
        assert sorted(record["quantity"] for record in here.platform.holds.values()) == [2, 4]
        assert here.platform.hold("w")["workload"] == {"kind": "NodeSet", "name": "gpu", "uid": "s"}
        assert "problems" not in here.platform.agent


def test_one_that_was_counted_ends_when_it_is_left_out(tmp_path: Path) -> None:
    with agent(tmp_path, None) as here:
        launch(here, SLINKY, {})
        here.options["scope"] = Scope("hq-1", slurm_pods=SlurmPods.LEAVE_OUT)
        here.restart()
        here.cluster.advance(600)
        found = here.scan()
        here.watch()
        here.judge(found)
        here.streams["pods"].list_next()
        here.settle()
        here.deliver()
        assert here.platform.hold("w")["ended_at"]
        assert not here.platform.hold("other")["ended_at"]
