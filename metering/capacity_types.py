"""PURE: capacity type of a node by the labels of its platform: `on_demand`, `spot`, `reserved` or the platform's own word.

A missing label leads to no conclusion: where a platform says nothing of a node, rules of the set-up file may
(`capacity_types:`). A preemptible machine is `spot`; one of a capacity block, which is paid ahead, is `reserved`.
"""

from collections.abc import Mapping
from typing import Final

from metering.records import canonical_capacity_type

ON_DEMAND, SPOT, RESERVED = "on_demand", "spot", "reserved"
RESERVATIONS: Final = ("cloud.google.com/reservation-name", "karpenter.k8s.aws/capacity-reservation-id")
"""Labels that name the reservation that a node runs on."""
STATED: Final[Mapping[str, Mapping[str, str]]] = {
    "karpenter.sh/capacity-type": {},
    "eks.amazonaws.com/capacityType": {"capacity_block": RESERVED},
    "cloud.google.com/gke-provisioning": {"standard": ON_DEMAND, "preemptible": SPOT},
    "kubernetes.azure.com/scalesetpriority": {"regular": ON_DEMAND},
    "node.kubernetes.io/capacity-type": {"od": ON_DEMAND, "ondemand": ON_DEMAND, "normal": ON_DEMAND},
    "node.kubernetes.io/lifecycle": {"od": ON_DEMAND, "ondemand": ON_DEMAND, "normal": ON_DEMAND},
    "spotinst.io/node-lifecycle": {"od": ON_DEMAND},
}
"""Labels whose value is the type, best first; each with the values that are synonyms of a type."""
MARKS: Final[Mapping[str, str]] = {
    "cloud.google.com/gke-spot": SPOT,
    "cloud.google.com/gke-preemptible": SPOT,
    "cloud.google.com/gke-flex-start": "flex_start",
    "scheduling.cast.ai/spot": SPOT,
    "oci.oraclecloud.com/oke-is-preemptible": SPOT,
    "yandex.cloud/preemptible": SPOT,
    "machine.openshift.io/interruptible-instance": SPOT,
    "cluster.x-k8s.io/interruptible": SPOT,
}
"""Labels that mark a node as one type, with the value `true` or an empty value.

Source of all: karpenter.sh, well-known labels; Amazon EKS, managed node groups; GKE, Spot VMs, flex-start, reservations;
AKS, Spot node pools; Spot Ocean and CAST AI, labels of nodes; OKE, preemptible worker nodes; Yandex Managed Kubernetes;
OpenShift machine API and Cluster API, interruptible instances."""


def node_capacity_type(labels: Mapping[str, str]) -> str | None:
    """Return the capacity type that a node's labels state; None if no label does.

    >>> node_capacity_type({"eks.amazonaws.com/capacityType": "ON_DEMAND"}), node_capacity_type({"zone": "a"})
    ('on_demand', None)
    """
    if any(labels.get(name) for name in RESERVATIONS):
        return RESERVED
    # A missing label counts as false, an empty one as true.
    marked = (kind for name, kind in MARKS.items() if labels.get(name, "false").lower() in ("true", ""))
    if found := next(marked, None):
        return found
    stated = next((name for name in STATED if labels.get(name, "").strip()), None)
    if stated is None:
        return None
    kind = canonical_capacity_type(labels[stated].strip())
    return STATED[stated].get(kind, kind)
