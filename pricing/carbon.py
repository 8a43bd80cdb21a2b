"""PURE: conversion of energy to kg of CO2. Information on an invoice, never a monetary line.

Factors of different bases never mix: official averages count emissions of power plants, lifecycle factors also upstream
emissions. Location-based is shown by default; with green certificates the rest takes the residual factor.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from metering.messages import Message, UserError
from pricing.fields import Bound, FieldReader


class CarbonError(UserError, ValueError):
    """Carbon factors that cannot be combined, or no known factor."""

    code = "carbon"


@dataclass(frozen=True, slots=True)
class CarbonFactor:
    """Emissions in kg of CO2 per kWh of a region and year; `basis` says which emissions are counted."""

    region: str
    year: int
    kg_per_kwh: str
    basis: str


OFFICIAL: Final = "official average"
RESIDUAL: Final = "official residual"
LIFECYCLE: Final = "lifecycle"

FACTORS: Final = (
    CarbonFactor("CN", 2022, "0.5366", OFFICIAL),
    CarbonFactor("CN", 2023, "0.5306", OFFICIAL),
    CarbonFactor("CN", 2023, "0.6096", RESIDUAL),
    CarbonFactor("CN-North", 2023, "0.6361", OFFICIAL),
    CarbonFactor("CN-Northeast", 2023, "0.5122", OFFICIAL),
    CarbonFactor("CN-East", 2023, "0.5500", OFFICIAL),
    CarbonFactor("CN-Central", 2023, "0.5271", OFFICIAL),
    CarbonFactor("CN-Northwest", 2023, "0.5543", OFFICIAL),
    CarbonFactor("CN-South", 2023, "0.4042", OFFICIAL),
    CarbonFactor("CN-Southwest", 2023, "0.2472", OFFICIAL),
    CarbonFactor("CN", 2024, "0.5575", LIFECYCLE),
    CarbonFactor("EU", 2024, "0.21302", LIFECYCLE),
    CarbonFactor("WORLD", 2024, "0.47294", LIFECYCLE),
    CarbonFactor("US", 2024, "0.38355", LIFECYCLE),
    CarbonFactor("DE", 2024, "0.34206", LIFECYCLE),
    CarbonFactor("FR", 2024, "0.04418", LIFECYCLE),
    CarbonFactor("SE", 2024, "0.03589", LIFECYCLE),
    CarbonFactor("NO", 2024, "0.03075", LIFECYCLE),
    CarbonFactor("CA", 2024, "0.18499", LIFECYCLE),
)
"""Source: China's official averages for 2022 and 2023; Ember 2024 by co2.js (github.com/thegreenwebfoundation/co2.js)."""


REGION: Final = "carbon_region"
OF_A_REGION: Final = (REGION, "carbon_year", "carbon_basis")
YEAR: Final = Bound("2000", "2199", "year", whole=True)
BASES: Final = (OFFICIAL, RESIDUAL, LIFECYCLE)


def read_factor(reader: FieldReader, name: str, bound: Bound, *, required: bool) -> Fraction | None:
    """Read kg per kWh: the number of field `name`, or the known factor of `carbon_region`, `carbon_year`, `carbon_basis`.

    Returns None where neither is given, or where a problem was noted.
    """
    # without a region the other two fields would be ignored silently, so they are refused
    if not reader.has(REGION):
        for other in OF_A_REGION[1:]:
            if reader.has(other):
                reader.refuse(REGION, Message("is missing, but %(other)s is given", other=other))
        return reader.number(name, bound) if required else reader.optional(name, bound)
    reader.refuse_beside(name, REGION)
    region, year = reader.text(REGION), reader.number("carbon_year", YEAR)
    basis = reader.choice("carbon_basis", BASES, OFFICIAL)
    if not region or year is None:
        return None
    try:
        return carbon_factor(region, int(year), basis)
    except CarbonError as error:
        known = sorted({f"{one.region} {one.year}" for one in FACTORS if one.basis == basis})
        reader.refuse(REGION, Message("%(error)s, known are %(names)s", error=error, names=", ".join(known)))
        return None


def carbon_factor(region: str, year: int, basis: str) -> Fraction:
    """Return the emissions of a kWh in kg.  Raises CarbonError: no nearest year and no neighbouring region is taken.

    >>> carbon_factor("CN", 2023, OFFICIAL)
    Fraction(2653, 5000)
    """
    for factor in FACTORS:
        if (factor.region, factor.year, factor.basis) == (region, year, basis):
            return Fraction(factor.kg_per_kwh)
    raise CarbonError(Message(
        "no %(basis)s carbon factor of %(region)s for %(year)s", basis=basis, region=repr(region), year=year
    ))


def kg_co2(facility_kwh: Fraction, kg_per_kwh: Fraction) -> Fraction:
    """Return CO2 [kg] = kWh at the meter of the building x factor.

    >>> kg_co2(Fraction("50.128"), Fraction("0.5306")) == Fraction("26.5979168")
    True

    Source: FS14.
    """
    return facility_kwh * kg_per_kwh


def carbon_intensity(kg_operational: Fraction, kg_embodied: Fraction, units: Fraction) -> Fraction:
    """Return SCI [kg/unit] = (E x I + M) / R: operational and embodied emissions per unit of work.

    Source: FS14; Software Carbon Intensity, ISO/IEC 21031.
    """
    return (kg_operational + kg_embodied) / units
