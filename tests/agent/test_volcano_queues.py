"""What Volcano says of its queues beside what the agent holds: the same pods, counted twice. Units were computed by hand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metering.k8s.api import UnreachableError
from metering.k8s.surroundings import Lookup
from metering.k8s.volcano_queues import QUEUES, queue_difference
from tests.agent.rig import Rig, rig

GPU = "nvidia.com/gpu"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Rig]:
    """Queue `research` holds 8 + 4, `default` 2; a pod that is being released, and one that Volcano did not schedule."""
    with rig(tmp_path / "agent.sqlite", look_around=lambda api: Lookup(api, (), api.clock.now)) as made:
        made.cluster.add_node("n-1", gpus=64)
        for uid, gpus, queue, scheduler in (
            ("a", 8, "research", "volcano"), ("b", 4, "research", "volcano"), ("c", 2, "", "volcano"),
            ("leaving", 16, "research", "volcano"), ("other", 1, "research", "default-scheduler"),
            ("done", 32, "research", "volcano"),
        ):  # fmt: skip
            made.cluster.create(uid, gpus, schedulerName=scheduler)
            pod = made.cluster.pod(uid)
            pod["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": queue} if queue else {}
            made.cluster.put("pods", pod)
            made.cluster.bind(uid)
        made.cluster.ask_deletion("leaving")
        made.cluster.finish("done")
        made.settle()
        yield made


def difference(here: Rig, *queues: dict[str, Any]) -> dict[tuple[str, str], tuple[int, int]] | None:
    here.server.others[QUEUES] = {"kind": "QueueList", "items": list(queues)}
    return queue_difference(here.api, here.agent.store, here.agent.scope)


def queue(name: str, allocated: dict[str, str] | None, parent: str | None = "root") -> dict[str, Any]:
    status = {"state": "Open", **({"allocated": allocated} if allocated else {})}
    return {"metadata": {"name": name}, "spec": {"weight": 1, **({"parent": parent} if parent else {})}, "status": status}


def test_queues_that_agree_differ_in_nothing(here: Rig) -> None:
    """Native resources are no matter of ours, and a parent's sum is that of its children."""
    research = queue("research", {GPU: "12", "cpu": "96500m", "pods": "2"})
    root = queue("root", {GPU: "14"}, parent=None)
    assert difference(here, root, research, queue("default", {GPU: "2"}), queue("empty", None)) == {}


def test_each_queue_and_resource_that_differs_is_reported_with_both_numbers(here: Rig) -> None:
    research = queue("research", {GPU: "10", "nvidia.com/mig-1g.10gb": "3"})
    assert difference(here, research, queue("default", None)) == {
        ("default", GPU): (2, 0), ("research", GPU): (12, 10), ("research", "nvidia.com/mig-1g.10gb"): (0, 3),
    }  # fmt: skip


def test_without_volcano_or_the_right_to_see_its_queues_nothing_is_compared(here: Rig) -> None:
    assert queue_difference(here.api, here.agent.store, here.agent.scope) is None
    here.server.refused.add("queues")
    assert difference(here, queue("research", None)) is None


def test_an_answer_that_is_no_list_is_no_difference(here: Rig) -> None:
    here.server.others[QUEUES] = {"items": [{"metadata": {}}]}
    with pytest.raises(UnreachableError, match="the answer is no list"):
        queue_difference(here.api, here.agent.store, here.agent.scope)
