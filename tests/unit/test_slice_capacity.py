"""What ResourceSlices offer: cards and partitions, each card once, nothing that cannot be allocated."""

from fractions import Fraction
from typing import Any

from metering.accelerators import device_share
from metering.claims import devices_of
from metering.slice_capacity import beyond_the_plugin, offered_by, slice_offer

H100 = {"productName": {"string": "NVIDIA H100 80GB HBM3"}}
MIG = {**H100, "profile": {"string": "1g.10gb"}}
A100 = {"productName": {"string": "NVIDIA A100"}}
PRODUCT = "NVIDIA-H100-80GB-HBM3"


def spec(*devices: dict[str, Any], driver: str = "gpu.nvidia.com", generation: int = 1, **more: Any) -> dict[str, Any]:
    pool = {"name": "n-1", "generation": generation}
    return {"driver": driver, "pool": pool, "nodeName": "n-1", "devices": list(devices), **more}


def device(name: str, attributes: dict[str, Any] = H100, **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": attributes, **more}


def offered(*specs: dict[str, Any], **drivers: str) -> Any:
    return offered_by([slice_offer(item, devices_of(item), drivers) for item in specs])


def test_cards_of_all_slices_of_a_pool_are_added_up() -> None:
    found = offered(spec(device("a"), device("b")), spec(device("c")))
    assert found == {"dra/gpu.nvidia.com": (PRODUCT, 3)}


def test_a_card_that_is_cut_for_good_is_offered_by_its_partitions() -> None:
    found = offered(spec(device("a"), *(device(f"m{number}", MIG) for number in range(7))))
    assert found == {"dra/gpu.nvidia.com": (PRODUCT, 1), "dra/gpu.nvidia.com/mig-1g.10gb": (PRODUCT, 7)}
    assert device_share("dra/gpu.nvidia.com/mig-1g.10gb") == Fraction(1, 7)


def test_a_slice_of_unknown_share_is_no_capacity() -> None:
    odd = {**H100, "profile": {"string": "1c.3g.40gb"}}
    assert offered(spec(device("a"), device("m", odd))) == {"dra/gpu.nvidia.com": (PRODUCT, 1)}


def test_a_card_that_can_be_cut_on_demand_counts_once() -> None:
    counters = {"consumesCounters": [{"counterSet": "card-0", "counters": {"memory": {"value": "10Gi"}}}]}
    whole, parts = device("a", **counters), [device(f"m{number}", MIG, **counters) for number in range(7)]
    assert offered(spec(whole, *parts)) == {"dra/gpu.nvidia.com": (PRODUCT, 1)}


def test_only_the_latest_generation_of_a_pool_counts() -> None:
    assert offered(spec(device("a"), device("b")), spec(device("a"), generation=2)) == {"dra/gpu.nvidia.com": (PRODUCT, 1)}


def test_a_tainted_device_is_no_capacity_and_neither_is_what_is_no_accelerator() -> None:
    away = device("a", taints=[{"key": "xid", "effect": "NoExecute"}])
    reported = device("b", taints=[{"key": "warm", "effect": "None"}])
    assert offered(spec(away, reported), spec(device("n"), driver="dra.net")) == {"dra/gpu.nvidia.com": (PRODUCT, 1)}
    assert offered(spec(device("f"), driver="fpga.example.com")) == {}
    assert offered(spec(device("f"), driver="fpga.example.com"), **{"fpga.example.com": "example"}) == {
        "dra/fpga.example.com": (PRODUCT, 1)
    }


def test_products_of_one_driver_on_one_node_are_kept_apart() -> None:
    assert offered(spec(device("a"), device("b", A100))) == {
        f"dra/gpu.nvidia.com@{PRODUCT}": (PRODUCT, 1), "dra/gpu.nvidia.com@NVIDIA-A100": ("NVIDIA-A100", 1),
    }  # fmt: skip


def test_devices_of_no_node_stand_on_their_pool() -> None:
    fabric = {**spec(device("a")), "nodeName": None, "allNodes": True}
    assert slice_offer(fabric, devices_of(fabric)).node == "pool n-1"


def test_a_claimed_partition_of_amd_is_its_part_of_a_card() -> None:
    assert device_share("dra/gpu.amd.com/CPX_NPS4") == Fraction(1, 8)
    assert device_share("dra/gpu.amd.com") == 1


def test_a_card_that_the_plugin_lists_too_is_not_offered_to_claims_again() -> None:
    cut = offered(spec(device("a"), *(device(f"m{number}", MIG) for number in range(7))))
    whole, slices = "dra/gpu.nvidia.com", "dra/gpu.nvidia.com/mig-1g.10gb"
    assert beyond_the_plugin(cut, {"nvidia.com/gpu": 1}) == {whole: (PRODUCT, 0), slices: (PRODUCT, 7)}
    assert beyond_the_plugin(cut, {"nvidia.com/gpu": 2}) == {whole: (PRODUCT, 0), slices: (PRODUCT, 0)}
    assert beyond_the_plugin(cut, {"amd.com/gpu": 8}) == cut
    two = offered(spec(device("a"), device("b", A100)))
    one, other = f"{whole}@{PRODUCT}", f"{whole}@NVIDIA-A100"
    assert beyond_the_plugin(two, {"nvidia.com/gpu": 1}) in (
        {one: (PRODUCT, 0), other: ("NVIDIA-A100", 1)}, {one: (PRODUCT, 1), other: ("NVIDIA-A100", 0)}
    )  # fmt: skip
