"""PURE: energy counters of devices -> kWh at the meter of the building.

Counters (NVML, DCGM) count millijoules since the driver was loaded and start again at zero when it is loaded anew.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final

MILLIJOULES_PER_KWH: Final = 3_600_000_000


class EnergyError(ValueError):
    """Readings that are no counter."""


def counted_millijoules(readings: Sequence[int]) -> int:
    """Energy between the first and the last reading; where one is below its predecessor the counter began at zero.

    What was used between the last reading before a reset and the reset is lost: the sum never overstates.

    >>> counted_millijoules([7_000_000_000, 7_200_000_000, 100_000_000, 460_000_000])
    660000000

    Raises EnergyError for negative readings.  Source: FE5; NVIDIA NVML documentation, total energy consumption.
    """
    if any(reading < 0 for reading in readings):
        raise EnergyError(f"energy readings {list(readings)} must not be negative")
    return sum(after - before if after >= before else after for before, after in pairwise(readings))


def kwh_of(millijoules: int) -> Fraction:
    """Energy in kWh = mJ / (3.6 x 10^9).

    >>> kwh_of(660_000_000)
    Fraction(11, 60)
    """
    return Fraction(millijoules, MILLIJOULES_PER_KWH)


def facility_kwh(device_kwh: Fraction, host_kwh: Fraction, pue: Fraction) -> Fraction:
    """Energy in kWh at the meter = (devices + their share of host, fans and network) x PUE.

    The share of a host goes by allocated GPU-seconds.

    >>> facility_kwh(Fraction("20.16"), Fraction("4.6") * 4, Fraction("1.3")) == Fraction("50.128")
    True

    Raises EnergyError for a PUE below 1.  Source: FE5, metered energy.
    """
    if pue < 1:
        raise EnergyError(f"PUE {pue} must be at least 1: a building uses at least what its machines use")
    return (device_kwh + host_kwh) * pue
