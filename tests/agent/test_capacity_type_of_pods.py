"""Allocations state the capacity type of their node; before a platform of an older release they go without it."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from metering.delivery import Outcome
from tests.agent.claims import H100, launch
from tests.agent.rig import Rig, rig

SPOT = {"karpenter.sh/capacity-type": "spot"}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path / "agent.sqlite", claims=True) as made:
        made.cluster.add_node("n-1", **SPOT)
        made.cluster.add_node("n-2")
        yield made


def report(here: Rig) -> None:
    here.settle()
    here.deliver()


def relabel(here: Rig, **labels: str) -> None:
    node = deepcopy(here.cluster.objects["nodes"]["node-n-1"])
    node["metadata"]["labels"] = {"nvidia.com/gpu.product": "NVIDIA-H800", **labels}
    here.cluster.put("nodes", node)


def test_a_pod_has_the_type_of_its_node_for_as_long_as_it_runs(here: Rig) -> None:
    here.cluster.launch("a")
    here.cluster.create("b")
    here.cluster.bind("b", "n-2")
    report(here)
    assert here.platform.hold("a")["capacity_type"] == "spot"
    assert "capacity_type" not in here.platform.hold("b")
    relabel(here, **{"karpenter.sh/capacity-type": "on-demand"})
    here.cluster.finish("a")
    report(here)
    assert here.platform.hold("a")["capacity_type"] == "spot"
    assert here.platform.hold("a")["ended_at"]
    assert here.platform.conflicts == []


def test_claimed_devices_have_it_as_well(here: Rig) -> None:
    here.cluster.add_slice("n-1", {"gpu-0": H100, "gpu-1": H100})
    here.cluster.allocate("c", "gpu-0")
    launch(here, "a", "c")
    report(here)
    assert here.platform.hold("a")["capacity_type"] == "spot"


@pytest.mark.parametrize("fields", [None, ["tags"]])
def test_before_an_older_platform_allocations_go_without(here: Rig, fields: list[str] | None) -> None:
    here.platform.fields = fields
    here.cluster.launch("a")
    report(here)
    assert "capacity_type" not in here.platform.hold("a")
    assert here.platform.hold("a")["accelerator"] == "NVIDIA-H800"
    assert not here.delivery.rejected_records


def test_while_the_platform_does_not_say_what_it_knows_reports_wait(here: Rig) -> None:
    here.platform.down = True
    here.cluster.launch("a")
    report(here)
    assert here.delivery.run_once().outcome is Outcome.TEMPORARY
    here.platform.down = False
    report(here)
    assert here.platform.hold("a")["capacity_type"] == "spot"
