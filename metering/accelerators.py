"""PURE: what one unit of an extended resource is of a physical device.

MIG profiles name their share: `nvidia.com/mig-3g.40gb` is three of seven compute slices. Whole devices are 1. Shared
units (time slices, MPS, HAMi) are a share that only the node knows; capacity is therefore reported in whole devices.
"""

import re
from fractions import Fraction

MIG = re.compile(r"(?:^|/)mig-(\d)g\.(\d+)gb(?:\.me|\+me)?$")
MIG_COMPUTE_SLICES = 7


def device_share(resource: str) -> Fraction:
    """Share of a physical device behind one unit of `resource`.

    >>> device_share("nvidia.com/mig-3g.40gb"), device_share("nvidia.com/gpu")
    (Fraction(3, 7), Fraction(1, 1))

    Source: NVIDIA MIG user guide (compute slices of seven).
    """
    match = MIG.search(resource)
    return Fraction(int(match.group(1)), MIG_COMPUTE_SLICES) if match else Fraction(1)
