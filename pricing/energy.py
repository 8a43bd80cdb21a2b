"""PURE: conversion of energy counters of devices to kWh at the meter of the building.

Counters (NVML, DCGM) count millijoules since the driver was loaded and restart at zero when it is loaded again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

from metering.messages import Message
from pricing.fields import Bound, FieldReader, shown
from pricing.number_text import short_text

MILLIJOULES_PER_KWH: Final = 3_600_000_000
FIELD: Final = "metered_energy"
MEASURED: Final = Bound("0", "1e12", "kWh before PUE")
HOURS: Final = Bound("0", "1e12", "GPU-hours that the energy was counted over", above_low=True)
READING: Final = Bound("0", "1e30", "mJ of one device since its driver was loaded", whole=True)
PER_GPU_HOUR: Final = Bound("0", "20", "kWh per GPU-hour before PUE", "1275 Wh are 1.275", above_low=True)


def counted_millijoules(readings: Sequence[int]) -> int:
    """Return the energy between the first and the last reading; a reading below its predecessor is a reset to zero.

    Energy between the last reading before a reset and the reset is lost: the sum never overstates.

    >>> counted_millijoules([7_000_000_000, 7_200_000_000, 100_000_000, 460_000_000])
    660000000

    Source: FE5; NVIDIA NVML documentation, total energy consumption.
    """
    return sum(after - before if after >= before else after for before, after in pairwise(readings))


def kwh_of(millijoules: int) -> Fraction:
    """Return energy in kWh = mJ / (3.6 x 10^9).

    >>> kwh_of(660_000_000)
    Fraction(11, 60)
    """
    return Fraction(millijoules, MILLIJOULES_PER_KWH)


@dataclass(frozen=True, slots=True)
class MeteredEnergy:
    """Energy metered over some GPU-hours, in kWh before PUE; `gap_kwh`: counted by the PDU beyond devices and hosts."""

    gpu_hours: Fraction
    device_kwh: Fraction
    host_kwh: Fraction
    gap_kwh: Fraction

    @property
    def per_gpu_hour(self) -> Fraction:
        """Return the kWh of a GPU-hour: its device and its share of the hosts."""
        return (self.device_kwh + self.host_kwh) / self.gpu_hours

    @property
    def gap_per_gpu_hour(self) -> Fraction:
        """Return the kWh of a GPU-hour that no device and no host counted: switches, idle machines, losses."""
        return self.gap_kwh / self.gpu_hours


def read_metered_energy(reader: FieldReader) -> MeteredEnergy | None:
    """Read the field `metered_energy` of a cost sheet; None where it is absent, or where a problem was noted.

    {"gpu_hours": 32, "devices_mj": [[readings of one device, in the order of time], ...] or "device_kwh": kWh,
     "host_kwh": kWh, "pdu_kwh": kWh, if it was read}

    Source: FE5, metered energy; energy that only the PDU counts is shared by all.
    """
    if not reader.has(FIELD):
        return None
    before = len(reader.problems)
    inner = reader.nested(reader.fields[FIELD], "metered energy", FIELD)
    if not inner.is_mapping:
        return None
    inner.finish(("gpu_hours", "devices_mj", "device_kwh", "host_kwh", "pdu_kwh"))
    hours, host = inner.number("gpu_hours", HOURS), inner.number("host_kwh", MEASURED, "0")
    devices, pdu = _device_kwh(inner), inner.optional("pdu_kwh", MEASURED)
    if len(reader.problems) > before or hours is None or host is None or devices is None:
        return None
    counted = devices + host
    if pdu is not None and pdu < counted:
        given = shown(inner.fields["pdu_kwh"])
        inner.refuse("pdu_kwh", Message(
            "%(value)s must be at least the %(least)s kWh of devices and hosts", value=given, least=short_text(counted, 6)
        ))
    if not PER_GPU_HOUR.holds(counted / hours):
        inner.refuse("gpu_hours", Message(
            "%(n)s kWh over %(hours)s GPU-hours: each %(range)s",
            n=short_text(counted, 6), hours=short_text(hours, 6), range=PER_GPU_HOUR.expected,
        ))
    return MeteredEnergy(hours, devices, host, Fraction(0) if pdu is None else pdu - counted)


def _device_kwh(inner: FieldReader) -> Fraction | None:
    """Read the kWh of devices: from their counters, or as a given sum; exactly one of them."""
    if inner.has("devices_mj") == inner.has("device_kwh"):
        inner.refuse("devices_mj", Message("give exactly one of %(names)s", names="devices_mj, device_kwh"))
        return None
    if inner.has("device_kwh"):
        return inner.number("device_kwh", MEASURED)
    total = Fraction(0)
    devices = inner.nested(dict(enumerate(inner.each("devices_mj"))), "a device", "devices_mj")
    for device in devices.fields:
        readings = devices.numbers(device, READING)
        total += kwh_of(counted_millijoules([int(reading) for reading in readings if reading is not None]))
    return total
