"""Command `efficiency FILE`: multiplier and reason of each workload under a policy."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from metering.messages import Message
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
from pricing.fields import Bound, FieldReader, InputError, exact_number
from pricing.money import exact_decimal
from pricing.number_text import plain_text
from pricing.training_plan import PEAK, known_peak

HELP = "samples + policy -> MFU, HFU, multiplier and reason of each workload"
RATIO: Final = Bound("0", "1", "ratio", "20 % is 0.20")
WIDTH: Final = Bound("0", "1", "ratio", "10 % is 0.10", above_low=True)
TOKENS: Final = Bound("0", "1e15", "tokens/s of the whole run")
PARAMS: Final = Bound("1e3", "1e16", "parameters that a token uses, not the total of a mixture of experts", whole=True)
GPUS: Final = Bound("1", "1e7", "GPUs", whole=True)
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
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help='{"policy": {...}, "workloads": [...]}, JSON or YAML, or -')
    parser.add_argument("--linear", action="store_true", help="without cliffs: penalty and reward grow over 0.10")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


@dataclass(frozen=True)
class Job:
    """Workload: its id, the arguments of `judge_workload`; `derived`: its utilisation was calculated here."""

    name: str
    derived: bool
    facts: dict[str, Any]


def run(arguments: argparse.Namespace) -> int:
    """Judge every workload of a file."""
    document = read_document(arguments.file)
    with problems_of(document):
        policy, jobs = parse_efficiency(document.value)
    if arguments.linear:
        policy = replace(policy, form=Form.LINEAR)
    verdicts = [judge_workload(policy, **job.facts) for job in jobs]
    notes = []
    if policy.neutral_pool:
        verdicts = _paid_by_the_pool(verdicts, [job.facts["gpu_seconds"] for job in jobs])
        notes = [f"{document.name}: {POOL_NOTE}"]
    write_notes(notes)
    if arguments.json:
        rows = [
            {"id": job.name, "multiplier": plain_text(verdict.multiplier), "reason": verdict.reason, **_worked_out(job)}
            for job, verdict in zip(jobs, verdicts, strict=True)
        ]
        write_json({"policy": policy.name, "workloads": rows, **({"notes": notes} if notes else {})})
    else:
        shown = [["-" if job.facts[name] is None else str(job.facts[name]) for name in METRICS] for job in jobs]
        lines = [
            (job.name, *facts, plain_text(verdict.multiplier), verdict.reason)
            for job, facts, verdict in zip(jobs, shown, verdicts, strict=True)
        ]
        write_lines(table([("workload", *METRICS, "multiplier", "reason"), *lines], left=(0, 5)))
    return OK


def _paid_by_the_pool(verdicts: Sequence[Verdict], gpu_seconds: Sequence[Decimal]) -> list[Verdict]:
    """Scale rewards to the penalties of the same file (FM6): without prices every GPU-second counts alike."""
    changes = [
        (Fraction(verdict.multiplier) - 1) * Fraction(seconds)
        for verdict, seconds in zip(verdicts, gpu_seconds, strict=True)
    ]
    penalties = sum((change for change in changes if change > 0), Fraction(0))
    share = neutral_pool_share(penalties, -sum((change for change in changes if change < 0), Fraction(0)))
    return [pooled(verdict, share) for verdict in verdicts]


def _worked_out(job: Job) -> dict[str, str]:
    """Return the utilisation as text where it was calculated here."""
    names = ("mfu", "hfu") if job.derived else ()
    return {name: format(job.facts[name], "f") for name in names if job.facts[name] is not None}


def parse_efficiency(fields: object) -> tuple[EfficiencyPolicy, list[Job]]:
    """Read policy and workloads of a file.  Raises InputError with a message for every bad field."""
    reader = FieldReader(fields, "an efficiency file")
    if reader.problems:
        raise InputError(reader.problems)
    policy = _policy(reader.nested(reader.fields.get("policy"), "a policy", "policy"))
    jobs: list[Job] = []
    for one in reader.mappings("workloads", "a workload", required=True):
        job = _job(one)
        if job.name and job.name in [other.name for other in jobs]:
            one.refuse("id", Message("%(value)s is there twice", value=repr(job.name)))
        jobs.append(job)
    reader.finish(("policy", "workloads"))
    if reader.problems or policy is None:
        raise InputError(reader.problems)
    return policy, jobs


def _policy(reader: FieldReader) -> EfficiencyPolicy | None:
    if not reader.is_mapping:
        return None
    before = len(reader.problems)
    reader.finish(POLICY_FIELDS)
    facts: dict[str, Any] = {
        "valid_from": _instant(reader, "valid_from"), "name": reader.text("name", default="policy"),
        **{band: reader.decimal(band, RATIO) for band in BANDS},
        "min_minutes": reader.number("min_minutes", MINUTES, default="30"),
        "min_coverage": reader.decimal("min_coverage", RATIO, default="0.95"),
        "min_gpu_seconds": reader.number("min_gpu_seconds", LEAST, default=str(SECONDS_PER_GPU_HOUR)),
        "width": reader.decimal("width", WIDTH, default="0.10"),
        "form": Form(reader.choice("form", tuple(Form), Form.BANDS)),
        "penalise_on": Metric(reader.choice("penalise_on", tuple(Metric), Metric.HFU)),
        **{switch: reader.flag(switch) for switch in SWITCHES},
        "classes": tuple(_class(one) for one in reader.mappings("classes", "a class of workloads")),
        "unrewarded": _texts(reader, "unrewarded"),
    }  # fmt: skip
    below, above = facts["hfu_below"], facts["mfu_above"]
    if below is not None and above is not None and below > above:
        reader.refuse("hfu_below", Message("%(value)s must not be above mfu_above %(other)s", value=below, other=above))
    if len(reader.problems) > before:
        return None
    whole = {name: int(facts[name]) for name in ("min_minutes", "min_gpu_seconds")}
    return EfficiencyPolicy(**{**facts, **whole})


def _class(reader: FieldReader) -> WorkloadClass:
    """Read a class of workloads with its own bands."""
    reader.finish(CLASS_FIELDS)
    bands: dict[str, Any] = {name: reader.decimal(name, RATIO) for name in BANDS if reader.has(name)}
    if reader.has("penalise_on"):
        bands["penalise_on"] = Metric(reader.choice("penalise_on", tuple(Metric), Metric.HFU))
    until = _instant(reader, "exempt_until") if reader.has("exempt_until") else None
    kinds, queues, accelerators = (_texts(reader, name) for name in PATTERNS)
    return WorkloadClass(reader.text("name"), kinds, queues, accelerators, until, **bands)


def _texts(reader: FieldReader, name: str) -> tuple[str, ...]:
    return tuple(str(text) for text in reader.each(name)) if reader.has(name) else ()


def _instant(reader: FieldReader, name: str) -> datetime:
    """Read a time with an offset, or a plain date, which needs no zone here."""
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


def _job(reader: FieldReader) -> Job:
    reader.finish(WORKLOAD_FIELDS)
    facts: dict[str, Any] = {
        "workload": Workload(**{name: reader.text(name, default="") for name in NAMED}),
        "team": reader.text("team", default=""), "at": _instant(reader, "start"),
        "gpu_seconds": reader.decimal("gpu_seconds", GPU_SECONDS),
        "minutes": reader.decimal("minutes", MEASURED_MINUTES), "coverage": _metric(reader, "coverage"),
    }  # fmt: skip
    facts["mfu"], facts["hfu"] = _measured(reader)
    return Job(reader.text("id"), reader.has("phases") or reader.has("tokens_per_second"), facts)


def _metric(reader: FieldReader, name: str) -> Decimal | None:
    return reader.decimal(name, METRIC) if reader.has(name) else None


def _measured(reader: FieldReader) -> tuple[Decimal | None, Decimal | None]:
    """Read MFU and HFU: as given, or the mean of phases (FM2: by GPU-seconds x dense peak), or from tokens/s (FS9)."""
    if not reader.has("phases"):
        phase = _phase(reader)
        return phase.mfu, phase.hfu
    for name in ("mfu", "hfu", "tokens_per_second"):
        reader.refuse_beside(name, "phases")
    phases = []
    for one in reader.mappings("phases", "a phase", required=True):
        one.finish(PHASE_FIELDS)
        one.number("gpu_seconds", GPU_SECONDS)
        phases.append(_phase(one, reader.fields.get("accelerator")))
    return _mean(phases, "mfu"), _mean(phases, "hfu")


@dataclass(frozen=True, slots=True)
class _Phase:
    """Measurements of a phase of one precision."""

    gpu_seconds: Fraction
    peak: Fraction | None
    mfu: Decimal | None
    hfu: Decimal | None


def _mean(phases: Sequence[_Phase], metric: str) -> Decimal | None:
    """Return the weighted mean; None where a phase lacks the metric or its peak."""
    values = [(one.gpu_seconds, one.peak, getattr(one, metric)) for one in phases]
    if any(peak is None or value is None for _, peak, value in values):
        return None
    mean = weighted_mean([(seconds, peak or Fraction(0), Fraction(value)) for seconds, peak, value in values])
    return None if mean is None else Decimal(exact_decimal(mean))


def _phase(reader: FieldReader, accelerator: Any = None) -> _Phase:
    seconds = exact_number(reader.fields.get("gpu_seconds")) or Fraction(0)
    mfu, hfu = _metric(reader, "mfu"), _metric(reader, "hfu")
    peak = _peak(reader, accelerator) if any(map(reader.has, RUN)) else None
    if not reader.has("tokens_per_second"):
        return _Phase(seconds, peak, mfu, hfu)
    for name in ("mfu", "hfu"):
        reader.refuse_beside(name, "tokens_per_second")
    rate, params = reader.number("tokens_per_second", TOKENS), reader.number("active_params", PARAMS)
    gpus, full = reader.number("gpus", GPUS), reader.choice("recomputation", ("none", "full"), "none") == "full"
    if rate is None or params is None or gpus is None or peak is None:
        return _Phase(seconds, peak, None, None)
    worked_out = mfu_of(tokens_per_second=rate, active_params=int(params), gpus=int(gpus), peak_flops=peak * TERA)
    recomputed = hfu_with_full_recomputation(worked_out) if full else worked_out
    return _Phase(seconds, peak, Decimal(exact_decimal(worked_out)), Decimal(exact_decimal(recomputed)))


def _peak(reader: FieldReader, accelerator: Any) -> Fraction | None:
    """Read dense TFLOP/s of one device: as given, or of accelerator and precision."""
    if reader.has("peak_tflops"):
        return reader.number("peak_tflops", PEAK)
    name, dtype = reader.text("accelerator", default=str(accelerator or "")), reader.text("dtype")
    return known_peak(reader, name, dtype) if dtype else None
