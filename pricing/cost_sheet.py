"""PURE: cost sheet and the ranges of its fields. Every bad field gets a message with its value and its range.

The ranges are chosen so that the usual slips fall outside of them: watts for kilowatts, percent for a ratio, months for
years, a price per MWh for one per kWh, servers for GPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from metering.messages import Message
from pricing.carbon import OF_A_REGION, read_factor
from pricing.energy import FIELD as METERED_ENERGY
from pricing.energy import PER_GPU_HOUR, MeteredEnergy, read_metered_energy
from pricing.fields import Bound, FieldReader, InputError, shown
from pricing.listing import FIELDS as LISTING_FIELDS
from pricing.listing import Listing, read_listing
from pricing.money import exact_decimal
from pricing.tariff import Tariff, flat, read_tariff
from pricing.tariff_calendar import is_calendar, read_calendar

SIMPLE: Final[dict[str, Bound]] = {
    "gpus_per_server": Bound("1", "1024", "GPUs", whole=True),
    "server_price": Bound("0", "1e9", "currency per server without its GPUs"),
    "gpu_price": Bound("0", "1e9", "currency per GPU"),
    "network_price_per_port": Bound("0", "1e8", "currency per port"),
    "ports_per_gpu": Bound("0", "64", "ports"),
    "gpus_per_rack": Bound("1", "4096", "GPUs", whole=True),
    "cluster_gpus": Bound("1", "1e7", "GPUs", whole=True),
    "markup": Bound("0", "2", "ratio on cost", "10 % is 0.10"),
    "life_years": Bound("0", "20", "years", "60 months are 5", above_low=True),
    "gpu_power_kw": Bound("0", "20", "kW of one GPU", "700 W is 0.7"),
    "server_other_power_kw": Bound("0", "200", "kW of the rest of one server", "4600 W is 4.6"),
    "pue": Bound("1", "5", "ratio", "a building uses at least what its machines use"),
    "electricity_price_per_kwh": Bound("0", "1e4", "currency per kWh"),
    "rack_rent_per_month": Bound("0", "1e9", "currency per rack and month"),
    "bandwidth_per_month": Bound("0", "1e9", "currency per rack and month"),
    "labour_per_month": Bound("0", "1e12", "currency per cluster and month"),
    "software_per_month": Bound("0", "1e12", "currency per cluster and month"),
    "hours_per_month": Bound("600", "800", "hours", "730 x 12 is a year"),
}
"""Required fields, except those with a default."""

DEFAULTS: Final = {"hours_per_month": "730"}

COMPLETE: Final[dict[str, Bound]] = {
    "residual_ratio": Bound("0", "1", "ratio of the purchase price", "10 % is 0.10", below_high=True),
    "cost_of_capital": Bound("0", "1", "ratio per year", "8 % is 0.08", below_high=True),
    "maintenance_ratio_per_year": Bound("0", "1", "ratio of the purchase price per year", "4 % is 0.04", below_high=True),
    "installed_gpus": Bound("1", "1e7", "GPUs", whole=True),
    "spare_gpus": Bound("0", "1e7", "GPUs", whole=True),
    "availability": Bound("0", "1", "ratio of the hours", "98 % is 0.98", above_low=True),
    "sold_share": Bound("0", "1", "ratio of the available hours", "70 % is 0.70", above_low=True),
    "demand_charge_per_kw_month": Bound("0", "1e6", "currency per kW and month"),
    "fabric_price": Bound("0", "1e12", "currency for the whole fabric"),
    "fabric_gpus": Bound("1", "1e7", "GPUs on the fabric", whole=True),
    "scratch_tb_per_gpu": Bound("0", "1e4", "decimal TB per GPU"),
    "storage_price_per_tb_month": Bound("0", "1e7", "currency per TB and month"),
    "metered_kwh_per_gpu_hour": PER_GPU_HOUR,
    "reserve_ratio": Bound("0", "1", "ratio of the cost", "5 % is 0.05", below_high=True),
    "licence_per_gpu_month": Bound("0", "1e9", "currency per GPU and month"),
    "rack_power_kw": Bound("0", "1e4", "kW that the rack may draw", "40000 W are 40", above_low=True),
    "cluster_capital": Bound("0", "1e15", "currency, purchase price of all GPUs of the cluster", above_low=True),
    "operations_share": Bound("0", "1", "ratio of labour and software", "30 % is 0.30"),
    "pool_gpus": Bound("1", "1e7", "GPUs of this kind", whole=True),
    "margin": Bound("0", "1", "ratio of the price, in place of markup", "20 % is 0.20", below_high=True),
}
"""Optional fields."""

BY_LOCATION: Final = "carbon_kg_per_kwh"
FOOTPRINT: Final[dict[str, Bound]] = {
    BY_LOCATION: Bound("0", "3", "kg per kWh", "530 g are 0.530"),
    "carbon_market_kg_per_kwh": Bound("0", "3", "kg per kWh", "530 g are 0.530"),
    "embodied_kg_per_gpu": Bound("0", "1e6", "kg of CO2 of making one GPU with its share of the server"),
}
"""Optional fields that are no part of any price."""

ANNUITY: Final = "annuity"
MEAN_BOOK_VALUE: Final = "mean-book-value"
CHOICES: Final = {"capital_method": (ANNUITY, MEAN_BOOK_VALUE), "rent_includes_power": ("true", "false")}
"""Optional fields of fixed words."""

TOGETHER: Final = (
    ("spare_gpus", "installed_gpus"),
    ("fabric_price", "fabric_gpus"),
    ("scratch_tb_per_gpu", "storage_price_per_tb_month"),
    ("operations_share", "pool_gpus"),
)
"""Fields that are given together; installed GPUs may be given without spares."""

NAMES: Final = ("accelerator", "currency")
FIELDS: Final = (
    *NAMES, *SIMPLE, *COMPLETE, *FOOTPRINT, *CHOICES, "tariff", METERED_ENERGY, *OF_A_REGION, *LISTING_FIELDS,
)  # fmt: skip
"""Fields that a sheet may have."""

INSTEAD: Final = (
    ("margin", "markup"), (METERED_ENERGY, "metered_kwh_per_gpu_hour"), ("cluster_capital", "operations_share"),
)  # fmt: skip
"""Alternatives: only one of each pair is given."""

RENT_PAYS: Final = ("electricity_price_per_kwh", "tariff", "demand_charge_per_kw_month")
DEAR_CURRENCIES: Final = ("AUD", "CAD", "CHF", "CNY", "EUR", "GBP", "HKD", "RMB", "SGD", "USD")
DEAREST_KWH: Final = 10
"""Dearest plausible kWh: above it, a price in one of these currencies is per MWh or in cents."""


class CostSheetError(InputError):
    """Cost sheet with bad fields; `messages` has one line per bad field."""

    code = "cost_sheet"


@dataclass(frozen=True)
class CostSheet:
    """Checked cost sheet: names, numbers as exact rationals, and the electricity tariff."""

    accelerator: str
    currency: str
    numbers: Mapping[str, Fraction]
    tariff: Tariff
    has_tariff: bool = False
    capital_method: str = ANNUITY
    rent_includes_power: bool = False
    metered: MeteredEnergy | None = None
    listing: Listing = field(default_factory=Listing)

    @property
    def markup(self) -> Fraction:
        """Return the share added to the cost: P = C (1 + markup). A margin m on the price is a markup of m / (1 - m).

        A margin of a fifth is a markup of a quarter.  Source: FS6.
        """
        margin = self.get("margin")
        return margin / (1 - margin) if self.has("margin") else self["markup"]

    def __getitem__(self, field: str) -> Fraction:
        return self.numbers[field]

    def has(self, field: str) -> bool:
        """Return True if an optional field was given."""
        return field in self.numbers

    def get(self, field: str, default: int = 0) -> Fraction:
        """Return an optional field, or `default`."""
        return self.numbers.get(field, Fraction(default))


def read_cost_sheet(fields: object) -> CostSheet:
    """Check a mapping of text or numbers.  Raises CostSheetError with a message for every bad field at once."""
    reader = FieldReader(fields, "a cost sheet")
    if reader.problems:
        raise CostSheetError(reader.problems)
    accelerator, currency = reader.name("accelerator"), reader.currency("currency")
    rented, method = reader.flag("rent_includes_power"), reader.choice("capital_method", CHOICES["capital_method"], ANNUITY)
    numbers = _numbers(reader, rented)
    tariff = flat(Fraction(0)) if rented else _tariff(reader, numbers, currency)
    metered, listing = read_metered_energy(reader), read_listing(reader, currency)
    if metered is not None:
        numbers["metered_kwh_per_gpu_hour"] = metered.per_gpu_hour
    _refuse_contradictions(reader, numbers, rented)
    reader.finish(FIELDS)
    if reader.problems or tariff is None:
        raise CostSheetError(reader.problems)
    return CostSheet(
        accelerator, currency, numbers, tariff, reader.has("tariff"), method, rented, metered, listing
    )


def _numbers(reader: FieldReader, rented: bool) -> dict[str, Fraction]:
    # these replace a required field, which is then optional
    spared = {"electricity_price_per_kwh": reader.has("tariff") or rented, "markup": reader.has("margin")}
    numbers = {
        name: reader.optional(name, bound) if spared.get(name) else reader.number(name, bound, DEFAULTS.get(name))
        for name, bound in SIMPLE.items()
    }
    factor = read_factor(reader, BY_LOCATION, FOOTPRINT[BY_LOCATION], required=False)
    optional = reader.given({name: bound for name, bound in {**COMPLETE, **FOOTPRINT}.items() if name != BY_LOCATION})
    known = {name: number for name, number in {**numbers, BY_LOCATION: factor}.items() if number is not None}
    return known | optional


def _tariff(reader: FieldReader, numbers: dict[str, Fraction], currency: str) -> Tariff | None:
    """Read the tariff; a `tariff` replaces the flat price, which is then the base of its ratios."""
    base = numbers.get("electricity_price_per_kwh")
    field = "tariff" if reader.has("tariff") else "electricity_price_per_kwh"
    if field == "tariff":
        read = read_calendar if is_calendar(reader.fields[field]) else read_tariff
        tariff = read(reader, field, base)
    else:
        tariff = flat(base) if base is not None else None
    if tariff is not None:
        _refuse_mean(reader, field, tariff.price_per_kwh, currency)
    return tariff


def _refuse_mean(reader: FieldReader, field: str, mean: Fraction, currency: str) -> None:
    """Refuse an implausible mean price: single hours may cost less than nothing on a market, their mean may not."""
    given = Message("the mean price") if field == "tariff" else shown(reader.fields[field])
    if mean < 0:
        reader.refuse(field, Message("%(value)s must not be below 0 (%(currency)s per kWh)", value=given, currency=currency))
    elif mean > DEAREST_KWH and currency in DEAR_CURRENCIES:
        reader.refuse(field, Message(
            "%(value)s must be a number from 0 to %(most)s (%(currency)s per kWh): 650 per MWh is 0.65",
            value=given, most=DEAREST_KWH, currency=currency,
        ))


def _refuse_contradictions(reader: FieldReader, numbers: Mapping[str, Fraction], rented: bool) -> None:
    for one, other in TOGETHER:
        # installed GPUs may be given without spares, spares not without installed GPUs
        if reader.has(one) or other != "installed_gpus":
            reader.together(one, other)
    for one, other in INSTEAD:
        if reader.has(other):
            reader.refuse_beside(one, other)
    for name in RENT_PAYS if rented else ():
        if reader.has(name):
            reader.refuse(name, Message(
                "%(value)s must be left out: rent_includes_power, the rent pays it", value=shown(reader.fields[name])
            ))
    if reader.has("capital_method") and not reader.has("cost_of_capital"):
        reader.refuse("cost_of_capital", Message("is missing, but capital_method is given"))
    _refuse_counts(reader, numbers)
    _refuse_wholes(reader, numbers)


def _refuse_counts(reader: FieldReader, numbers: Mapping[str, Fraction]) -> None:
    installed, spare = numbers.get("installed_gpus"), numbers.get("spare_gpus")
    if installed is not None and spare is not None and spare >= installed:
        reader.refuse("spare_gpus", Message(
            "%(value)s must be below installed_gpus %(other)s", value=spare, other=installed
        ))
    per_server, cluster = numbers.get("gpus_per_server"), numbers.get("cluster_gpus")
    for name in ("gpus_per_rack", "cluster_gpus"):
        count = numbers.get(name)
        if count is not None and per_server is not None and count < per_server:
            reader.refuse(name, Message(
                "%(value)s must be at least gpus_per_server %(other)s: it counts GPUs, not servers",
                value=count, other=per_server,
            ))
    pool = numbers.get("pool_gpus")
    if pool is not None and cluster is not None and pool > cluster:
        reader.refuse("pool_gpus", Message("%(value)s must be at most cluster_gpus %(other)s", value=pool, other=cluster))


def _refuse_wholes(reader: FieldReader, numbers: Mapping[str, Fraction]) -> None:
    """Refuse a part that is larger than its whole."""
    capital, watts, per_server = capital_per_gpu(numbers), power_kw(numbers), numbers.get("gpus_per_server")
    whole, rack = numbers.get("cluster_capital"), numbers.get("rack_power_kw")
    if whole is not None and capital is not None and whole < capital:
        given, least = shown(reader.fields["cluster_capital"]), exact_decimal(capital, 2)
        reader.refuse("cluster_capital", Message(
            "%(value)s must be at least the %(least)s of one GPU", value=given, least=least
        ))
    if rack is not None and watts is not None and per_server is not None and rack < watts * per_server:
        given, least = shown(reader.fields["rack_power_kw"]), exact_decimal(watts * per_server, 3)
        reader.refuse("rack_power_kw", Message(
            "%(value)s must be at least the %(least)s kW of one server", value=given, least=least
        ))


def capital_per_gpu(numbers: Mapping[str, Fraction]) -> Fraction | None:
    """Return the price of one GPU with its share of server and network ports: K = K_server/n + K_gpu + k_port x p.

    None where a field is not known. Dividing the server by its GPUs matters: undivided, the hardware cost of the
    worked example is 2.296 times too high.  Source: FS2.
    """
    names = ("server_price", "gpus_per_server", "gpu_price", "ports_per_gpu", "network_price_per_port")
    if any(name not in numbers for name in names):
        return None
    server, per_server, gpu, ports, port = (numbers[name] for name in names)
    return server / per_server + gpu + ports * port


def power_kw(numbers: Mapping[str, Fraction]) -> Fraction | None:
    """Return nameplate power of one GPU with its share of the rest of the server, in kW at the rack; None where unknown.

    Source: FS3.
    """
    names = ("gpu_power_kw", "server_other_power_kw", "gpus_per_server")
    if any(name not in numbers for name in names):
        return None
    gpu, other, per_server = (numbers[name] for name in names)
    return gpu + other / per_server
