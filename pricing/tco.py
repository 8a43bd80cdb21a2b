"""PURE: cost and price of a GPU-hour from a cost sheet, by component. Components add up to the cost, exactly.

The simple sheet (FS2-FS6) has hardware, power, hosting and operations. The complete part (FE1-FE12) adds residual value,
cost of capital, maintenance, two-part tariff, fabric, scratch, spares, and unsold hours. Markup is on cost; a reserve is a
component of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

from pricing.carbon import carbon_intensity, kg_co2
from pricing.cost_sheet import MEAN_BOOK_VALUE, CostSheet, CostSheetError, read_cost_sheet
from pricing.cost_sheet import capital_per_gpu as capital_of
from pricing.cost_sheet import power_kw as nameplate_kw
from pricing.fields import FieldProblem
from pricing.listing import ON_DEMAND, AdjustmentError, Listing
from pricing.money import COST_PLACES, exact_decimal, round_price, round_to, round_together
from pricing.tariff import demand_charge_per_gpu_hour

__all__ = [
    "Component", "CostSheet", "CostSheetError", "GpuHourCost", "capital_per_gpu", "cost_of_gpu_hour", "parse_cost_sheet",
]  # fmt: skip

HOURS_PER_YEAR: Final = 8760
KW_PLACES: Final = 6
VARIABLE: Final = ("power", "energy_gap")
"""Components that only a used hour costs."""
SURCHARGES: Final = ("reserve",)
"""Components that are a share of all others."""
BEYOND_AN_INSTALLED_HOUR: Final = ("unsold", *SURCHARGES)
"""Components that a cost recovery excludes from the cost of an installed hour."""

ROOTS: Final = Context(prec=50)
"""Context of roots: half years of life have an irrational annuity, so 50 digits, then exact again."""


@dataclass(frozen=True, slots=True)
class Component:
    """Component of the cost of a GPU-hour, with the fields of the sheet that it came from."""

    name: str
    cost_per_gpu_hour: Fraction
    inputs: tuple[str, ...]
    unit: str = "per GPU-hour"

    def share_of(self, cost: Fraction) -> Fraction:
        """Return the share of the whole cost, 0 where the whole is 0."""
        return self.cost_per_gpu_hour / cost if cost else Fraction(0)


@dataclass(frozen=True)
class GpuHourCost:
    """Cost of one GPU-hour by component and its list price (4 decimals)."""

    accelerator: str
    currency: str
    components: tuple[Component, ...]
    markup: Fraction
    facility_kw: Decimal
    listing: Listing = field(default_factory=Listing)
    footprint: Mapping[str, Fraction] = field(default_factory=dict)

    @property
    def cost(self) -> Fraction:
        """Return the sum of the components."""
        return sum((component.cost_per_gpu_hour for component in self.components), Fraction(0))

    @property
    def price(self) -> Decimal:
        """Return FS6: P = cost x (1 + markup), rounded once, to the 4 decimals of a price list."""
        return round_price(self.cost * (1 + self.markup))

    @property
    def variable_cost(self) -> Fraction:
        """Return the cost that only a used hour causes: no tier is cheaper."""
        return sum((part.cost_per_gpu_hour for part in self.components if part.name in VARIABLE), Fraction(0))

    @property
    def list_prices(self) -> dict[str, Decimal]:
        """Return list prices by tier, in the list currency (FE10, FE11, FE13); without listing terms the price itself."""
        return self.listing.prices(self.cost * (1 + self.markup), self.variable_cost)

    @property
    def list_price(self) -> Decimal:
        """Return the on-demand list price."""
        return self.list_prices[ON_DEMAND]

    @property
    def list_currency(self) -> str:
        """Return the currency of the list."""
        return self.listing.currency or self.currency

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON of the contract: costs with 12 decimals, the price with 4.

        The shown components are rounded together, so that they add up to the shown cost to the last digit.
        """
        parts = round_together([part.cost_per_gpu_hour for part in self.components], COST_PLACES)
        return {
            "accelerator": self.accelerator,
            "currency": self.currency,
            "components": [
                {"name": part.name, "cost_per_gpu_hour": format(rounded, "f")}
                for part, rounded in zip(self.components, parts, strict=True)
            ],
            "cost_per_gpu_hour": exact_decimal(self.cost),
            "price_per_gpu_hour": format(self.price, "f"),
            **({"list_prices": self.listed()} if self.listing else {}),
            **({"footprint": self.emitted()} if self.footprint else {}),
        }

    def listed(self) -> dict[str, str]:
        """Return the list prices as text, with the terms behind them."""
        return self.listing.as_dict(self.currency) | {name: format(price, "f") for name, price in self.list_prices.items()}

    def emitted(self) -> dict[str, str]:
        """Return energy and CO2 of a GPU-hour as text with 12 decimals."""
        return {name: exact_decimal(value) for name, value in self.footprint.items()}


