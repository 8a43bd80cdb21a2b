"""A carbon factor in the set-up file by region and year, in place of its figure.

    carbon:
      - {cluster: hq-1, valid_from: 2026-01-01, region: CN-East, year: 2023}                  # official average
      - {cluster: eu-1, valid_from: 2026-01-01, region: SE, year: 2024, basis: lifecycle}

Where a residual factor of the region and year is known, it is the one by contract: green certificates are counted, and the
rest takes what they leave. Bases are never mixed beyond that.
"""

from dataclasses import dataclass
from decimal import Decimal

from billing.setup.file import Entry
from pricing.carbon import BASES, OFFICIAL, RESIDUAL, CarbonError, carbon_factor
from pricing.money import exact_decimal

PLACES = 6


@dataclass(frozen=True, slots=True)
class KnownFactor:
    """kg per kWh by location and by contract, and where they come from; empty where the entry names no region."""

    location: Decimal | None = None
    market: Decimal | None = None
    source: str = ""


def read_carbon(entry: Entry) -> KnownFactor:
    """The factors of an entry that names a region.  Raises SetUpFileError for one that nobody knows."""
    if not entry.has("region"):
        return KnownFactor()
    if entry.has("location_kg_per_kwh"):
        raise entry.error("location_kg_per_kwh", "stands beside region: give one of them")
    region, year = entry.text("region", limit=32), entry.integer("year", at_least=2000, at_most=2199)
    basis = entry.choice("basis", BASES, OFFICIAL)
    location = _factor(region, year, basis)
    if location is None:
        raise entry.error("region", f"no {basis} carbon factor of {region!r} for {year} is known: give the figure itself")
    market = _factor(region, year, RESIDUAL) if basis == OFFICIAL else None
    return KnownFactor(location, market, f"{region} {year}, {basis}")


def _factor(region: str, year: int, basis: str) -> Decimal | None:
    try:
        return Decimal(exact_decimal(carbon_factor(region, year, basis), PLACES))
    except CarbonError:
        return None
