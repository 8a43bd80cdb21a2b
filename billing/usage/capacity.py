"""PURE: number of machines needed for a number of requests a day, from measurements of one machine.

Each figure is a formula over a plan and rates; each rate has the number of records it was measured with. A figure for a
month of more records is marked as a simulation. Only quantities that must be whole are rounded, always up.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from operator import add, mul, sub, truediv
from typing import Any, Final, Literal

Basis = Literal["plan", "measured", "simulated", "assumed"]


class PlanError(ValueError):
    """Error of a plan that cannot be computed: its field, and the requirement."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Measured rate; `records`: number of records it was measured with, 0 if the rate is assumed."""

    value: Fraction
    unit: str
    records: int
    source: str


RATES: Final[Mapping[str, Rate]] = {
    "batch_us": Rate(Fraction("8.4"), "us", 40_000, "processor time of a record in a report of 1,000"),
    "single_us": Rate(Fraction(219), "us", 40_000, "processor time of a record reported alone"),
    "copy_per_core_second": Rate(Fraction(108_724), "records/s", 40_000, "two writers of COPY on two cores"),
    "ledger_bytes": Rate(Fraction(119), "bytes", 10_000_000, "a record with its index, ids UUIDv7"),
    "log_bytes": Rate(Fraction(464), "bytes", 300_000, "write-ahead log of a record, ids UUIDv4"),
    "close_s": Rate(Fraction("3.16"), "s", 10_000_000, "a month of 1,000 teams; ten times the records took 1.03 times"),
    "archive_bytes": Rate(Fraction("64.3"), "bytes", 50_000_000, "a record in a seal, ids UUIDv4, counts at random"),
    "seal_per_second": Rate(Fraction(56_883), "records/s", 50_000_000, "usage_seal, one process, read back: 879 s"),
    "duckdb_per_core_second": Rate(Fraction(3_955_696), "records/s", 50_000_000, "recount of a seal in 12.6 core seconds"),
    "spark_per_core_second": Rate(Fraction(67_361), "records/s", 51_059_773, "recount by two workers of a core in 379 s"),
    "column_store_bytes": Rate(Fraction("64.8"), "bytes", 100_000_000, "a record in ClickHouse, of which 26.2 find keys"),
    "column_store_load": Rate(Fraction(469_417), "records/s", 100_000_000, "batches of 500,000, in 213 core seconds"),
    "column_store_sums": Rate(Fraction(27_624_309), "records/s", 100_000_000, "sums of every record in 3.62 core seconds"),
    "one_database_records": Rate(Fraction(3_200_000_000), "records", 0, "of a month that one PostgreSQL is meant to take"),
}  # fmt: skip
"""Rates of two shared cores; docs/capacity.md names their runs. `measured:` of a plan replaces the value of any."""
FIELDS: Final[Mapping[str, tuple[Fraction | None, Fraction, str]]] = {
    "requests_per_day": (None, Fraction(1), "requests of a day"),
    "peak_factor": (Fraction(4), Fraction(1), "the busiest second over the mean"),
    "single_share": (Fraction(0), Fraction(0), "share of records that are reported alone, 0 to 1"),
    "load": (Fraction(1, 2), Fraction(1, 100), "how much of a processor may be used at the peak, 0.01 to 1"),
    "cores_per_machine": (Fraction(32), Fraction(1), "cores of a machine"),
    "disk_tb_per_machine": (Fraction(15), Fraction(1, 100), "disk of a machine, in TB"),
    "months_in_database": (Fraction(120), Fraction(1), "months whose records are in the database; of older ones 40 bytes"),
    "months_in_archive": (Fraction(120), Fraction(1), "months that are kept sealed"),
    "recount_hours": (Fraction(8), Fraction(1, 100), "how long a recount may take"),
    "close_sums_minutes": (Fraction(15), Fraction(1, 100), "how long the sums of a close may take in a column store"),
    "replicas": (Fraction(2), Fraction(1), "copies of each shard of a column store"),
    "teams": (Fraction(1_000), Fraction(1), "teams with a bill"),
}  # fmt: skip
"""Default, least value and meaning of each field of a plan; the first is required."""
AT_MOST_ONE: Final = ("single_share", "load")


