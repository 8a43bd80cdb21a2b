"""PURE: dense peak of an accelerator for a precision: the denominator of MFU and HFU."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final

DENSE_PEAK_TFLOPS: Final[dict[str, dict[str, str]]] = {
    "A100": {"bf16": "312"},
    "A800": {"bf16": "312"},
    "H100-PCIE": {"bf16": "756"},
    "H100-NVL": {"bf16": "835"},
    "H100": {"bf16": "989.4", "fp8": "1978.9"},
    "H800": {"bf16": "989.4", "fp8": "1978.9"},
    "H200": {"bf16": "989.4", "fp8": "1978.9"},
    "H20": {"bf16": "148"},
    "L40S": {"bf16": "362"},
    "L40": {"bf16": "181"},
    "L20": {"bf16": "119.5"},
    "A40": {"bf16": "149.7"},
    "A10": {"bf16": "125"},
    "B200": {"bf16": "2250", "fp8": "4500"},
    "GB200": {"bf16": "2500", "fp8": "5000"},
    "MI250X": {"bf16": "191.5"},
    "MI355X": {"bf16": "2500"},
    "ASCEND910A": {"bf16": "256"},
    "TPU-V4": {"bf16": "275"},
    "TPU-V5E": {"bf16": "197"},
    "TPU-V5P": {"bf16": "459"},
    "TPU-V6E": {"bf16": "918"},
}
"""Dense peaks per device in TFLOP/s, without sparsity (vendors often print twice that).

Source: torchtitan and verl device tables, which cite the vendors; glennklockwood.com/garden/processors/h100. Left out
because public sources disagree: B300, GB300, MI300X, MI325X and the bins of Ascend 910B.
"""

SAME_PEAK: Final = {"fp16": "bf16", "float16": "bf16", "bfloat16": "bf16", "float8": "fp8", "fp8_e4m3": "fp8"}


def dense_peak_tflops(
    accelerator: str, dtype: str, more: Mapping[str, Mapping[str, str]] | None = None
) -> Decimal | None:
    """Return the dense peak of a product such as "NVIDIA-H800-80GB" for a precision, or None if it is unknown.

    Names match as whole words, so that "H20" is not found in "H200", "A10" not in "A1000", "B200" not in "GB200"; of several
    matches the longest counts ("H100-NVL" before "H100"). `more`: peaks of a site's own contract, which take precedence over
    the table.

    >>> dense_peak_tflops("NVIDIA-H200", "bf16"), dense_peak_tflops("NVIDIA-H20", "fp16")
    (Decimal('989.4'), Decimal('148'))
    """
    if not more:
        return _of_the_table(accelerator, dtype)
    name, precision = _words(accelerator), canonical_dtype(dtype)
    product = _longest(more, name)
    return _of_the_table(accelerator, dtype) if product is None else _decimal(more[product].get(precision))


@lru_cache(maxsize=4096)
def _of_the_table(accelerator: str, dtype: str) -> Decimal | None:
    """Look up the table, cached: a close asks for every sample of a month, of a handful of products."""
    product = _longest(DENSE_PEAK_TFLOPS, _words(accelerator))
    return None if product is None else _decimal(DENSE_PEAK_TFLOPS[product].get(canonical_dtype(dtype)))


def _longest(table: Iterable[str], name: str) -> str | None:
    """Return the longest product of a table that is part of a name, or None."""
    for product in sorted(table, key=len, reverse=True):
        if re.search(rf"(?<![A-Z0-9]){re.escape(_words(product))}(?![A-Z0-9])", name):
            return product
    return None


def _decimal(peak: str | None) -> Decimal | None:
    return Decimal(peak) if peak else None


def canonical_dtype(dtype: str) -> str:
    """Return the precision whose peak applies: all 16-bit formats share one, and so do the 8-bit ones.

    >>> canonical_dtype("FP16"), canonical_dtype("int4")
    ('bf16', 'int4')
    """
    return SAME_PEAK.get(dtype.lower(), dtype.lower())


def _words(name: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "-", name.upper())
