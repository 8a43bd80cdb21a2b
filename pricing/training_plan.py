"""PURE: estimate of a training run: FLOP, GPU-hours, days, cost, energy and CO2, as low, base and high.

FLOP is an amount; FLOP/s is a rate. Peaks are dense and of the precision that the matrix products run in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from math import isqrt
from typing import Final

from metering.messages import Message
from metering.peaks import dense_peak_tflops
from pricing.carbon import OF_A_REGION, kg_co2, read_factor
from pricing.fields import Bound, FieldReader, InputError
from pricing.money import exact_decimal, round_amount
from pricing.storage import STORE_FIELDS, StoreUse, read_store_use
from pricing.training_checks import FACTS, Check, plan_checks, read_facts

SECONDS_PER_HOUR: Final = 3600
HOURS_PER_DAY: Final = 24
HOURS_PER_MONTH: Final = 730
TERA: Final = 10**12


class TrainingPlanError(InputError):
    """Training plan with bad fields; `messages` has one line per bad field."""

    code = "training_plan"


def model_flop(active_params: Fraction, tokens: Fraction) -> Fraction:
    """Return FLOP = 6 x N_active x D, without attention.

    >>> model_flop(Fraction(10**10), Fraction(10**13)) == 6 * 10**23
    True

    Source: FS10, training compute; Hoffmann et al., arXiv 2203.15556.
    """
    return 6 * active_params * tokens


def attention_flop_per_token(layers: Fraction, model_width: Fraction, seq_len: Fraction, causal: bool = False) -> Fraction:
    """Return FLOP per token = 12 x L x d x T, half of it where the kernel skips the causal mask.

    >>> attention_flop_per_token(Fraction(40), Fraction(4608), Fraction(4096))
    Fraction(9059696640, 1)

    Source: FS10b; PaLM, arXiv 2204.02311.
    """
    return 12 * layers * model_width * seq_len / (2 if causal else 1)


def gpu_hours_of(flop: Fraction, *, peak_flops: Fraction, mfu: Fraction, goodput: Fraction = Fraction(1)) -> Fraction:
    """Return GPU-h = FLOP / (peak [FLOP/s per GPU] x MFU x goodput x 3600 [s/h]).

    >>> gpu_hours_of(Fraction(6 * 10**23), peak_flops=Fraction(1979 * 10**12), mfu=Fraction("0.55"))
    Fraction(10000000000, 65307)

    Source: FS10.
    """
    return flop / (peak_flops * mfu * goodput * SECONDS_PER_HOUR)


def days_of(gpu_hours: Fraction, gpus: Fraction) -> Fraction:
    """Return the wall-clock days of a run on all its GPUs at once."""
    return gpu_hours / gpus / HOURS_PER_DAY


def optimizer_steps(tokens: Fraction, *, sequences_per_step: int, seq_len: int) -> int:
    """Return steps = ceil(D / (sequences x T)); the batch is counted in sequences, not in tokens.

    >>> optimizer_steps(Fraction(10**13), sequences_per_step=1024, seq_len=4096)
    2384186

    Source: FS10.
    """
    steps = tokens / (sequences_per_step * seq_len)
    return -(-steps.numerator // steps.denominator)


def budget_multiplier(overheads: Mapping[str, Fraction], contingency: Fraction) -> Fraction:
    """Return M = (1 + sum of overheads) x (1 + contingency): contingency on top of the base.

    >>> lines = {"experiments": Fraction("0.20"), "evaluation": Fraction("0.05"), "post-training": Fraction("0.15"),
    ...          "preprocessing": Fraction("0.05")}
    >>> budget_multiplier(lines, Fraction("0.20")) == Fraction("1.74")
    True

    Source: FS12.
    """
    return (1 + sum(overheads.values(), Fraction(0))) * (1 + contingency)


def budget_multiplier_as_reserve(overheads: Mapping[str, Fraction], contingency: Fraction) -> Fraction:
    """Return M = (1 + sum of overheads) / (1 - contingency): contingency as a share of the total.

    >>> budget_multiplier_as_reserve({"all": Fraction("0.45")}, Fraction("0.20")) == Fraction("1.8125")
    True

    Source: FS12, the other reading.
    """
    return (1 + sum(overheads.values(), Fraction(0))) / (1 - contingency)


def compute_optimal(flop_budget: int, tokens_per_param: int = 20) -> tuple[int, int]:
    """Return (N, D) with 6 N D = budget and D = `tokens_per_param` x N, to the nearest whole number.

    >>> compute_optimal(10**23)
    (28867513459, 577350269190)

    Source: FS13; Hoffmann et al., arXiv 2203.15556.
    """
    params_squared = Fraction(flop_budget, 6 * tokens_per_param)
    return _nearest_root(params_squared), _nearest_root(params_squared * tokens_per_param**2)


def _nearest_root(value: Fraction) -> int:
    root = isqrt(4 * value.numerator // value.denominator)
    return (root + 1) // 2


RATIO: Final = Bound("0", "1", "ratio", "55 % is 0.55", above_low=True, below_high=True)
SHARE: Final = Bound("0", "1", "ratio", "90 % is 0.90", above_low=True)
OVERHEAD: Final = Bound("0", "10", "ratio of the main run", "20 % is 0.20")
CARBON: Final = "carbon_kg_per_kwh"
FIELDS: Final[dict[str, Bound]] = {
    "active_params": Bound("1e3", "1e16", "parameters that a token uses, not the total of a mixture of experts"),
    "tokens": Bound("1", "1e18", "training tokens"),
    "gpus": Bound("1", "1e7", "GPUs", whole=True),
    "mfu": RATIO,
    "price_per_gpu_hour": Bound("0", "1e6", "currency per GPU-hour"),
    "gpu_power_kw": Bound("0", "20", "kW of one GPU with its share of the server", "700 W is 0.7"),
    "pue": Bound("1", "5", "ratio"),
    CARBON: Bound("0", "3", "kg per kWh", "530 g are 0.530"),
}
DEFAULTED: Final[dict[str, tuple[Bound, str]]] = {
    "goodput": (SHARE, "1"),
    "contingency_ratio": (Bound("0", "1", "ratio of the budget", "20 % is 0.20", below_high=True), "0"),
}
ATTENTION: Final[dict[str, Bound]] = {
    "seq_len": Bound("1", "1e9", "tokens of a sequence", whole=True),
    "layers": Bound("1", "1e5", "layers", whole=True),
    "model_width": Bound("1", "1e7", "model width", whole=True),
}
RANGES: Final = ("mfu_low", "mfu_high", "goodput_low", "goodput_high")
"""Optional fields: utilisation in the low-cost and the high-cost case, for example p90 and p10 of similar past runs."""

STORAGE: Final[dict[str, Bound]] = {
    "storage_tb": Bound("0", "1e9", "decimal TB kept during the run"),
    "storage_price_per_tb_month": Bound("0", "1e7", "currency per TB and month"),
    "requests_cost": Bound("0", "1e12", "currency for requests to the store"),
}
BATCH: Final = Bound("1", "1e9", "sequences of an optimizer step", whole=True)
ON_BASE: Final = "on-base"
SHARE_OF_TOTAL: Final = "share-of-total"
CONTINGENCY: Final = (ON_BASE, SHARE_OF_TOTAL)
"""Meanings of contingency, a choice of the company: a fifth on top of the base, or a fifth of the total."""
STORAGE_PAIR: Final = ("storage_tb", "storage_price_per_tb_month")

PEAK: Final = Bound("1", "1e6", "dense TFLOP/s of one device")


@dataclass(frozen=True, slots=True)
class Estimate:
    """Figures of one case of a plan."""

    flop: Fraction
    gpu_hours: Fraction
    days: Fraction
    main_cost: Decimal
    total_cost: Decimal
    kwh: Fraction
    kg_co2: Fraction
    mfu: Fraction
    storage_cost: Decimal

    def as_dict(self) -> dict[str, str]:
        """Return the JSON of the contract: money with 2 decimals, quantities with 12, FLOP without where it is whole."""
        return {
            "flop": exact_decimal(self.flop, 0 if self.flop.denominator == 1 else 12),
            "gpu_hours": exact_decimal(self.gpu_hours),
            "days": exact_decimal(self.days),
            "main_cost": format(self.main_cost, "f"),
            "total_cost": format(self.total_cost, "f"),
            "kwh": exact_decimal(self.kwh),
            "kg_co2": exact_decimal(self.kg_co2),
        }


@dataclass(frozen=True)
class TrainingPlan:
    """Checked training plan. Ratios are of 1; `overheads` are shares of the main run."""

    flop: Fraction
    peak_flops: Fraction
    gpus: Fraction
    mfu: Fraction
    goodput: Fraction
    price_per_gpu_hour: Fraction
    overheads: Mapping[str, Fraction]
    contingency_ratio: Fraction
    kw_at_the_meter: Fraction
    carbon_kg_per_kwh: Fraction
    ranges: Mapping[str, Fraction]
    active_params: Fraction
    tokens: Fraction
    storage: Mapping[str, Fraction]
    facts: Mapping[str, Fraction]
    store: StoreUse = field(default_factory=StoreUse)
    contingency_method: str = ON_BASE
    steps: int | None = None

    def estimate(self) -> Estimate:
        """Estimate the base case: cost = GPU-hours x price, total = cost x M + storage and requests x (1 + contingency)."""
        gpu_hours = gpu_hours_of(self.flop, peak_flops=self.peak_flops, mfu=self.mfu, goodput=self.goodput)
        cost = gpu_hours * self.price_per_gpu_hour
        kwh = gpu_hours * self.kw_at_the_meter
        days = days_of(gpu_hours, self.gpus)
        storage = self._storage_cost(days)
        of_budget = budget_multiplier if self.contingency_method == ON_BASE else budget_multiplier_as_reserve
        total = cost * of_budget(self.overheads, self.contingency_ratio) + storage * of_budget({}, self.contingency_ratio)
        return Estimate(
            self.flop, gpu_hours, days, round_amount(cost), round_amount(total), kwh,
            kg_co2(kwh, self.carbon_kg_per_kwh), self.mfu, round_amount(storage),
        )  # fmt: skip

    def _storage_cost(self, days: Fraction) -> Fraction:
        """Return TB x price per month x months of 730 h of the run, also by tier, plus the cost of requests.

        Source: FS11.
        """
        months = days * HOURS_PER_DAY / HOURS_PER_MONTH
        priced = self.storage.get("storage_tb", Fraction(0)) * self.storage.get("storage_price_per_tb_month", Fraction(0))
        priced += sum((tier.fee for tier in self.store.tiers), Fraction(0))
        asked = sum((one.fee for one in self.store.requests), Fraction(0))
        return priced * months + asked + self.storage.get("requests_cost", Fraction(0))

    def compute_optimal(self) -> tuple[int, int]:
        """Return (parameters, tokens) that would use the FLOP of this run best (FS13)."""
        return compute_optimal(round(self.flop))

    def checks(self) -> list[Check]:
        """Check the base case."""
        base = self.estimate()
        return plan_checks(
            self.facts, active_params=self.active_params, tokens=self.tokens, gpus=self.gpus, mfu=self.mfu, days=base.days
        )

    def cases(self) -> dict[str, Estimate]:
        """Estimate the low, base and high case.

        Low: nothing goes wrong (goodput 1, contingency unspent), or `mfu_low` and `goodput_low` where given.
        High: the main run itself takes the contingency longer, or `mfu_high` and `goodput_high` where given.
        """
        low = replace(
            self, mfu=self.ranges.get("mfu_low", self.mfu), goodput=self.ranges.get("goodput_low", Fraction(1)),
            contingency_ratio=Fraction(0),
        )  # fmt: skip
        longer = budget_multiplier if self.contingency_method == ON_BASE else budget_multiplier_as_reserve
        # a lower MFU and not a higher budget: days, energy and CO2 of the high case grow as well
        slower = self.mfu / longer({}, self.contingency_ratio)
        high = replace(
            self, mfu=self.ranges.get("mfu_high", slower), goodput=self.ranges.get("goodput_high", self.goodput)
        )
        return {"low": low.estimate(), "base": self.estimate(), "high": high.estimate()}


def parse_training_plan(fields: object) -> TrainingPlan:
    """Check a plan.  Raises TrainingPlanError with a message for every bad field at once."""
    reader = FieldReader(fields, "a training plan")
    if reader.problems:
        raise TrainingPlanError(reader.problems)
    known = (*FIELDS, *DEFAULTED, *ATTENTION, *RANGES, *STORAGE, *FACTS, "accelerator", "dtype", "overheads", "peak_tflops")
    reader.finish((*known, "attention", *STORE_FIELDS, "sequences_per_step", "contingency_method", *OF_A_REGION))
    found = {name: reader.number(name, bound) for name, bound in FIELDS.items() if name != CARBON}
    found[CARBON] = read_factor(reader, CARBON, FIELDS[CARBON], required=True)
    found |= {name: reader.number(name, bound, default) for name, (bound, default) in DEFAULTED.items()}
    ranges = reader.given(dict.fromkeys(RANGES, SHARE))
    extra, peak, overheads = _attention(reader), _peak(reader), _overheads(reader)
    reader.together(*STORAGE_PAIR)
    storage = reader.given(STORAGE)
    facts, store = read_facts(reader, found["active_params"]), read_store_use(reader)
    method, steps = reader.choice("contingency_method", CONTINGENCY, ON_BASE), _steps(reader, found["tokens"])
    _refuse_disorder(reader, {**found, **ranges})
    numbers = {name: number for name, number in found.items() if number is not None}
    if reader.problems or peak is None:
        raise TrainingPlanError(reader.problems)
    flop = model_flop(numbers["active_params"], numbers["tokens"]) + extra * numbers["tokens"]
    return TrainingPlan(
        flop, peak * TERA, numbers["gpus"], numbers["mfu"], numbers["goodput"], numbers["price_per_gpu_hour"], overheads,
        numbers["contingency_ratio"], numbers["gpu_power_kw"] * numbers["pue"], numbers["carbon_kg_per_kwh"],
        ranges, numbers["active_params"], numbers["tokens"],
        storage, facts, store, method, steps,
    )  # fmt: skip


def _steps(reader: FieldReader, tokens: Fraction | None) -> int | None:
    """Return the optimizer steps of the run; None where the batch is not given."""
    batch = reader.optional("sequences_per_step", BATCH)
    if batch is not None and not any(map(reader.has, ATTENTION)):
        reader.refuse("seq_len", Message("is missing, but sequences_per_step is given"))
    length = reader.optional("seq_len", ATTENTION["seq_len"]) if batch is not None else None
    if batch is None or length is None or tokens is None:
        return None
    return optimizer_steps(tokens, sequences_per_step=int(batch), seq_len=int(length))


def _attention(reader: FieldReader) -> Fraction:
    """Return attention FLOP per token; 0 where layers and width are not given."""
    kind = reader.choice("attention", ("full", "causal"), "full")
    if not reader.has("layers") and not reader.has("model_width"):
        reader.optional("seq_len", ATTENTION["seq_len"])
        return Fraction(0)
    values = [reader.number(name, bound) for name, bound in ATTENTION.items()]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return Fraction(0)
    seq_len, layers, width = known
    return attention_flop_per_token(layers, width, seq_len, causal=kind == "causal")


def _peak(reader: FieldReader) -> Fraction | None:
    """Return dense TFLOP/s: `peak_tflops` where given, else the peak of accelerator and precision."""
    given = reader.optional("peak_tflops", PEAK)
    accelerator, dtype = reader.text("accelerator"), reader.text("dtype")
    if reader.has("peak_tflops") or not accelerator or not dtype:
        return given
    return known_peak(reader, accelerator, dtype)


def known_peak(reader: FieldReader, accelerator: str, dtype: str) -> Fraction | None:
    """Return dense TFLOP/s of one device of a known product; note a problem and return None for any other."""
    peak = dense_peak_tflops(accelerator, dtype)
    if peak is None:
        reader.refuse("accelerator", Message(
            "%(value)s has no known dense peak for %(dtype)s: give peak_tflops", value=repr(accelerator), dtype=repr(dtype)
        ))
    return None if peak is None else Fraction(peak)


def _overheads(reader: FieldReader) -> dict[str, Fraction]:
    if reader.fields.get("overheads") is None:
        return {}
    inner = reader.nested(reader.fields["overheads"], "overheads (name: ratio)", "overheads")
    found = {str(name): inner.number(name, OVERHEAD) for name in inner.fields}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def _refuse_disorder(reader: FieldReader, numbers: Mapping[str, Fraction | None]) -> None:
    for name in ("mfu", "goodput"):
        base, low, high = (numbers.get(field) for field in (name, f"{name}_low", f"{name}_high"))
        if base is not None and low is not None and low < base:
            reader.refuse(f"{name}_low", Message(
                "must be at least %(name)s: the low-cost case is the efficient one", name=name
            ))
        if base is not None and high is not None and high > base:
            reader.refuse(f"{name}_high", Message(
                "must be at most %(name)s: the high-cost case is the inefficient one", name=name
            ))
