"""PURE: plausibility checks of a training plan: memory, data, deadline, own experience.

A check that lacks an input reports that; it never passes by default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from metering.messages import Message
from pricing.fields import Bound, FieldReader
from pricing.number_text import short_text

GIGA: Final = 10**9
BYTES_PER_PARAM: Final = "16"
"""Bytes per parameter, mixed precision with Adam: 2 of weights, 2 of gradients, 12 of a 32-bit copy and two moments."""

TOKENS_PER_PARAM: Final = 20
FACTS: Final[dict[str, Bound]] = {
    "total_params": Bound("1e3", "1e16", "parameters that are kept, of a mixture of experts all of them"),
    "gpu_memory_gb": Bound("1", "1e4", "GB of one GPU"),
    "bytes_per_param": Bound("1", "64", "bytes of weights, gradients and optimizer", "Adam in mixed precision takes 16"),
    "deadline_days": Bound("0", "1e5", "days until the plan must be done", above_low=True),
    "queue_days": Bound("0", "1e5", "days of waiting before the run begins"),
    "mfu_p90": Bound("0", "1", "ratio, the best tenth of own runs", "45 % is 0.45", above_low=True, below_high=True),
}
"""Optional inputs of the checks."""


@dataclass(frozen=True, slots=True)
class Check:
    """Plausibility check: `holds` is None where an input is missing; the answer in words."""

    name: str
    holds: bool | None
    text: Message


def read_facts(reader: FieldReader, active_params: Fraction | None) -> dict[str, Fraction]:
    """Read the given facts; a total below the active parameters is refused."""
    facts = reader.given(FACTS)
    total = facts.get("total_params")
    if total is not None and active_params is not None and total < active_params:
        reader.refuse("total_params", Message(
            "%(value)s must be at least active_params %(other)s", value=_text(total), other=_text(active_params)
        ))
    return facts


def memory_per_gpu_gb(total_params: Fraction, bytes_per_param: Fraction, gpus: Fraction) -> Fraction:
    """Return GB = total parameters x bytes / GPUs / 10^9, all states sharded over all GPUs; activations come on top.

    >>> memory_per_gpu_gb(Fraction(70 * 10**9), Fraction(16), Fraction(8))
    Fraction(140, 1)

    Source: ZeRO stage 3, arXiv 1910.02054.
    """
    return total_params * bytes_per_param / gpus / GIGA


def plan_checks(
    facts: Mapping[str, Fraction],
    *,
    active_params: Fraction,
    tokens: Fraction,
    gpus: Fraction,
    mfu: Fraction,
    days: Fraction,
) -> list[Check]:
    """Check memory, tokens per parameter, deadline and MFU of own runs, in this order.  Source: section 5 checks."""
    return [_memory(facts, gpus), _data(active_params, tokens), _deadline(facts, days), _experience(facts, mfu)]


def _memory(facts: Mapping[str, Fraction], gpus: Fraction) -> Check:
    if "total_params" not in facts or "gpu_memory_gb" not in facts:
        return Check("memory", None, Message(
            "total_params or gpu_memory_gb is not given: whether the model fits is not checked"
        ))
    needed = memory_per_gpu_gb(facts["total_params"], facts.get("bytes_per_param", Fraction(BYTES_PER_PARAM)), gpus)
    has = facts["gpu_memory_gb"]
    sizes = {"needed": _text(needed), "has": _text(has)}
    return Check("memory", needed < has, Message(
        "weights, gradients and optimizer take %(needed)s GB of each GPU's %(has)s GB before activations", **sizes
    ) if needed < has else Message(
        "the model does not fit: weights, gradients and optimizer take %(needed)s GB of each GPU's %(has)s GB before "
        "activations", **sizes
    ))


def _data(active_params: Fraction, tokens: Fraction) -> Check:
    ratio = _text(tokens / active_params)
    if tokens >= TOKENS_PER_PARAM * active_params:
        return Check("data", True, Message("%(ratio)s tokens per active parameter", ratio=ratio))
    return Check("data", False, Message(
        "tokens are %(ratio)s times active_params: below 20 the model is larger than its data pays for", ratio=ratio
    ))


def _deadline(facts: Mapping[str, Fraction], days: Fraction) -> Check:
    if "deadline_days" not in facts:
        return Check("deadline", None, Message(
            "deadline_days is not given: whether the run is done in time is not checked"
        ))
    queue, deadline = facts.get("queue_days", Fraction(0)), facts["deadline_days"]
    in_time, times = queue + days <= deadline, {"queue": _text(queue), "days": _text(days), "deadline": _text(deadline)}
    return Check("deadline", in_time, Message(
        "%(queue)s days in the queue and %(days)s of running, deadline %(deadline)s days", **times
    ) if in_time else Message(
        "too late: %(queue)s days in the queue and %(days)s of running, deadline %(deadline)s days", **times
    ))


def _experience(facts: Mapping[str, Fraction], mfu: Fraction) -> Check:
    if "mfu_p90" not in facts:
        return Check("experience", None, Message("mfu_p90 of own runs is not known: the MFU is an assumption"))
    own = facts["mfu_p90"]
    both = {"mfu": _text(mfu), "own": _text(own)}
    return Check("experience", mfu <= own, Message(
        "mfu %(mfu)s against %(own)s, your 90th percentile", **both
    ) if mfu <= own else Message(
        "too hopeful: mfu %(mfu)s against %(own)s, your 90th percentile", **both
    ))


def _text(value: Fraction) -> str:
    return short_text(value, 2)
