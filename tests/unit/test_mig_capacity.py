"""A node whose cards are cut offers its cards: what of them no slice can use is idle, and what is not certain is unknown."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from metering.k8s.capacity import offers
from metering.k8s.description import Scope
from metering.k8s.objects import Node

AT = datetime(2026, 10, 1, tzinfo=UTC)
H100 = "NVIDIA-H100-80GB-HBM3"
GPU, SMALL, HALF, LARGE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.20gb"


def offered(
    capacity: dict[str, int], labels: dict[str, str], broken: dict[str, int] | None = None, scope: Scope | None = None
) -> dict[str, tuple[str, int]]:
    """Product and quantity by resource. `broken`: units that the node has and cannot allocate."""
    quantities = {name: str(units) for name, units in capacity.items()}
    usable = {name: str(units - (broken or {}).get(name, 0)) for name, units in capacity.items()}
    found: dict[str, Any] = {
        "metadata": {"name": "n-1", "uid": "n", "resourceVersion": "1", "labels": labels}, "spec": {},
        "status": {"capacity": quantities, "allocatable": usable, "conditions": []},
    }  # fmt: skip
    rows = offers(msgspec.convert(found, Node), AT, scope or Scope("hq-1"))
    return {name: (row.accelerator, row.quantity) for name, row in rows.items()}


def mixed(count: int, *slices: str, product: str = H100, **more: str) -> dict[str, str]:
    """Labels of GPU feature discovery under the mixed strategy; `count` is of cards."""
    names = {f"{name}.product": f"{product}-MIG-{name.rpartition('mig-')[2]}" for name in slices}
    return {"nvidia.com/mig.strategy": "mixed", f"{GPU}.count": str(count), f"{GPU}.product": product, **names, **more}


@pytest.mark.parametrize(
    ("capacity", "labels", "cards"),
    [
        ({GPU: 0, LARGE: 4}, mixed(1, LARGE), 1),  # four sevenths of its compute are all that fits
        ({GPU: 0, HALF: 4}, mixed(2, HALF), 2),  # 12 of 14 compute slices
        ({GPU: 4, HALF: 2, SMALL: 14, LARGE: 4}, mixed(8, HALF, SMALL, LARGE), 8),
        ({GPU: 6, SMALL: 3}, mixed(8, SMALL), 8),  # one of the two other cards is cut in part, one not at all
        ({GPU: 8, SMALL: 7}, mixed(5, SMALL, **{f"{GPU}.replicas": "2"}), 5),  # four whole cards, each for two pods
        ({GPU: 0, HALF: 0, SMALL: 7}, mixed(1, SMALL), 1),
    ],
)
def test_a_node_of_the_mixed_strategy_offers_its_cards(capacity: dict[str, int], labels: dict[str, str], cards: int) -> None:
    assert offered(capacity, labels) == {GPU: (H100, cards)}


def test_a_broken_whole_card_is_no_capacity() -> None:
    assert offered({GPU: 4, SMALL: 28}, mixed(8, SMALL), broken={GPU: 1}) == {GPU: (H100, 7)}


@pytest.mark.parametrize(
    ("capacity", "labels", "broken"),
    [
        ({GPU: 0, LARGE: 4}, {f"{GPU}.product": H100}, {}),  # no feature discovery
        ({GPU: 0, LARGE: 4}, {**mixed(1, LARGE), f"{GPU}.count": ""}, {}),
        ({GPU: 0, LARGE: 4}, mixed(1), {}),  # of which product the slices are is not said
        ({GPU: 4, SMALL: 28}, {**mixed(4, SMALL), f"{GPU}.product": "NVIDIA-L40S"}, {}),  # two products: one is counted
        ({GPU: 4, SMALL: 28}, mixed(7, SMALL), {}),  # eight cards are offered, seven are counted
        ({GPU: 8, SMALL: 7}, mixed(8, SMALL), {}),
        ({GPU: 4, SMALL: 28}, mixed(8, SMALL), {SMALL: 1}),  # of which card is the broken slice?
        ({GPU: 3, SMALL: 7}, mixed(5, SMALL, **{f"{GPU}.replicas": "2"}), {}),
        ({GPU: 0, SMALL: 7}, mixed(1, SMALL, **{"example.com/gpu-sharing": "on"}), {}),
    ],
)
def test_cards_that_are_not_certain_are_unknown(
    capacity: dict[str, int], labels: dict[str, str], broken: dict[str, int]
) -> None:
    assert offered(capacity, labels, broken) == {}


def test_other_resources_of_a_cut_node_stay_and_what_was_declared_is_counted_as_declared() -> None:
    capacity = {GPU: 0, LARGE: 4, "huawei.com/npu": 2}
    assert offered(capacity, mixed(1, LARGE)) == {GPU: (H100, 1), "huawei.com/npu": ("unknown", 2)}
    declared = Scope("hq-1", {LARGE: "H100-quarter"})
    assert offered({LARGE: 4}, mixed(1, LARGE), scope=declared) == {GPU: (H100, 1), LARGE: ("H100-quarter", 4)}
    renamed = Scope("hq-1", {GPU: "H100-SXM"})
    assert offered({GPU: 1, LARGE: 4}, mixed(2, LARGE), scope=renamed) == {GPU: ("H100-SXM", 1)}


def single(profile: str, product: str = H100) -> dict[str, str]:
    """Labels of GPU feature discovery under the single strategy; its count is of slices and says nothing of cards."""
    return {"nvidia.com/mig.strategy": "single", f"{GPU}.product": f"{product}-MIG-{profile}"}


A30, RTX, A100 = "NVIDIA-A30", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "NVIDIA-A100-SXM4-40GB"


@pytest.mark.parametrize(
    ("units", "labels", "product", "cards"),
    [
        (56, single("1g.10gb"), H100, 8),
        (8, single("7g.80gb"), H100, 8),
        (8, single("4g.40gb"), H100, 8),  # one on each card, 4 of 7 compute slices
        (14, single("3g.40gb"), H100, None),  # seven cards, or up to fourteen: not the six of 42 compute slices
        (28, single("1g.20gb"), H100, None),  # seven cards, not four
        (7, single("2g.20gb"), H100, None),
        (7, single("1g.10gb.me"), H100, None),
        (8, single("1g.10gb"), H100, None),
        (7, single("1g.5gb", A100), A100, 1),
        (28, single("1g.10gb", A100), A100, None),  # twice the memory there: four on each of seven cards
        (14, single("1g.10gb-SHARED"), H100, None),  # each for how many pods?
        (8, single("2g.12gb", A30), A30, 4),
        (16, single("1g.24gb", RTX), RTX, 4),
        (28, single("1g.24gb", "NVIDIA-GH200-96GB"), "NVIDIA-GH200-96GB", None),
    ],
)
def test_cards_of_the_single_strategy_follow_only_from_slices_that_fill_them(
    units: int, labels: dict[str, str], product: str, cards: int | None
) -> None:
    assert offered({GPU: units}, labels) == ({GPU: (product, cards)} if cards else {})


def test_time_sliced_slices_are_divided_by_their_clients() -> None:
    labels = {**single("1g.10gb-SHARED"), f"{GPU}.replicas": "2", f"{GPU}.sharing-strategy": "time-slicing"}
    assert offered({GPU: 28}, labels) == {GPU: (H100, 2)}


def test_a_partition_of_gke_counts_cards_too() -> None:
    labels = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb", "cloud.google.com/gke-gpu-partition-size": "1g.10gb"}
    assert offered({GPU: 14}, labels) == {GPU: ("nvidia-h100-80gb", 2)}
    assert offered({GPU: 14}, {**labels, "cloud.google.com/gke-gpu-partition-size": "3g.40gb"}) == {}
