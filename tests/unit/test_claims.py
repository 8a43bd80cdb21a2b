"""Devices that pods hold through DRA claims: shared, administrative, partitioned, and never counted twice."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from metering.claims import (
    Claim,
    Claimed,
    ClaimedDevices,
    ClaimError,
    PodClaims,
    allocated_through_claims,
    devices_of,
    quantity_of,
)
from metering.k8s.objects import seen_pod
from metering.k8s.stream import PODS

H100 = {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}}
SLICE = {**H100, "type": {"string": "mig"}, "profile": {"string": "1g.10gb"}}


def resource_slice(*devices: dict[str, Any], driver: str = "gpu.nvidia.com", generation: int = 1) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{driver}-{generation}"},
        "spec": {"driver": driver, "nodeName": "node-a", "devices": list(devices),
                 "pool": {"name": "node-a", "generation": generation, "resourceSliceCount": 1}},
    }  # fmt: skip


def device(name: str, attributes: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": H100 if attributes is None else attributes, **more}


def result(name: str, request: str = "gpus", driver: str = "gpu.nvidia.com", **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": driver, "pool": "node-a", "device": name, **more}


def claim(name: str, *results: dict[str, Any], pods: tuple[str, ...] = ("uid-1",), **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "lab", "uid": f"claim-{name}", "annotations": annotations or None},
        "spec": {"devices": {"requests": []}},
        "status": {
            "allocation": {"devices": {"results": list(results)}, "allocationTimestamp": "2026-10-10T08:00:00Z"},
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in pods],
        },
    }  # fmt: skip


def pod(*claims: str, uid: str = "uid-1", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "trainer-0", "namespace": "lab", "uid": uid, "resourceVersion": "1"},
        "spec": {"containers": [], "resourceClaims": [{"name": name, "resourceClaimName": name} for name in claims]},
        "status": {"phase": "Running", **status},
    }


def claims_of(given: dict[str, Any]) -> PodClaims:
    """Claims of a pod as the agent reads them."""
    seen = seen_pod(PODS.decode(msgspec.json.encode(given)))
    return seen.facts.claims if seen else PodClaims()


def held(given: dict[str, Any], *claims: dict[str, Any], slices: list[Any] | None = None, **more: Any) -> Claimed:
    """What a pod holds of claims, which count where they are reserved for it."""
    given_slices = [resource_slice(device("gpu-0"), device("gpu-1"))] if slices is None else slices
    devices = {place: found for item in given_slices for place, found in devices_of(item["spec"]).items()}
    read = [msgspec.convert(item, Claim) for item in claims]
    reserved = {item.metadata.name: item for item in read if given["metadata"]["uid"] in item.pods}
    return allocated_through_claims(claims_of(given), reserved, devices, **more)


def test_the_devices_of_a_claim_are_held_whole() -> None:
    found = held(pod("two"), claim("two", result("gpu-0"), result("gpu-1")))
    assert found.held == (ClaimedDevices("claim-two", "dra/gpu.nvidia.com", "NVIDIA-H100-80GB-HBM3", 2, Fraction(1)),)
    assert found.unknown == ()


def test_a_claim_that_several_pods_share_is_undivided_here() -> None:
    shared = claim("one", result("gpu-0"), pods=("uid-1", "uid-2", "uid-3"))
    assert [held(pod("one", uid=uid), shared).held[0].share for uid in ("uid-1", "uid-2", "uid-3")] == [Fraction(1)] * 3


HIDDEN = {"resource.kubernetes.io/extended-resource-claim": "true"}


def test_of_a_hidden_claim_what_a_class_names_is_counted_also_where_the_annotation_is_gone() -> None:
    """The other device is counted by the pod's request of an extended resource."""
    requested = ["nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"]
    mappings = [{"containerName": "main", "resourceName": resource, "requestName": f"request-{number}"}
                for number, resource in enumerate(requested)]  # fmt: skip
    trainer = pod(extendedResourceClaimStatus={"resourceClaimName": "behind", "requestMappings": mappings})
    trainer["spec"]["containers"] = [{"name": "main", "resources": {"requests": dict.fromkeys(requested, "1")}}]
    found = held(trainer, claim("behind", result("gpu-0", "request-0"), result("gpu-1", "request-1")))
    assert [item.quantity for item in found.held] == [1]


def test_a_hidden_claim_of_another_pod_is_not_counted_though_it_is_named_and_not_nothing_either() -> None:
    """Anybody may copy a claim with its annotations: its devices are held, and no request counts them."""
    found = held(pod("foreign"), claim("foreign", result("gpu-0"), **HIDDEN))
    assert (found.held, found.unknown) == ((), ("claim foreign: of an extended resource, and not of this pod's",))


def test_a_mig_device_is_a_slice_of_its_card_and_its_own_resource() -> None:
    found = held(pod("slices"), claim("slices", result("mig-0"), result("mig-1")),
                 slices=[resource_slice(device("mig-0", SLICE), device("mig-1", SLICE))])  # fmt: skip
    assert [(item.resource, item.quantity, item.share) for item in found.held] == [
        ("dra/gpu.nvidia.com/mig-1g.10gb", 2, Fraction(1, 7))
    ]


