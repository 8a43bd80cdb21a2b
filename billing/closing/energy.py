"""Comparison of the building's meters with the energy of charges and of shared consumption.

The energy of a charge is the power of its device at the building's meter, as the price list states it, times its hours; the
platform's own use counts like any other. Up to 3 % may differ. A cluster without a meter reading is not compared.
"""

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from billing.invoices.models import BillingPeriod
from billing.rating.assessment import RatingResult
from metering.messages import Message
from pricing.money import round_to
from pricing.number_text import ENERGY_PLACES

TOLERANCE: Final = Fraction(3, 100)


@dataclass(frozen=True, slots=True)
class EnergyComparison:
    """Energy of one cluster in kWh; `unknown`: devices without a known power, which make a comparison impossible."""

    cluster: str
    metered: Decimal
    shared: Decimal
    charged: Fraction
    unknown: tuple[str, ...]

    @property
    def difference(self) -> Decimal:
        return round_to(Fraction(self.metered) - self.charged - Fraction(self.shared), ENERGY_PLACES)

    @property
    def exceeds(self) -> bool:
        """Return True if the difference is above the tolerance."""
        return not self.unknown and abs(self.difference) > TOLERANCE * Fraction(self.metered)

    @property
    def words(self) -> Message:
        """Return the comparison as the report shows it."""
        if self.unknown:
            return Message(
                "%(cluster)s: not compared, the power of %(names)s is not known",
                cluster=self.cluster, names=", ".join(self.unknown),
            )
        return Message(
            "%(cluster)s: %(metered)s kWh metered, %(charged)s charged, %(shared)s shared, %(difference)s differ",
            cluster=self.cluster, metered=f"{self.metered:,}", charged=f"{round_to(self.charged, ENERGY_PLACES):,}",
            shared=f"{self.shared:,}", difference=f"{self.difference:,}",
        )


def energy_compared(period: BillingPeriod, assessment: RatingResult) -> list[EnergyComparison]:
    """Compare each cluster that has a meter reading, by name."""
    # in the order of reports: the last reading of a cluster counts
    readings = {row.cluster: row for row in period.meter_readings.order_by("id")} if period.pk else {}
    charged: dict[str, Fraction] = defaultdict(Fraction)
    unknown: dict[str, set[str]] = defaultdict(set)
    for charge in assessment.charges if readings else ():
        if charge.key.what.takes_energy and charge.key.cluster and not charge.key.correction:
            if charge.energy_kwh is None:
                unknown[charge.key.cluster].add(charge.key.sku)
            else:
                charged[charge.key.cluster] += charge.energy_kwh
    return [
        EnergyComparison(name, row.metered_kwh, row.shared_kwh, charged[name], tuple(sorted(unknown[name])))
        for name, row in sorted(readings.items())
    ]