def parse_cost_sheet(fields: object) -> CostSheet:
    """Check a mapping of text or numbers.  Raises CostSheetError with a message for every bad field at once."""
    sheet = read_cost_sheet(fields)
    try:
        _ = cost_of_gpu_hour(sheet).list_prices
    except AdjustmentError as error:
        raise CostSheetError([FieldProblem(("recovered",), error.message)]) from error
    return sheet


def cost_of_gpu_hour(sheet: CostSheet) -> GpuHourCost:
    """Calculate the cost of one sold GPU-hour by component.

    P = {[A/8760 + rho K/8760 + C_idc + C_om + demand + fabric + scratch] x G/(G-S) / (A U) + energy} x (1 + markup)

    Energy is not spread over unsold hours: an unused card draws little. With only the simple fields this is
    FS2 + FS3 + FS4 + FS5.  Source: FE12, assembled price; FE3, sell-through.
    """
    fixed = fixed_components(sheet)
    installed = sum((part.cost_per_gpu_hour for part in fixed), Fraction(0))
    # energy is after hardware for readers; it is not in `installed`, so that unsold hours do not raise it
    components = (fixed[0], *_energy_components(sheet), *fixed[1:], *_uplifts(sheet, installed))
    if sheet.has("reserve_ratio"):
        cost = sum((part.cost_per_gpu_hour for part in components), Fraction(0))
        components = (*components, Component("reserve", cost * sheet["reserve_ratio"], ("reserve_ratio",)))
    facility_kw = round_to(facility_power_kw(sheet), KW_PLACES)
    return GpuHourCost(
        sheet.accelerator, sheet.currency, components, sheet.markup, facility_kw, sheet.listing, footprint(sheet)
    )


def _energy_components(sheet: CostSheet) -> list[Component]:
    """Return the energy cost of a used hour, and the shared cost of energy that no device or host counted."""
    if sheet.rent_includes_power:
        return [Component("power", Fraction(0), ("rent_includes_power",))]
    parts = [Component("power", power_cost(sheet), _power_inputs(sheet))]
    if sheet.metered is not None and sheet.metered.gap_kwh:
        shared = sheet.metered.gap_per_gpu_hour * sheet["pue"] * sheet.tariff.price_per_kwh
        parts.append(Component("energy_gap", shared, ("metered_energy", "pue", _priced_by(sheet))))
    return parts


def fixed_components(sheet: CostSheet) -> tuple[Component, ...]:
    """Return the hourly cost of an installed GPU by component, used or not."""
    parts = [_capital_component(sheet)]
    if sheet.has("maintenance_ratio_per_year"):
        parts.append(Component("maintenance", maintenance_cost(sheet), ("maintenance_ratio_per_year", *CAPITAL_FIELDS)))
    parts += [
        Component("hosting", hosting_cost(sheet), ("rack_rent_per_month", "bandwidth_per_month", *_place(sheet))),
        Component("operations", operations_cost(sheet), ("labour_per_month", "software_per_month", *_carried_by(sheet))),
    ]
    if sheet.has("licence_per_gpu_month"):
        licence = sheet["licence_per_gpu_month"] / sheet["hours_per_month"]
        parts.append(Component("licences", licence, ("licence_per_gpu_month", "hours_per_month")))
    if sheet.has("demand_charge_per_kw_month"):
        demand = demand_charge_per_gpu_hour(
            power_kw(sheet) * sheet["pue"], sheet["demand_charge_per_kw_month"], sheet["hours_per_month"]
        )
        parts.append(Component("demand_charge", demand, ("demand_charge_per_kw_month", *POWER_FIELDS, "hours_per_month")))
    if sheet.has("fabric_price"):
        parts.append(Component("fabric", fabric_cost(sheet), ("fabric_price", "fabric_gpus", "life_years")))
    if sheet.has("scratch_tb_per_gpu"):
        inputs = ("scratch_tb_per_gpu", "storage_price_per_tb_month", "hours_per_month")
        parts.append(Component("scratch", scratch_cost(sheet), inputs))
    return tuple(parts)


