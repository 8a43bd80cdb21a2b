"""`efficiency FILE`: policy and workloads -> multiplier and reason of each workload."""

import argparse
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from pricing.commands.files import OK, problems_of, read_document, table, write_json, write_lines
from pricing.efficiency import EfficiencyPolicy, Verdict, judge, judge_linear
from pricing.fields import Bound, FieldReader, InputError

HELP = "samples + policy -> MFU, HFU, multiplier and reason of each workload"
RATIO: Final = Bound("0", "1", "ratio", "20 % is 0.20")
MINUTES: Final = Bound("0", "1e6", "minutes", whole=True)
MEASURED_MINUTES: Final = Bound("0", "1e9", "minutes")
GPU_SECONDS: Final = Bound("0", "1e15", "GPU-seconds")
METRIC: Final = Bound("-1e6", "1e6", "ratio, out of 0 to 1 it is a data error")
METRICS: Final = ("coverage", "mfu", "hfu")
ALWAYS: Final = datetime(2000, 1, 1, tzinfo=UTC)
POLICY_FIELDS: Final = (
    "name", "valid_from", "hfu_below", "penalty", "mfu_above", "reward", "min_minutes", "min_coverage",
)  # fmt: skip
WORKLOAD_FIELDS: Final = ("id", "gpu_seconds", "minutes", "coverage", "mfu", "hfu")


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
    verdict_of = judge_linear if arguments.linear else judge
    verdicts = [(name, verdict_of(policy, **facts)) for name, facts in workloads]
    if arguments.json:
        rows = [
            {"id": name, "multiplier": multiplier_text(verdict), "reason": verdict.reason} for name, verdict in verdicts
        ]
        write_json({"policy": policy.name, "workloads": rows})
    else:
        shown = [tuple("-" if facts[name] is None else str(facts[name]) for name in METRICS) for _, facts in workloads]
        lines = [(name, *facts, multiplier_text(v), v.reason) for (name, v), facts in zip(verdicts, shown, strict=True)]
        write_lines(table([("workload", *METRICS, "multiplier", "reason"), *lines], left=(0, 5)))
    return OK


def multiplier_text(verdict: Verdict) -> str:
    """A multiplier without trailing zeros: 1.2, 1, 0.9."""
    text = format(verdict.multiplier, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def parse_efficiency(fields: object) -> tuple[EfficiencyPolicy, list[tuple[str, dict[str, Any]]]]:
    """Policy, and (id, facts for `judge`) of each workload.  Raises InputError with a message for every bad field."""
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
    bounds = {field: value for field, value in ratios.items() if value is not None}
    if len(bounds) == len(ratios) and bounds["hfu_below"] > bounds["mfu_above"]:
        reader.refuse("hfu_below", f"{bounds['hfu_below']} must not be above mfu_above {bounds['mfu_above']}")
    if len(reader.problems) > before or minutes is None or coverage is None:
        return None
    return EfficiencyPolicy(
        name, valid_from, bounds["hfu_below"], bounds["penalty"], bounds["mfu_above"], bounds["reward"], int(minutes),
        coverage,
    )  # fmt: skip


def _instant(reader: FieldReader) -> datetime:
    """When the policy begins; every workload of the file is judged by it, so a plain date needs no zone here."""
    text = reader.text("valid_from", default=ALWAYS.isoformat())
    with suppress(ValueError):
        instant = datetime.fromisoformat(f"{text}T00:00:00+00:00" if len(text) == len("2026-10-01") else text)
        if instant.tzinfo is not None:
            return instant
    if text:
        reader.refuse("valid_from", f"{text!r} must be a time with an offset such as 2026-10-01T00:00:00+08:00")
    return ALWAYS


def _workload(reader: FieldReader, index: int) -> tuple[str, dict[str, Any]]:
    if not reader.is_mapping:
        return str(index), {}
    reader.finish(WORKLOAD_FIELDS)
    facts: dict[str, Any] = {
        "gpu_seconds": _decimal(reader, "gpu_seconds", GPU_SECONDS),
        "minutes": _decimal(reader, "minutes", MEASURED_MINUTES),
    }
    for name in METRICS:
        facts[name] = _decimal(reader, name, METRIC) if reader.has(name) else None
    return reader.text("id"), facts


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
            reader.nested({}, "a workload", "workloads", index).refuse("id", f"{name!r} is there twice")
