"""`efficiency FILE`: policy and workloads -> multiplier and reason of each workload."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from metering.messages import Message
from metering.peaks import dense_peak_tflops
from pricing.commands.files import OK, problems_of, read_document, table, write_json, write_lines, write_notes
from pricing.efficiency import (
    BANDS,
    SECONDS_PER_GPU_HOUR,
    EfficiencyPolicy,
    Form,
    Metric,
    Verdict,
    Workload,
    WorkloadClass,
    hfu_with_full_recomputation,
    judge_workload,
    mfu_of,
    neutral_pool_share,
    pooled,
    weighted_mean,
)
from pricing.fields import Bound, FieldReader, InputError, shown
from pricing.money import exact_decimal

HELP = "samples + policy -> MFU, HFU, multiplier and reason of each workload"
RATIO: Final = Bound("0", "1", "ratio", "20 % is 0.20")
WIDTH: Final = Bound("0", "1", "ratio", "10 % is 0.10", above_low=True)
TOKENS: Final = Bound("0", "1e15", "tokens/s of the whole run")
PARAMS: Final = Bound("1e3", "1e16", "parameters that a token uses, not the total of a mixture of experts", whole=True)
GPUS: Final = Bound("1", "1e7", "GPUs", whole=True)
PEAK: Final = Bound("1", "1e6", "dense TFLOP/s of one device")
TERA: Final = 10**12
LEAST: Final = Bound("0", "1e9", "GPU-seconds", whole=True)
MINUTES: Final = Bound("0", "1e6", "minutes", whole=True)
MEASURED_MINUTES: Final = Bound("0", "1e9", "minutes")
GPU_SECONDS: Final = Bound("0", "1e15", "GPU-seconds")
METRIC: Final = Bound("-1e6", "1e6", "ratio, out of 0 to 1 it is a data error")
METRICS: Final = ("coverage", "mfu", "hfu")
ALWAYS: Final = datetime(2000, 1, 1, tzinfo=UTC)
SWITCHES: Final = ("shadow", "gather_short", "neutral_pool")
POOL_NOTE: Final = "neutral_pool: rewards are paid from the penalties of these workloads, as if at one price"
POLICY_FIELDS: Final = (
    "name", "valid_from", *BANDS, "min_minutes", "min_coverage", "min_gpu_seconds", "form", "width", "penalise_on",
    "classes", "unrewarded", *SWITCHES,
)  # fmt: skip
NAMED: Final = ("kind", "queue", "accelerator")
PATTERNS: Final = ("kinds", "queues", "accelerators")
RUN: Final = ("tokens_per_second", "active_params", "gpus", "dtype", "peak_tflops", "recomputation")
PHASE_FIELDS: Final = ("gpu_seconds", "mfu", "hfu", *RUN, "accelerator")
WORKLOAD_FIELDS: Final = (
    "id", "gpu_seconds", "minutes", "coverage", "mfu", "hfu", "team", "start", *NAMED, *RUN, "phases",
)  # fmt: skip
CLASS_FIELDS: Final = ("name", *PATTERNS, "exempt_until", *BANDS, "penalise_on")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("file", metavar="FILE", help='{"policy": {...}, "workloads": [...]}, JSON or YAML, or -')
    parser.add_argument("--linear", action="store_true", help="without cliffs: penalty and reward grow over 0.10")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Judge every workload of a file."""
    document = read_document(arguments.file)
    with problems_of(document):
        policy, workloads = parse_efficiency(document.value)
    if arguments.linear:
        policy = replace(policy, form=Form.LINEAR)
    verdicts = [(name, judge_workload(policy, **_judged(facts))) for name, facts in workloads]
    notes = []
    if policy.neutral_pool:
        verdicts = _paid_by_the_pool(verdicts, [facts["gpu_seconds"] for _, facts in workloads])
        notes = [f"{document.name}: {POOL_NOTE}"]
    write_notes(notes)
    if arguments.json:
        facts_of = dict(workloads)
        rows = [
            {"id": name, "multiplier": multiplier_text(verdict), "reason": verdict.reason, **_told(facts_of[name])}
            for name, verdict in verdicts
        ]
        write_json({"policy": policy.name, "workloads": rows, **({"notes": notes} if notes else {})})
    else:
        shown = [tuple("-" if facts[name] is None else str(facts[name]) for name in METRICS) for _, facts in workloads]
        lines = [(name, *facts, multiplier_text(v), v.reason) for (name, v), facts in zip(verdicts, shown, strict=True)]
        write_lines(table([("workload", *METRICS, "multiplier", "reason"), *lines], left=(0, 5)))
    return OK


def _paid_by_the_pool(verdicts: Sequence[tuple[str, Verdict]], gpu_seconds: Sequence[Decimal]) -> list[tuple[str, Verdict]]:
    """Rewards as the penalties beside them pay for them (FM6): without prices every GPU-second counts alike."""
    changes = [
        (Fraction(verdict.multiplier) - 1) * Fraction(seconds)
        for (_, verdict), seconds in zip(verdicts, gpu_seconds, strict=True)
    ]
    penalties = sum((change for change in changes if change > 0), Fraction(0))
    share = neutral_pool_share(penalties, -sum((change for change in changes if change < 0), Fraction(0)))
    return [(name, pooled(verdict, share)) for name, verdict in verdicts]


