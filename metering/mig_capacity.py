"""PURE: number of cards behind the MIG slices that a node offers.

The slices of a card do not always add up to it: four 1g.20gb fill the memory of an 80 GB card with four of its seven compute
slices, two 3g.40gb with six. Capacity is counted in cards, and the part of a card that no slice can use is idle.

Under the mixed strategy GPU feature discovery counts cards (`nvidia.com/gpu.count`), cut ones included, and names the
product of each kind of slice. Under the single strategy the same label counts slices, so the number of cards follows only if
the number of slices on each is certain. Every other number of cards is unknown.
Source: NVIDIA/k8s-device-plugin docs/gpu-feature-discovery, internal/lm/mig-strategy.go (newGPULabelers,
newMigStrategySingleLabeler); NVIDIA MIG user guide, supported profiles (number of instances).
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from metering.accelerators import (
    MIG,
    NodeFacts,
    accelerator_product,
    gke_profile,
    mig_slices,
    normalised_product,
    unit_share,
)
from metering.shares import CARD, unread_states

WHOLE_CARDS: Final = frozenset({CARD, f"{CARD}.shared"})
SLICE: Final = "nvidia.com/mig-"
FILLING: Final = {
    7: frozenset({"1g.5gb", "1g.10gb", "1g.12gb", "1g.18gb", "1g.23gb"}),
    4: frozenset({"1g.6gb", "2g.12gb", "1g.24gb", "2g.48gb"}),
    2: frozenset({"1g.24gb", "1g.16gb"}),
}
"""Profiles of which as many fit on a card as it has compute slices, by the number of slices: of 1g.20gb only four fit."""
SMALL_CARD: Final = "40GB"
"""Memory size in the product of a card on which 1g.10gb has twice the memory of a slice, so that only four fit."""


def mixed_resources(capacity: Mapping[str, int]) -> frozenset[str]:
    """Return the names under which a node offers whole cards and slices; empty if the node offers no slices by name."""
    slices = {name for name in capacity if name.startswith(SLICE)}
    return WHOLE_CARDS | slices if any(capacity[name] for name in slices) else frozenset()


def cards_of_mixed(node: NodeFacts, allocatable: Mapping[str, int]) -> int | None:
    """Return the cards that a node of the mixed strategy offers, cut or not; None if its labels leave any doubt.

    Broken cards are no capacity, and a broken slice does not show its card: then the number is None.
    """
    labels, count = node.labels, node.labels.get(f"{CARD}.count", "")
    slices = {name for name, units in node.capacity.items() if units and name.startswith(SLICE)}
    if labels.get("nvidia.com/mig.strategy") != "mixed" or not (count.isascii() and count.isdecimal()):
        return None
    if node.annotations or unread_states(node) or not _of_one_product(slices, labels):
        return None
    if any(allocatable.get(name) != node.capacity[name] for name in slices):
        return None
    cut, whole = _devices(slices, node.capacity, node), _devices(WHOLE_CARDS, node.capacity, node)
    usable = _devices(WHOLE_CARDS, allocatable, node)
    if cut is None or whole is None or usable is None or not 0 < cut <= int(count) - whole:
        return None
    return int(int(count) - whole + usable) if whole.denominator == usable.denominator == 1 else None


def _of_one_product(slices: Iterable[str], labels: Mapping[str, str]) -> bool:
    """Return True if all slices are of the counted product: with several products the label counts one of them."""
    product = normalised_product(labels.get(f"{CARD}.product", ""))
    named = {normalised_product(labels.get(f"{name.removesuffix('.shared')}.product", "")) for name in slices}
    return bool(product) and named == {product}


def _devices(names: Iterable[str], units: Mapping[str, int], node: NodeFacts) -> Fraction | None:
    total = Fraction(0)
    for name in names:
        share = unit_share(name, node) if units.get(name) else Fraction(0)
        if share is None:
            return None
        total += share * units.get(name, 0)
    return total


def cards_of_single(devices: Fraction, node: NodeFacts) -> Fraction | None:
    """Return the cards behind units of nvidia.com/gpu that make up so many `devices`; None if that is uncertain.

    >>> node = NodeFacts({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-4g.40gb"})
    >>> cards_of_single(Fraction(8 * 4, 7), node)
    Fraction(8, 1)
    """
    product = accelerator_product(node.labels)
    match = MIG.search(product) or MIG.search(gke_profile(node.labels))
    if match is None:
        return devices  # they are not cut
    profile, size = match.group(1), int(match.group(2))
    of_card = mig_slices(profile, product)
    if of_card is None:
        return None
    units = devices * of_card / size
    if 2 * size > of_card:
        return units  # one on each card: a card without any makes the labels invalid
    plain = match.string.removesuffix("-SHARED").endswith(profile)  # with media extensions only one fits
    fills = profile in FILLING.get(of_card, frozenset()) and not (profile == "1g.10gb" and SMALL_CARD in product.upper())
    return units / (of_card // size) if plain and fills else None
