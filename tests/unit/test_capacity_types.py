"""The capacity type of a node, platform by platform: labels as each writes them."""

import pytest

from metering.capacity_types import node_capacity_type

CASES = [
    # karpenter.sh, well-known labels
    ({"karpenter.sh/capacity-type": "spot"}, "spot"),
    ({"karpenter.sh/capacity-type": "on-demand"}, "on_demand"),
    ({"karpenter.sh/capacity-type": "reserved", "karpenter.k8s.aws/capacity-reservation-id": "cr-1"}, "reserved"),
    ({"karpenter.sh/capacity-type": "reserved", "karpenter.k8s.aws/capacity-reservation-type": "default"}, "reserved"),
    # Amazon EKS, managed node groups
    ({"eks.amazonaws.com/capacityType": "SPOT"}, "spot"),
    ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, "on_demand"),
    ({"eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"}, "reserved"),
    # GKE
    ({"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"}, "spot"),
    ({"cloud.google.com/gke-provisioning": "standard"}, "on_demand"),
    ({"cloud.google.com/gke-preemptible": "true", "cloud.google.com/gke-provisioning": "preemptible"}, "spot"),
    ({"cloud.google.com/gke-flex-start": "true", "cloud.google.com/gke-provisioning": "standard"}, "flex_start"),
    ({"cloud.google.com/reservation-name": "a3-q4", "cloud.google.com/gke-provisioning": "standard"}, "reserved"),
    ({"cloud.google.com/gke-spot": "false", "cloud.google.com/gke-provisioning": "standard"}, "on_demand"),
    ({"cloud.google.com/gke-spot": "false"}, None),
    # AKS: only nodes of Spot pools have the label
    ({"kubernetes.azure.com/scalesetpriority": "spot"}, "spot"),
    ({"kubernetes.azure.com/scalesetpriority": "Regular"}, "on_demand"),
    ({"kubernetes.azure.com/mode": "user"}, None),
    # kOps and own groups, Spot Ocean, CAST AI, OKE, Yandex, OpenShift, Cluster API
    ({"node.kubernetes.io/lifecycle": "spot"}, "spot"),
    ({"node.kubernetes.io/lifecycle": "od"}, "on_demand"),
    ({"node.kubernetes.io/capacity-type": "On-Demand"}, "on_demand"),
    ({"spotinst.io/node-lifecycle": "od"}, "on_demand"),
    ({"scheduling.cast.ai/spot": "true"}, "spot"),
    ({"oci.oraclecloud.com/oke-is-preemptible": "true"}, "spot"),
    ({"oci.oraclecloud.com/oke-is-preemptible": "false"}, None),
    ({"yandex.cloud/preemptible": "true"}, "spot"),
    ({"machine.openshift.io/interruptible-instance": ""}, "spot"),
    ({"cluster.x-k8s.io/interruptible": ""}, "spot"),
    # a name of its own is passed on; what says nothing of it is none
    ({"karpenter.sh/capacity-type": "Tidal-Pool"}, "tidal_pool"),
    ({"karpenter.sh/capacity-type": " "}, None),
    ({"node.kubernetes.io/instance-type": "p5.48xlarge"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("labels", "stated"), CASES, ids=[" ".join(labels) or "nothing" for labels, _ in CASES])
def test_a_node_is_of_the_type_that_its_platform_states(labels: dict[str, str], stated: str | None) -> None:
    assert node_capacity_type(labels) == stated