def _judged(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name != "derived"}


def _told(facts: dict[str, Any]) -> dict[str, str]:
    """The utilisation that was worked out, where it was not given."""
    if not facts["derived"]:
        return {}
    return {name: format(facts[name], "f") for name in ("mfu", "hfu") if facts[name] is not None}


def multiplier_text(verdict: Verdict) -> str:
    """A multiplier without trailing zeros: 1.2, 1, 0.9."""
    text = format(verdict.multiplier, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def parse_efficiency(fields: object) -> tuple[EfficiencyPolicy, list[tuple[str, dict[str, Any]]]]:
    """Policy, and (id, facts for `judge_workload`) of each.  Raises InputError with a message for every bad field."""
    reader = FieldReader(fields, "an efficiency file")
    if reader.problems:
        raise InputError(reader.problems)
    policy = _policy(reader.nested(reader.fields.get("policy"), "a policy", "policy"))
    workloads = [
        _workload(reader.nested(item, "a workload", "workloads", index), index)
        for index, item in enumerate(reader.each("workloads"))
    ]
    _refuse_twice(reader, [name for name, _ in workloads])
    reader.finish(("policy", "workloads"))
    if reader.problems or policy is None:
        raise InputError(reader.problems)
    return policy, workloads


def _policy(reader: FieldReader) -> EfficiencyPolicy | None:
    if not reader.is_mapping:
        return None
    before = len(reader.problems)
    reader.finish(POLICY_FIELDS)
    valid_from = _instant(reader)
    name = reader.text("name", default="policy")
    ratios = {field: _decimal(reader, field, RATIO) for field in ("hfu_below", "penalty", "mfu_above", "reward")}
    minutes = reader.number("min_minutes", MINUTES, default="30")
    coverage = _decimal(reader, "min_coverage", RATIO, default="0.95")
    least = reader.number("min_gpu_seconds", LEAST, default=str(SECONDS_PER_GPU_HOUR))
    width, form = _decimal(reader, "width", WIDTH, default="0.10"), reader.choice("form", tuple(Form), Form.BANDS)
    switches = {name: reader.flag(name) for name in SWITCHES}
    metric, classes = reader.choice("penalise_on", tuple(Metric), Metric.HFU), _classes(reader)
    bounds = {field: value for field, value in ratios.items() if value is not None}
    if len(bounds) == len(ratios) and bounds["hfu_below"] > bounds["mfu_above"]:
        reader.refuse("hfu_below", Message(
            "%(value)s must not be above mfu_above %(other)s", value=bounds["hfu_below"], other=bounds["mfu_above"]
        ))
    if len(reader.problems) > before or minutes is None or coverage is None or least is None or width is None:
        return None
    return EfficiencyPolicy(
        name, valid_from, bounds["hfu_below"], bounds["penalty"], bounds["mfu_above"], bounds["reward"], int(minutes),
        coverage, int(least), Form(form), width, classes=classes, unrewarded=_texts(reader, "unrewarded"),
        penalise_on=Metric(metric), **switches,
    )  # fmt: skip


def _classes(reader: FieldReader) -> tuple[WorkloadClass, ...]:
    """Bands of their own for some workloads, in the order in which they are tried."""
    found = []
    for index, item in enumerate(reader.each("classes") if reader.has("classes") else ()):
        one = reader.nested(item, "a class of workloads", "classes", index)
        if not one.is_mapping:
            continue
        one.finish(CLASS_FIELDS)
        bands: dict[str, Any] = {name: _decimal(one, name, RATIO) for name in BANDS if one.has(name)}
        metric = one.choice("penalise_on", tuple(Metric), Metric.HFU) if one.has("penalise_on") else None
        until = _instant(one, "exempt_until") if one.has("exempt_until") else None
        kinds, queues, accelerators = (_texts(one, name) for name in PATTERNS)
        own = WorkloadClass(one.text("name"), kinds, queues, accelerators, until, **bands)
        found.append(replace(own, penalise_on=Metric(metric)) if metric else own)
    return tuple(found)


def _texts(reader: FieldReader, name: str) -> tuple[str, ...]:
    return tuple(str(text) for text in reader.each(name)) if reader.has(name) else ()


def _instant(reader: FieldReader, name: str = "valid_from") -> datetime:
    """A time with an offset, or a plain date, which needs no zone here."""
    text = reader.text(name, default=ALWAYS.isoformat())
    with suppress(ValueError):
        instant = datetime.fromisoformat(f"{text}T00:00:00+00:00" if len(text) == len("2026-10-01") else text)
        if instant.tzinfo is not None:
            return instant
    if text:
        reader.refuse(name, Message(
            "%(value)s must be a time with an offset such as 2026-10-01T00:00:00+08:00", value=repr(text)
        ))
    return ALWAYS


def _workload(reader: FieldReader, index: int) -> tuple[str, dict[str, Any]]:
    if not reader.is_mapping:
        return str(index), {}
    reader.finish(WORKLOAD_FIELDS)
    facts: dict[str, Any] = {
        "workload": Workload(**{name: reader.text(name, default="") for name in NAMED}),
        "team": reader.text("team", default=""), "at": _instant(reader, "start"),
        "gpu_seconds": _decimal(reader, "gpu_seconds", GPU_SECONDS),
        "minutes": _decimal(reader, "minutes", MEASURED_MINUTES),
    }  # fmt: skip
    facts["coverage"] = _decimal(reader, "coverage", METRIC) if reader.has("coverage") else None
    facts["mfu"], facts["hfu"] = _measured(reader)
    facts["derived"] = reader.has("phases") or reader.has("tokens_per_second")
    return reader.text("id"), facts


def _measured(reader: FieldReader) -> tuple[Decimal | None, Decimal | None]:
    """MFU and HFU: as given, or of phases (FM2: by GPU-seconds x dense peak), or of what the run did (FS9)."""
    if not reader.has("phases"):
        phase = _phase(reader)
        return phase.mfu, phase.hfu
    for name in ("mfu", "hfu", "tokens_per_second"):
        if reader.has(name):
            reader.refuse(name, Message(
                "%(value)s stands beside %(other)s: give one of them", value=shown(reader.fields[name]), other="phases"
            ))
    phases = []
    for index, item in enumerate(reader.each("phases")):
        one = reader.nested(item, "a phase", "phases", index)
        if one.is_mapping:
            one.finish(PHASE_FIELDS)
            phases.append(_phase(one, reader.fields.get("accelerator")))
            _decimal(one, "gpu_seconds", GPU_SECONDS)
    return _mean(phases, "mfu"), _mean(phases, "hfu")


@dataclass(frozen=True, slots=True)
class _Phase:
    """What was measured of a phase of one precision."""

    gpu_seconds: Fraction
    peak: Fraction | None
    mfu: Decimal | None
    hfu: Decimal | None


def _mean(phases: Sequence[_Phase], metric: str) -> Decimal | None:
    """The weighted mean; None where a phase lacks the metric or its peak."""
    values = [(one.gpu_seconds, one.peak, getattr(one, metric)) for one in phases]
    if any(peak is None or value is None for _, peak, value in values):
        return None
    mean = weighted_mean([(seconds, peak or Fraction(0), Fraction(value)) for seconds, peak, value in values])
    return None if mean is None else Decimal(exact_decimal(mean))


def _phase(reader: FieldReader, accelerator: Any = None) -> _Phase:
    seconds = reader.optional("gpu_seconds", GPU_SECONDS) or Fraction(0)
    given = {name: _decimal(reader, name, METRIC) if reader.has(name) else None for name in ("mfu", "hfu")}
    peak = _peak(reader, accelerator) if any(map(reader.has, RUN)) else None
    if not reader.has("tokens_per_second"):
        return _Phase(seconds, peak, given["mfu"], given["hfu"])
    for name in given:
        if reader.has(name):
            reader.refuse(name, Message(
                "%(value)s stands beside %(other)s: give one of them",
                value=shown(reader.fields[name]), other="tokens_per_second",
            ))
    rate, params = reader.number("tokens_per_second", TOKENS), reader.number("active_params", PARAMS)
    gpus, full = reader.number("gpus", GPUS), reader.choice("recomputation", ("none", "full"), "none") == "full"
    if rate is None or params is None or gpus is None or peak is None:
        return _Phase(seconds, peak, None, None)
    mfu = mfu_of(tokens_per_second=rate, active_params=int(params), gpus=int(gpus), peak_flops=peak * TERA)
    hfu = hfu_with_full_recomputation(mfu) if full else mfu
    return _Phase(seconds, peak, Decimal(exact_decimal(mfu)), Decimal(exact_decimal(hfu)))


def _peak(reader: FieldReader, accelerator: Any) -> Fraction | None:
    """Dense TFLOP/s of one device: as given, or of accelerator and precision."""
    if reader.has("peak_tflops"):
        return reader.number("peak_tflops", PEAK)
    name, dtype = reader.text("accelerator", default=str(accelerator or "")), reader.text("dtype")
    peak = dense_peak_tflops(name, dtype) if dtype else None
    if peak is None and dtype:
        reader.refuse("accelerator", Message(
            "%(value)s has no known dense peak for %(dtype)s: give peak_tflops", value=repr(name), dtype=repr(dtype)
        ))
    return None if peak is None else Fraction(peak)


def _decimal(reader: FieldReader, name: str, bound: Bound, default: str | None = None) -> Decimal | None:
    """The field as it was written; bands are compared unrounded."""
    number = reader.number(name, bound, default)
    if number is None:
        return None
    given = reader.fields[name] if reader.has(name) else default
    return Decimal(str(given).strip())


def _refuse_twice(reader: FieldReader, names: list[str]) -> None:
    for index, name in enumerate(names):
        if name and name in names[:index]:
            reader.nested({}, "a workload", "workloads", index).refuse("id", Message(
                "%(value)s is there twice", value=repr(name)
            ))
