"""Planner of training runs: texts of a form -> low, base and high case, with warnings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from django import forms
from django.db import connection
from django.forms.boundfield import BoundField
from django.utils.translation import gettext, gettext_noop

from billing.portal.forms import Input, InputsForm
from billing.portal.price_lists import published_versions
from metering.messages import Message
from pricing.documents import DocumentError, parse_document
from pricing.efficiency import EfficiencyPolicy, Verdict, hfu_with_full_recomputation, judge
from pricing.fields import Bound, FieldProblem, exact_number
from pricing.money import exact_decimal, round_amount, round_to
from pricing.training_checks import FACTS
from pricing.training_plan import (
    ATTENTION,
    BATCH,
    DEFAULTED,
    FIELDS,
    ON_BASE,
    RANGES,
    SHARE,
    STORAGE,
    Estimate,
    TrainingPlan,
    TrainingPlanError,
    parse_training_plan,
)

LOCATION_BASED: Final = "carbon_kg_per_kwh"
MARKET_BASED: Final = "market_carbon_kg_per_kwh"
RECOMPUTATION: Final = {"none": Fraction(1), "full": hfu_with_full_recomputation(Fraction(1))}
"""HFU over MFU by recomputation: full recomputation of activations repeats the forward pass."""

TEXTS: Final = {
    "accelerator": "NVIDIA-H800", "dtype": "bf16", "recomputation": "none", "contingency_method": ON_BASE,
}  # fmt: skip
LISTS: Final = {
    "storage": gettext_noop("YAML or JSON: tiers with tb_months and price_per_tb_month"),
    "requests": gettext_noop("YAML or JSON: classes with count and price_per_1000"),
}
OVERHEADS: Final = ("experiments", "evaluation", "post_training", "preprocessing")
START: Final = {
    **TEXTS, "active_params": "10e9", "tokens": "10e12", "gpus": "256", "mfu": "0.40", "goodput": "0.90",
    "contingency_ratio": "0.20", "gpu_power_kw": "1.275", "pue": "1.3", LOCATION_BASED: "0.5306",
}  # fmt: skip
BOUNDS: Final[dict[str, Bound]] = {
    **FIELDS, **{name: bound for name, (bound, _) in DEFAULTED.items()}, **ATTENTION,
    **dict.fromkeys(RANGES, SHARE), **STORAGE, **FACTS, MARKET_BASED: FIELDS[LOCATION_BASED],
    **{name: Bound("0", "10", "ratio of the main run", "20 % is 0.20") for name in OVERHEADS}, "sequences_per_step": BATCH,
}  # fmt: skip
HINTS: Final = {**LISTS, "contingency_method": gettext_noop("on-base, or share-of-total")}
NAMES: Final = (*TEXTS, *BOUNDS, *LISTS)
GROUPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (gettext_noop("The run"), ("active_params", "tokens", "accelerator", "gpus", "price_per_gpu_hour", "mfu", "goodput",
                               "dtype", "recomputation")),
    (gettext_noop("Contingency and what comes with the run"), ("contingency_ratio", "contingency_method", *OVERHEADS)),
    (gettext_noop("Low and high"), tuple(RANGES)),
    (gettext_noop("Energy and CO2"), ("gpu_power_kw", "pue", LOCATION_BASED, MARKET_BASED)),
    (gettext_noop("Attention and steps"), (*ATTENTION, "sequences_per_step")),
    (gettext_noop("Storage and requests"), (*STORAGE, *LISTS)),
    (gettext_noop("What the plan is compared with"), tuple(FACTS)),
)  # fmt: skip
OPEN: Final = 2
"""Number of groups that are open at first; any other is open if one of its inputs has a value."""
USUAL_MFU: Final = Fraction(55, 100)
LONG_RUN_DAYS: Final = 180
ATTENTION_MATTERS: Final = Fraction(1, 6)
LOOKED_BACK: Final = timedelta(days=180)
LEAST_COVERAGE: Final = Decimal("0.95")
LEAST_RUNS: Final = 10
LEAST_GPU_SECONDS: Final = 3600


@dataclass
class Plan:
    """Cases of a plan in words and figures; `problems` if it cannot be made."""

    rows: list[tuple[str, str, list[Decimal]]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: Sequence[str] = ()


def published_prices() -> dict[str, Decimal]:
    """Return accelerator -> price of a GPU-hour in the newest published list."""
    version = published_versions().first()
    rows = version.gpu.filter(resource="", unit="GPU-Hours").order_by("accelerator") if version else []
    return {row.accelerator: row.price for row in rows}


def planner_values(
    asked: Mapping[str, Any], prices: Mapping[str, Decimal], own_p90: Callable[[str], Decimal | None]
) -> dict[str, str]:
    """Return the text of every input; price and own MFU follow the accelerator if none is typed."""
    # without `tokens` no form was sent, and the page opens with an example
    given = {name: str(asked.get(name, "")).strip() for name in NAMES} if "tokens" in asked else dict(START)
    accelerator = given.get("accelerator", "")
    if not given.get("price_per_gpu_hour") and accelerator in prices:
        given["price_per_gpu_hour"] = format(prices[accelerator], "f")
    own = None if given.get("mfu_p90") or not accelerator else own_p90(accelerator)
    if own is not None:
        given["mfu_p90"] = exact_decimal(Fraction(own), 4)
    return {name: given.get(name, "") for name in NAMES}


def own_mfu_p90(accelerator: str, now: datetime) -> Decimal | None:
    """Return the 90th-percentile MFU of runs on `accelerator` in the last 180 days; None for fewer than ten runs.

    A run is a pod or workload with at least one GPU-hour measured; its MFU is weighted by GPU-seconds, and the
    percentile is the nearest rank.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT count(*), percentile_disc(0.9) WITHIN GROUP (ORDER BY done / weight)
               FROM (SELECT sum(s.mfu * s.gpu_seconds) AS done, sum(s.gpu_seconds) AS weight
                     FROM usage_efficiencysample s
                     WHERE s.start >= %(since)s AND s."end" <= %(now)s AND s.mfu IS NOT NULL AND s.coverage >= %(coverage)s
                           AND EXISTS (SELECT 1 FROM usage_gpuallocation a WHERE a.cluster = s.cluster
                                       AND a.pod_uid = s.pod_uid AND a.accelerator = %(accelerator)s)
                     GROUP BY s.cluster, s.pod_uid, s.workload) AS run
               WHERE weight >= %(least)s""",
            {
                "since": now - LOOKED_BACK, "now": now, "coverage": LEAST_COVERAGE, "accelerator": accelerator,
                "least": LEAST_GPU_SECONDS,
            },
        )  # fmt: skip
        runs, reached = cursor.fetchone()
    return reached if runs >= LEAST_RUNS else None


def in_groups(values: Mapping[str, str]) -> list[tuple[str, bool, list[BoundField]]]:
    """Return (group, True if it is open, its inputs)."""
    inputs = {name: Input(name, _hint(name), widget=_widget(name)) for name in NAMES}
    groups = InputsForm(None, inputs, prefix="p", initial=values).in_groups(GROUPS)
    return [
        (title, number < OPEN or any(field.value() for field in fields), fields)
        for number, (title, fields) in enumerate(groups)
    ]


def _widget(name: str) -> forms.Widget:
    if name in LISTS:
        return forms.Textarea(attrs={"rows": 2})
    return forms.TextInput(attrs={"list": "accelerators"} if name == "accelerator" else {})


def _hint(name: str) -> str:
    return gettext(BOUNDS[name].unit) if name in BOUNDS else gettext(HINTS[name]) if name in HINTS else ""


def planned(values: Mapping[str, str], policy: EfficiencyPolicy | None = None) -> Plan:
    """Calculate the plan from the texts, with its warnings; every refusal if it cannot be made.

    `policy`: the efficiency policy in force; its reward or penalty stands beside the cost and is never part of it.
    """
    market = exact_number(values[MARKET_BASED]) if values[MARKET_BASED] else None
    fields: dict[str, Any] = {
        name: value for name, value in values.items() if value and name not in (MARKET_BASED, "recomputation", *OVERHEADS)
    }
    fields["overheads"] = {name: values[name] for name in OVERHEADS if values[name]}
    problems = _open_lists(fields)
    if values[MARKET_BASED] and (market is None or not BOUNDS[MARKET_BASED].holds(market)):
        wrong = Message("%(value)s %(range)s", value=repr(values[MARKET_BASED]), range=BOUNDS[MARKET_BASED].expected)
        problems.append(FieldProblem((MARKET_BASED,), wrong).message)
    hfu_over_mfu = RECOMPUTATION.get(values["recomputation"] or "none")
    if hfu_over_mfu is None:
        wrong = Message(
            "%(value)s must be one of %(options)s", value=repr(values["recomputation"]), options=", ".join(RECOMPUTATION)
        )
        problems.append(FieldProblem(("recomputation",), wrong).message)
    try:
        plan = parse_training_plan(fields)
    except TrainingPlanError as error:
        return Plan(problems=[*error.messages, *problems])
    if problems or hfu_over_mfu is None:
        return Plan(problems=problems)
    cases = plan.cases()
    rows = _rows(plan, list(cases.values()), market)
    if policy is not None:
        rows.append(_adjustment_row(list(cases.values()), policy, hfu_over_mfu))
    checks = [check.text for check in plan.checks() if not check.holds]
    return Plan(rows, [*checks, *_warnings(values, cases["base"])])


def _open_lists(fields: dict[str, Any]) -> list[Message]:
    """Replace texts of YAML or JSON by their values, and return the problems found."""
    problems = []
    for name in LISTS.keys() & fields.keys():
        try:
            fields[name] = parse_document(fields[name].encode(), name).value
        except DocumentError as error:
            problems.append(error.message)
            del fields[name]
    return problems


def _adjustment_row(
    cases: list[Estimate], policy: EfficiencyPolicy, hfu_over_mfu: Fraction
) -> tuple[str, str, list[Decimal]]:
    """Return the reward (below 0) or penalty of the main run, if its MFU is as planned."""
    name = gettext("Efficiency adjustment by %(policy)s, not in the cost") % {"policy": policy.name}
    if policy.shadow:
        name = gettext("%(adjustment)s (showback)") % {"adjustment": name}
    verdicts = [(case, _verdict(case, policy, hfu_over_mfu)) for case in cases]
    return name, "money", [round_amount(case.main_cost * (verdict.multiplier - 1)) for case, verdict in verdicts]


def _verdict(case: Estimate, policy: EfficiencyPolicy, hfu_over_mfu: Fraction) -> Verdict:
    gpu_seconds, minutes = (Decimal(exact_decimal(value)) for value in (case.gpu_hours * 3600, case.days * 1440))
    mfu, hfu = (Decimal(exact_decimal(value)) for value in (case.mfu, case.mfu * hfu_over_mfu))
    # as if measured completely: a plan has no telemetry
    return judge(policy, gpu_seconds=gpu_seconds, minutes=minutes, coverage=Decimal(1), mfu=mfu, hfu=hfu)


def _rows(plan: TrainingPlan, cases: list[Estimate], market: Fraction | None) -> list[tuple[str, str, list[Decimal]]]:
    rows = [
        (gettext("GPU-hours"), "", [round_to(case.gpu_hours, 1) for case in cases]),
        (gettext("Days on all GPUs"), "", [round_to(case.days, 1) for case in cases]),
        (gettext("Cost of the main run"), "money", [case.main_cost for case in cases]),
        (gettext("Storage and requests"), "money", [case.storage_cost for case in cases]),
        (gettext("Cost with overheads and contingency"), "money", [case.total_cost for case in cases]),
        (gettext("Energy, kWh at the meter"), "", [round_to(case.kwh, 0) for case in cases]),
        (gettext("CO2 by location, kg"), "", [round_to(case.kg_co2, 0) for case in cases]),
    ]
    if plan.steps is not None:
        rows.append((gettext("Optimizer steps"), "", [Decimal(plan.steps)] * len(cases)))
    if market is not None:
        rows.append((gettext("CO2 by contract (market), kg"), "", [round_to(case.kwh * market, 0) for case in cases]))
    return rows


def _warnings(values: Mapping[str, str], base: Estimate) -> list[Message]:
    """Return warnings about values that are possible and seldom true; they stop nothing."""
    number = {name: exact_number(value) for name, value in values.items() if value}
    found = []
    mfu = number.get("mfu")
    if mfu and mfu > USUAL_MFU:
        found.append(Message(
            "mfu %(mfu)s is above what large runs report (0.38 to 0.55): plan with a measured one", mfu=values["mfu"]
        ))
    if (number.get("goodput") or 1) == 1:
        found.append(Message("goodput 1 means no failure, restart or checkpoint loss: runs of weeks lose about a tenth"))
    if base.days > LONG_RUN_DAYS:
        days = round_amount(base.days)
        found.append(Message.counted(
            "the run takes %(days)s day: more GPUs, or a smaller run",
            "the run takes %(days)s days: more GPUs, or a smaller run", LONG_RUN_DAYS, days=days,
        ))
    width, length = number.get("model_width"), number.get("seq_len")
    if length and width and length > ATTENTION_MATTERS * 6 * width:
        found.append(Message("seq_len is not small against the model's width: attention is a large part of the FLOP"))
    if not values["layers"]:
        found.append(Message("without layers and model_width the FLOP of attention are left out"))
    if number.get("gpus") and base.gpu_hours < (number["gpus"] or 0):
        found.append(Message("the run is shorter than an hour: too small to plan this way"))
    return found