CAPITAL_FIELDS: Final = (
    "server_price", "gpus_per_server", "gpu_price", "network_price_per_port", "ports_per_gpu",
)  # fmt: skip
NAMEPLATE_FIELDS: Final = ("gpu_power_kw", "server_other_power_kw", "gpus_per_server")
POWER_FIELDS: Final = (*NAMEPLATE_FIELDS, "pue")


def _capital_component(sheet: CostSheet) -> Component:
    inputs = (*CAPITAL_FIELDS, "life_years", *(("residual_ratio",) if sheet.has("residual_ratio") else ()))
    if sheet.get("cost_of_capital"):
        return Component("capital", capital_cost(sheet), (*inputs, "cost_of_capital"))
    return Component("hardware", hardware_cost(sheet), inputs)


def _place(sheet: CostSheet) -> tuple[str, ...]:
    return ("rack_power_kw", *NAMEPLATE_FIELDS) if sheet.has("rack_power_kw") else ("gpus_per_rack",)


def _carried_by(sheet: CostSheet) -> tuple[str, ...]:
    """Return the fields that decide the share of labour and software of a GPU."""
    if sheet.has("cluster_capital"):
        return ("cluster_capital", *CAPITAL_FIELDS)
    return ("operations_share", "pool_gpus") if sheet.has("operations_share") else ("cluster_gpus",)


def _uplifts(sheet: CostSheet, installed: Fraction) -> list[Component]:
    parts = []
    with_spares = installed * spares_uplift(sheet)
    if sheet.has("spare_gpus"):
        parts.append(Component("spares", with_spares - installed, ("spare_gpus", "installed_gpus")))
    sold = [field for field in ("availability", "sold_share") if sheet.has(field)]
    if sold:
        # spares first: unsold hours are a share of the GPUs that can be sold
        unsold = with_spares / (sheet.get("availability", 1) * sheet.get("sold_share", 1)) - with_spares
        parts.append(Component("unsold", unsold, tuple(sold)))
    return parts


def capital_per_gpu(sheet: CostSheet) -> Fraction:
    """Return the purchase price of one GPU with its share of the server and its network ports (FS2)."""
    return capital_of(sheet.numbers) or Fraction(0)


def straight_line(capital: Fraction, life_years: Fraction, residual_ratio: Fraction = Fraction(0)) -> Fraction:
    """Return C_hw [currency/GPU-h] = K x (1 - s) / (L x 8760).

    >>> straight_line(Fraction(270_000), Fraction(5))
    Fraction(450, 73)

    Source: FS2 depreciation per GPU-hour; FE1 residual value.
    """
    return capital * (1 - residual_ratio) / (life_years * HOURS_PER_YEAR)


def hardware_cost(sheet: CostSheet) -> Fraction:
    """Return depreciation of one GPU with its share of server and network, per GPU-hour (FS2, FE1)."""
    return straight_line(capital_per_gpu(sheet), sheet["life_years"], sheet.get("residual_ratio"))


def capital_recovery_factor(rate: Fraction, years: Fraction) -> Fraction:
    """Return CRF [1/year] = r (1+r)^L / ((1+r)^L - 1); 1/L where r is 0.

    >>> capital_recovery_factor(Fraction("0.08"), Fraction(5))
    Fraction(14348907, 57291025)

    Source: FE2; https://en.wikipedia.org/wiki/Capital_recovery_factor
    """
    if not rate:
        return 1 / years
    growth = _growth(rate, years)
    return rate * growth / (growth - 1)