@pytest.mark.parametrize(
    ("driver", "attributes", "capacity", "taken", "product", "share"),
    [
        # Project-HAMi/k8s-dra-driver: cores and memory are what a claim takes of a device
        ("hami-core-gpu.project-hami.io", {"productName": {"string": "NVIDIA A10"}}, {"cores": "100", "memory": "4096Mi"},
         {"cores": "40", "memory": "1600Mi"}, "NVIDIA-A10", Fraction(2, 5)),
        ("hami-core-gpu.project-hami.io", {"productName": {"string": "NVIDIA A10"}}, {"cores": "100", "memory": "4Gi"},
         {"cores": "10", "memory": "1Gi"}, "NVIDIA-A10", Fraction(1, 4)),
        ("ascend.project-hami.io", {"model": {"string": "Ascend910B3"}}, {"memory": "64Gi"}, {"memory": "16Gi"},
         "Ascend910B3", Fraction(1, 4)),
        # intel/intel-resource-drivers-for-kubernetes doc/gaudi: whole cards
        ("gaudi.intel.com", {"model": {"string": "Gaudi3"}}, {}, None, "Gaudi3", Fraction(1)),
    ],
)
def test_drivers_of_hami_and_gaudi_are_known(
    driver: str, attributes: dict[str, Any], capacity: dict[str, str], taken: dict[str, str] | None, product: str,
    share: Fraction,
) -> None:  # fmt: skip
    offered = device("d-0", attributes, capacity={name: {"value": value} for name, value in capacity.items()})
    more = {"shareID": "s-1", "consumedCapacity": taken} if taken else {}
    found = held(pod("one"), claim("one", result("d-0", driver=driver, **more)),
                 slices=[resource_slice(offered, driver=driver)])  # fmt: skip
    assert found.held == (ClaimedDevices("claim-one", f"dra/{driver}", product, 1, share),)
    assert (found.unknown, found.drivers) == ((), {})


def test_a_device_that_is_lent_in_pieces_is_the_largest_piece_taken() -> None:
    card = device("gpu-0", capacity={"memory": {"value": "80Gi"}, "cores": {"value": "100"}}, allowMultipleAllocations=True)
    taken = result("gpu-0", shareID="s-1", consumedCapacity={"memory": "20Gi", "cores": "10"})
    assert held(pod("piece"), claim("piece", taken), slices=[resource_slice(card)]).held[0].share == Fraction(1, 4)
    untold = held(pod("piece"), claim("piece", result("gpu-0", shareID="s-1")), slices=[resource_slice(card)])
    why = "device gpu.nvidia.com/node-a/gpu-0: its share of the card is not reported"
    assert (untold.held, untold.unknown) == ((), (why,))


def test_an_amd_partition_is_its_part_of_the_card() -> None:
    attributes = {"productName": {"string": "AMD_Instinct_MI300X_OAM"}, "partitionProfile": {"string": "CPX_NPS4"}}
    slices = [resource_slice(device("p-0", attributes), driver="gpu.amd.com")]
    found = held(pod("part"), claim("part", result("p-0", driver="gpu.amd.com")), slices=slices)
    assert [(item.resource, item.share) for item in found.held] == [("dra/gpu.amd.com/CPX_NPS4", Fraction(1, 8))]


def test_what_nobody_knows_is_reported_and_not_dropped() -> None:
    results = [result("gpu-9"), result("n-0", driver="fpga.example.com"), result("c-0", driver="compute-domain.nvidia.com")]
    found = held(pod("odd", "lost"), claim("odd", *results))
    assert found.held == ()
    assert found.unknown == (
        "claim lost: not seen as reserved for the pod",
        "device gpu.nvidia.com/node-a/gpu-9: in no ResourceSlice",
    )
    assert found.drivers == {"fpga.example.com": 1}
    fpga = resource_slice(device("n-0", {"model": {"string": "F1"}}), driver="fpga.example.com")
    counted = held(pod("odd"), claim("odd", results[1]), slices=[fpga], drivers={"fpga.example.com": "example"})
    assert [(item.resource, item.accelerator) for item in counted.held] == [("dra/fpga.example.com", "F1")]


def test_an_older_form_of_slices_is_read() -> None:
    beta = {"name": "gpu-0", "basic": {"attributes": H100, "capacity": {"memory": {"value": "80Gi"}}}}
    assert held(pod("one"), claim("one", result("gpu-0")), slices=[resource_slice(beta)]).held[0].quantity == 1


def test_a_quantity_of_another_form_is_refused() -> None:
    with pytest.raises(ClaimError, match="1 GiB"):
        quantity_of("1 GiB")


@pytest.mark.parametrize("profile", [{"profile": {"string": "1c.3g.40gb"}}, {}], ids=["unknown profile", "no profile"])
def test_a_slice_of_which_nobody_knows_the_share_is_no_whole_card(profile: dict[str, Any]) -> None:
    odd = device("m", {**H100, "type": {"string": "mig"}, **profile})
    found = held(pod("c"), claim("c", result("m")), slices=[resource_slice(odd)])
    assert found.held == ()
    assert [text for text in found.unknown if "of which nobody knows how much of its card it is" in text]
    named = {"drivers": {"gpu.example.com": "other"}}
    counted = claim("c", result("m", driver="gpu.example.com"))
    own = resource_slice(device("m", {**H100, **profile}), driver="gpu.example.com")
    assert [item.share for item in held(pod("c"), counted, slices=[own], **named).held] == [Fraction(1)]