FORMULAS: Final[Mapping[str, tuple[str, str]]] = {
    "records_of_a_month": ("records", "31 * requests_per_day"),
    "records_per_second": ("records/s", "requests_per_day / 86400"),
    "peak_per_second": ("records/s", "records_per_second * peak_factor"),
    "us_of_a_record": ("us", "single_share * single_us + (1 - single_share) * batch_us"),
    "web_cores": ("cores", "ceil(peak_per_second * us_of_a_record / 1000000 / load)"),
    "web_machines": ("machines", "max(2, ceil(web_cores / cores_per_machine))"),
    "database_cores": ("cores", "ceil(peak_per_second / copy_per_core_second / load)"),
    "log_mb_per_second": ("MB/s", "peak_per_second * log_bytes / 1000000"),
    "ledger_tb_of_a_month": ("TB", "records_of_a_month * ledger_bytes / 1000000000000"),
    "ledger_tb": ("TB", "ledger_tb_of_a_month * months_in_database"),
    "months_until_a_table_is_full": ("months", "35184372088832 / (records_of_a_month * ledger_bytes)"),
    "share_of_one_database": ("", "records_of_a_month / one_database_records"),
    "close_seconds": ("s", "close_s * max(1, teams / 1000)"),
    "shards_by_disk": ("shards", "ceil(records_of_a_month * months_in_database * column_store_bytes / 1000000000000"
                                 " / disk_tb_per_machine)"),
    "shards_by_inserts": ("shards", "ceil(peak_per_second / column_store_load / cores_per_machine / load)"),
    "shards_by_sums": ("shards", "ceil(records_of_a_month / column_store_sums / cores_per_machine"
                                 " / (close_sums_minutes * 60))"),
    "column_store_machines": ("machines", "max(shards_by_disk, shards_by_inserts, shards_by_sums) * replicas"),
    "archive_tb_of_a_month": ("TB", "records_of_a_month * archive_bytes / 1000000000000"),
    "archive_tb": ("TB", "archive_tb_of_a_month * months_in_archive"),
    "seal_hours": ("h", "records_of_a_month / seal_per_second / 3600"),
    "recount_hours_alone": ("h", "records_of_a_month / duckdb_per_core_second / cores_per_machine / 3600"),
    "spark_cores": ("cores", "ceil(records_of_a_month / spark_per_core_second / 3600 / recount_hours)"),
    "spark_machines": ("machines", "ceil(spark_cores / cores_per_machine)"),
}  # fmt: skip
"""Unit and formula of each figure, in names of fields, rates and earlier figures. An unpartitioned table of PostgreSQL
has at most 2 ** 45 bytes.
"""
OF_COLUMN_STORE: Final = ("shards_by_disk", "shards_by_inserts", "shards_by_sums", "column_store_machines")
"""Figures given only if a month has more records than one database is meant to take."""
OPERATORS: Final[Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Mult: mul, ast.Div: truediv, ast.Add: add, ast.Sub: sub,
}  # fmt: skip
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"ceil": ceil, "max": max}


@dataclass(frozen=True, slots=True)
class Plan:
    """Fields of a plan, and its rates."""

    fields: Mapping[str, Fraction]
    rates: Mapping[str, Rate]


@dataclass(frozen=True, slots=True)
class Figure:
    """Result with its formula in names of fields, rates and figures, and its basis (measured or extrapolated)."""

    name: str
    value: Fraction
    unit: str
    formula: str
    basis: Basis


def plan_read(document: object) -> Plan:
    """Return the plan in a parsed YAML or JSON document.  Raises PlanError."""
    if not isinstance(document, dict):
        raise PlanError("a plan is a mapping of fields, such as `requests_per_day: 10000000`")
    given = {str(name): value for name, value in document.items()}
    own = given.pop("measured", None) or {}
    if not isinstance(own, dict):
        raise PlanError("measured: must be a mapping of rates")
    if unknown := sorted((given.keys() - FIELDS.keys()) | (own.keys() - RATES.keys())):
        there = f"{', '.join(FIELDS)}, and in measured {', '.join(RATES)}"
        raise PlanError(f"{unknown[0]}: is unknown; there are {there}")
    fields = {}
    for name, (default, least, meaning) in FIELDS.items():
        value = _number(name, given[name]) if name in given else default
        if value is None:
            raise PlanError(f"{name}: is missing ({meaning})")
        if value < least or (name in AT_MOST_ONE and value > 1):
            most = " and at most 1" if name in AT_MOST_ONE else ""
            raise PlanError(f"{name}: must be at least {float(least):g}{most} ({meaning})")
        fields[name] = value
    rates = dict(RATES)
    for name, value in own.items():
        number, rate = _number(f"measured: {name}", value), RATES[name]
        if number <= 0:
            raise PlanError(f"measured: {name}: must be above 0")
        rates[name] = Rate(number, rate.unit, rate.records, "of the plan")
    return Plan(fields, rates)


def _number(name: str, value: Any) -> Fraction:
    try:
        # through text: a float of YAML keeps the decimals that were written
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError) as error:
        raise PlanError(f"{name}: {str(value)[:40]!r} is no number") from error


def figures(plan: Plan) -> list[Figure]:
    """Return every figure of a plan, each after the figures it depends on."""
    known = {**plan.fields, **{name: rate.value for name, rate in plan.rates.items()}}
    behind: dict[str, frozenset[str]] = {}
    found = []
    for name, (unit, formula) in FORMULAS.items():
        tree = ast.parse(formula, mode="eval").body
        # `behind`: all names that a figure depends on, also through other figures; they decide its basis
        names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        behind[name] = names.union(*(behind.get(other, frozenset()) for other in names))
        if name in OF_COLUMN_STORE and known["records_of_a_month"] <= known["one_database_records"]:
            continue
        known[name] = _value(tree, known)
        rates = [rate for other, rate in plan.rates.items() if other in behind[name]]
        found.append(Figure(name, known[name], unit, formula, _basis(rates, known["records_of_a_month"])))
    return found


def _basis(rates: Sequence[Rate], records: Fraction) -> Basis:
    if not rates:
        return "plan"
    if any(not rate.records for rate in rates):
        return "assumed"
    return "measured" if all(records <= rate.records for rate in rates) else "simulated"


def _value(node: ast.expr, known: Mapping[str, Fraction]) -> Fraction:
    # no eval: a formula has whole numbers, names, four operators and two functions
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.Name(id=name):
            return known[name]
        case ast.BinOp(left=left, op=operator, right=right):
            return OPERATORS[type(operator)](_value(left, known), _value(right, known))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return Fraction(FUNCTIONS[name](*(_value(argument, known) for argument in arguments)))
    raise PlanError(f"no formula: {ast.unparse(node)}")


def shown(value: Fraction) -> str:
    """Format a whole number as it is, another one with two decimals.

    >>> shown(Fraction(3_100_000_000)), shown(Fraction(25, 3))
    ('3,100,000,000', '8.33')
    """
    return f"{int(value):,}" if value.denominator == 1 else f"{float(value):,.2f}"