def annuity_per_year(capital: Fraction, rate: Fraction, years: Fraction, residual_ratio: Fraction = Fraction(0)) -> Fraction:
    """Return A [currency/year] = (K - S / (1+r)^L) x CRF, with S = s K.

    >>> annuity_per_year(Fraction(270_000), Fraction("0.08"), Fraction(5), Fraction("0.10")) / 8760
    Fraction(1203511005, 167289793)

    Source: FE2, capital recovery with residual value.
    """
    present_residual = capital * residual_ratio / _growth(rate, years)
    return (capital - present_residual) * capital_recovery_factor(rate, years)


def _growth(rate: Fraction, years: Fraction) -> Fraction:
    """Return (1 + r)^L: exact for whole years, to 50 digits otherwise."""
    base = 1 + rate
    if years.denominator == 1:
        return base ** int(years)
    decimals = [ROOTS.divide(Decimal(value.numerator), Decimal(value.denominator)) for value in (base, years)]
    return Fraction(ROOTS.power(*decimals))


def capital_cost(sheet: CostSheet) -> Fraction:
    """Return depreciation and interest of one GPU with its share of server and network, per GPU-hour (FE2, or FE2b)."""
    rate, years = sheet["cost_of_capital"], sheet["life_years"]
    if sheet.capital_method == MEAN_BOOK_VALUE:
        return simple_capital_charge(capital_per_gpu(sheet), rate, years, sheet.get("residual_ratio"))
    return annuity_per_year(capital_per_gpu(sheet), rate, years, sheet.get("residual_ratio")) / HOURS_PER_YEAR


def simple_capital_charge(capital: Fraction, rate: Fraction, years: Fraction, residual_ratio: Fraction) -> Fraction:
    """Return C_cap [currency/GPU-h] = (K (1-s) / L + r (K + S) / 2) / 8760, with interest on the mean book value.

    >>> simple_capital_charge(Fraction(270_000), Fraction("0.08"), Fraction(5), Fraction("0.10"))
    Fraction(504, 73)

    Source: FE2b.
    """
    interest = rate * capital * (1 + residual_ratio) / 2
    return (capital * (1 - residual_ratio) / years + interest) / HOURS_PER_YEAR


def maintenance_cost(sheet: CostSheet) -> Fraction:
    """Return FE8: C_maint = rho x K / 8760, per GPU-hour."""
    return sheet["maintenance_ratio_per_year"] * capital_per_gpu(sheet) / HOURS_PER_YEAR


def power_kw(sheet: CostSheet) -> Fraction:
    """Return nameplate power of one GPU with its share of the rest of the server, in kW at the rack (FS3)."""
    return nameplate_kw(sheet.numbers) or Fraction(0)


def drawn_kw(sheet: CostSheet) -> Fraction:
    """Return the power of one GPU at the rack: metered kWh per GPU-hour where given (FE5), else the nameplate."""
    return sheet["metered_kwh_per_gpu_hour"] if sheet.has("metered_kwh_per_gpu_hour") else power_kw(sheet)


def facility_power_kw(sheet: CostSheet) -> Fraction:
    """Return the power of one GPU at the meter of the building: kW x PUE."""
    return drawn_kw(sheet) * sheet["pue"]


def power_cost(sheet: CostSheet) -> Fraction:
    """Return FS3: C_power = (w_gpu + w_other / n) x PUE x tariff, per GPU-hour, with the mean of the tariff (FE4)."""
    return facility_power_kw(sheet) * sheet.tariff.price_per_kwh


def _power_inputs(sheet: CostSheet) -> tuple[str, ...]:
    counted = "metered_energy" if sheet.metered is not None else "metered_kwh_per_gpu_hour"
    drawn = (counted, "pue") if sheet.has("metered_kwh_per_gpu_hour") else POWER_FIELDS
    return (*drawn, _priced_by(sheet))


