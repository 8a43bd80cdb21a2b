"""Known accelerator names: a rule that names any other accelerator would bill unused capacity, or nothing."""

from difflib import get_close_matches

from billing.rates.models import GpuPrice
from billing.usage.models import GpuAllocation, NodeCapacity
from metering.messages import Message


def unknown_accelerator(name: str) -> Message | None:
    """Return why `name` is unknown, with the nearest name; None if a price list, a pool or usage names it."""
    named = (GpuPrice, NodeCapacity, GpuAllocation)
    if any(model._default_manager.filter(accelerator=name).exists() for model in named):
        return None
    near = nearest(name, {
        known for model in named for known in model._default_manager.values_list("accelerator", flat=True).distinct()
    })  # fmt: skip
    if near is None:
        return Message("%(name)s is named by no price list, capacity or usage", name=repr(name))
    return Message(
        "%(name)s is named by no price list, capacity or usage, did you mean %(near)s?", name=repr(name), near=near
    )


def nearest(name: str, known: set[str]) -> str | None:
    """Return the name in `known` that is most like another, ignoring case; None if no name is close.

    >>> nearest("nvidia-h80O", {"NVIDIA-H800", "NVIDIA-A100", ""}), nearest("MI300X", {"NVIDIA-H800"})
    ('NVIDIA-H800', None)
    """
    by_fold = {one.casefold(): one for one in sorted(known) if one}
    close = get_close_matches(name.casefold(), by_fold, n=1)
    return by_fold[close[0]] if close else None
