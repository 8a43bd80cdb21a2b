"""PURE: FLOP per token of a training step, by named formula, and MFU and HFU from them.

The same job shows another MFU under another formula: PaLM counts attention as if it were not causal, Megatron-LM halves
it for the causal mask. So every number carries the name of its formula, and numbers of two formulas are never mixed.

    MFU = model FLOP per token x tokens/s / (devices x dense peak FLOP/s)
    HFU = the same with what was executed twice: recomputed activations count again

Neither is a hardware counter. A device's own "utilisation" says only that something ran.
"""

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Final

import msgspec

TERA: Final = 10**12
FORWARD_AND_BACKWARD: Final = Fraction(6)
"""FLOP per parameter and token: two forward (multiply and add), four backward."""
FORWARD: Final = Fraction(2)
ATTENTION: Final = Fraction(12)
"""FLOP per layer, head, head dimension and position, forward and backward: QK^T and scores x V, three times four."""
ATTENTION_FORWARD: Final = Fraction(4)


class Recomputation(StrEnum):
    """Activations that were dropped and computed again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"  # only the attention core
    FULL = "full"


class Formula(StrEnum):
    """Formulas that count FLOP per token."""

    SIX_N = "6N"  # parameters only
    PALM = "palm"  # 6N + 12LHQT: attention over the whole sequence; torchtitan counts so too
    MEGATRON = "megatron"  # attention halved for the causal mask, as Megatron-LM's --log-throughput and NeMo do
    REPORTED = "reported"  # the job gave FLOP/s and did not say how it counted


ATTENTION_WEIGHT: Final[Mapping[Formula, Fraction]] = {
    Formula.SIX_N: Fraction(0),
    Formula.PALM: Fraction(1),
    Formula.MEGATRON: Fraction(1, 2),
    Formula.REPORTED: Fraction(0),
}

Positive = Annotated[int, msgspec.Meta(ge=1)]


class ModelShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shape of a model, which decides the FLOP of a step. `active_params`: those that one token meets, also with experts.

    Tied embeddings count once, in the head; an untied input embedding does no matrix product and is left out.
    """

    active_params: Positive
    layers: Positive | None = None
    heads: Positive | None = None
    head_dim: Positive | None = None
    seq_len: Positive | None = None

    @property
    def attention_positions(self) -> int | None:
        """Return layers x heads x head dimension x sequence, or None if the shape is not reported."""
        if self.layers is None or self.heads is None or self.head_dim is None or self.seq_len is None:
            return None
        return self.layers * self.heads * self.head_dim * self.seq_len


class FormulaError(ValueError):
    """Error of a formula that needs more of the model's shape than was reported."""


def model_flops_per_token(formula: Formula, shape: ModelShape) -> Fraction:
    """Return the useful FLOP of one token, forward and backward.

    6 x N + w x 12 x L x H x Q x T, with w = 0 ("6N"), 1 ("palm") or 1/2 ("megatron")

    >>> model_flops_per_token(Formula.PALM, ModelShape(10**9, layers=10, heads=8, head_dim=128, seq_len=2048))
    Fraction(6251658240, 1)

    Raises FormulaError.  Source: PaLM, arXiv 2204.02311, appendix B; NVIDIA/Megatron-LM training.py.
    """
    return FORWARD_AND_BACKWARD * shape.active_params + ATTENTION * _attention(formula, shape)


def hardware_flops_per_token(formula: Formula, shape: ModelShape, recomputation: Recomputation) -> Fraction:
    """Return the executed FLOP of one token: recomputation adds a forward pass, of all or of the attention core only.

    >>> shape = ModelShape(10**9, layers=10, heads=8, head_dim=128, seq_len=2048)
    >>> hardware_flops_per_token(Formula.PALM, shape, Recomputation.FULL)  # 8N + 16LHQT
    Fraction(8335544320, 1)

    Raises FormulaError.  Source: arXiv 2205.05198.
    """
    useful = model_flops_per_token(formula, shape)
    if recomputation is Recomputation.NONE:
        return useful
    again = ATTENTION_FORWARD * _attention(formula, shape)
    if recomputation is Recomputation.SELECTIVE:
        if not again:
            raise FormulaError(f"formula {formula.value} says nothing of attention: selective recomputation needs another")
        return useful + again
    return useful + FORWARD * shape.active_params + again


def hfu_factor(recomputation: Recomputation, formula: Formula, shape: ModelShape | None) -> Fraction | None:
    """Return HFU / MFU of a job that reported only MFU or FLOP/s; None if that takes a shape that is not reported.

    >>> hfu_factor(Recomputation.FULL, Formula.REPORTED, None)
    Fraction(4, 3)

    Source: arXiv 2205.05198: a repeated forward pass makes 8 of 6, in the attention term (16 of 12) as well.
    """
    if recomputation is Recomputation.NONE:
        return Fraction(1)
    if recomputation is Recomputation.FULL:
        return (FORWARD_AND_BACKWARD + FORWARD) / FORWARD_AND_BACKWARD
    if shape is None or shape.attention_positions is None or not ATTENTION_WEIGHT[formula]:
        return None
    return hardware_flops_per_token(formula, shape, recomputation) / model_flops_per_token(formula, shape)


def utilisation(flops_per_second: Fraction, peak_tflops: Fraction) -> Fraction:
    """Return FLOP/s of one device over its dense peak in TFLOP/s.

    >>> utilisation(Fraction(4947 * 10**11), Fraction("989.4"))
    Fraction(1, 2)
    """
    return flops_per_second / (peak_tflops * TERA)


def _attention(formula: Formula, shape: ModelShape) -> Fraction:
    weight = ATTENTION_WEIGHT[formula]
    positions = shape.attention_positions
    if weight and positions is None:
        raise FormulaError(f"formula {formula.value} needs layers, heads, head_dim and seq_len of the model")
    return weight * (positions or 0)