def _priced_by(sheet: CostSheet) -> str:
    return "tariff" if sheet.has_tariff else "electricity_price_per_kwh"


def hosting_cost(sheet: CostSheet) -> Fraction:
    """Return FS4: C_idc = (rent + bandwidth) / (GPUs per rack x hours per month), per GPU-hour.

    In a rack of mixed cards each carries its part of the power, not of the count: 1 / GPUs per rack is then the kW of one
    GPU over the kW of the rack. Free power of a rack is idle cost and does not raise the price of the cards in it.
    """
    part = power_kw(sheet) / sheet["rack_power_kw"] if sheet.has("rack_power_kw") else 1 / sheet["gpus_per_rack"]
    return (sheet["rack_rent_per_month"] + sheet["bandwidth_per_month"]) * part / sheet["hours_per_month"]


def operations_cost(sheet: CostSheet) -> Fraction:
    """Return C_om [currency/GPU-h] = (labour + licences) x w / hours per month, w the part that one GPU carries.

    FS5: w = 1 / GPUs of the cluster. FS5b: by capital, w = K / purchase price of all GPUs of the cluster, so that an old
    inference card does not carry what a training card does; or w = share of the kind (by tickets, say) / GPUs of the kind.
    """
    per_month = sheet["labour_per_month"] + sheet["software_per_month"]
    if sheet.has("cluster_capital"):
        weight = capital_per_gpu(sheet) / sheet["cluster_capital"]
    elif sheet.has("operations_share"):
        weight = sheet["operations_share"] / sheet["pool_gpus"]
    else:
        weight = 1 / sheet["cluster_gpus"]
    return per_month * weight / sheet["hours_per_month"]


def fabric_cost(sheet: CostSheet) -> Fraction:
    """Return FE7: C_fabric = K_fabric / (GPUs on the fabric x L x 8760): spine, optics, cables beyond the port."""
    return sheet["fabric_price"] / (sheet["fabric_gpus"] * sheet["life_years"] * HOURS_PER_YEAR)


def scratch_cost(sheet: CostSheet) -> Fraction:
    """Return FE7: C_scratch = TB per GPU x price per TB-month / hours per month, per GPU-hour."""
    return sheet["scratch_tb_per_gpu"] * sheet["storage_price_per_tb_month"] / sheet["hours_per_month"]


def spares_uplift(sheet: CostSheet) -> Fraction:
    """Return FE6: G / (G - S): the other installed GPUs pay for the spares."""
    if not sheet.has("spare_gpus"):
        return Fraction(1)
    return sheet["installed_gpus"] / (sheet["installed_gpus"] - sheet["spare_gpus"])


def footprint(sheet: CostSheet) -> dict[str, Fraction]:
    """Return energy [kWh] at the meter and CO2 [kg] of a used GPU-hour; {} where the sheet gives no carbon field.

    `kg_co2` is operational by location and embodied, (E I + M) / R over the hours R of the card's life, sold or not;
    `kg_operational_market` counts green certificates. Information, no part of a price.  Source: FS14.
    """
    names = ("carbon_kg_per_kwh", "carbon_market_kg_per_kwh", "embodied_kg_per_gpu")
    if not any(sheet.has(name) for name in names):
        return {}
    kwh, hours = facility_power_kw(sheet), sheet["life_years"] * HOURS_PER_YEAR
    footprint = {"kwh": kwh}
    if sheet.has("carbon_kg_per_kwh"):
        footprint["kg_operational"] = kg_co2(kwh, sheet["carbon_kg_per_kwh"])
    if sheet.has("carbon_market_kg_per_kwh"):
        footprint["kg_operational_market"] = kg_co2(kwh, sheet["carbon_market_kg_per_kwh"])
    if sheet.has("embodied_kg_per_gpu"):
        footprint["kg_embodied"] = sheet["embodied_kg_per_gpu"] / hours
    if "kg_operational" in footprint and "kg_embodied" in footprint:
        footprint["kg_co2"] = carbon_intensity(footprint["kg_operational"] * hours, sheet["embodied_kg_per_gpu"], hours)
    return footprint
