"""PURE: own format of a load test: the deployment, and one run per offered rate.

    {"accelerator", "gpus", "model", "engine", "precision", "runs": [{"offered_rps", "completed_rps", "input_tps",
     "cached_input_tps", "output_tps", "ttft_p99_ms", "tpot_p99_ms", "error_rate", "duration_s"}]}

Rates are of the whole deployment; `input_tps` counts all input, cached included; latencies are in milliseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from metering.messages import Message, UserError
from pricing.fields import Bound, FieldReader, InputError
from pricing.money import exact_decimal
from pricing.token_price import LoadPoint

GPUS: Final = Bound("1", "1e6", "GPUs of the whole deployment", whole=True)
TOKENS_PER_SECOND: Final = Bound("0", "1e12", "tokens/s of the whole deployment")
RUN: Final[dict[str, Bound]] = {
    "offered_rps": Bound("0", "1e9", "requests/s", "measure at a fixed rate, not as fast as possible", above_low=True),
    "completed_rps": Bound("0", "1e9", "requests/s"),
    "input_tps": TOKENS_PER_SECOND,
    "output_tps": TOKENS_PER_SECOND,
    "ttft_p99_ms": Bound("0", "1e8", "milliseconds"),
    "tpot_p99_ms": Bound("0", "1e8", "milliseconds"),
    "error_rate": Bound("0", "1", "ratio of requests", "2 % is 0.02"),
    "duration_s": Bound("0", "1e8", "seconds", above_low=True),
}
"""Required fields of a run."""

CACHED: Final = "cached_input_tps"
RUN_FIELDS: Final = (*tuple(RUN)[:3], CACHED, *tuple(RUN)[3:])
"""Fields of a run in the order in which people write them."""

NAMES: Final = ("accelerator", "model", "engine", "precision")


class LoadTestError(InputError):
    """Report without load points; `messages` has one line per bad field."""

    code = "load_test"


@dataclass(frozen=True)
class LoadRun:
    """Run as a load point, and its fields as they were given."""

    point: LoadPoint
    fields: dict[str, Any]


@dataclass(frozen=True)
class LoadTest:
    """Deployment under test and the runs. Runs apply to this deployment only: a change of any name makes them void."""

    accelerator: str
    gpus: int
    model: str
    engine: str
    precision: str
    runs: tuple[LoadRun, ...]

    @property
    def states_cached_input(self) -> bool:
        """Return True if every run states its cached input; where one does not, none is assumed."""
        return all(CACHED in run.fields for run in self.runs)

    def run_of(self, point: LoadPoint) -> LoadRun:
        """Return the run of a load point."""
        return next(run for run in self.runs if run.point == point)


class DeploymentsError(UserError, ValueError):
    """Reports that are not of the same deployment."""

    code = "load_test_deployments"


def parse_load_test(fields: object) -> LoadTest:
    """Check a report in the own format.  Raises LoadTestError with a message for every bad field at once."""
    reader = FieldReader(fields, "a load test")
    if reader.problems:
        raise LoadTestError(reader.problems)
    names = [reader.name(name) if name == "model" else reader.name(name, default="") for name in NAMES]
    gpus = reader.number("gpus", GPUS)
    runs = [_run(run) for run in reader.mappings("runs", "a run", required=True)]
    reader.finish([*NAMES, "gpus", "runs"])
    if reader.problems or gpus is None:
        raise LoadTestError(reader.problems)
    accelerator, model, engine, precision = names
    return LoadTest(accelerator, int(gpus), model, engine, precision, tuple(run for run in runs if run is not None))


def _run(reader: FieldReader) -> LoadRun | None:
    before = len(reader.problems)
    numbers = {field: reader.number(field, bound) for field, bound in RUN.items()}
    numbers[CACHED] = reader.number(CACHED, TOKENS_PER_SECOND, default="0")
    reader.finish(RUN_FIELDS)
    given = {field: number for field, number in numbers.items() if number is not None}
    if len(reader.problems) > before:
        return None
    _refuse_contradictions(reader, given)
    return LoadRun(LoadPoint(**given), {field: reader.fields[field] for field in RUN_FIELDS if reader.has(field)})


def _refuse_contradictions(reader: FieldReader, run: dict[str, Fraction]) -> None:
    if run[CACHED] > run["input_tps"]:
        reader.refuse(CACHED, Message(
            "%(value)s is above input_tps, which counts all input, cached included", value=exact_decimal(run[CACHED], 3)
        ))
    if run["completed_rps"] > run["offered_rps"] * Fraction(11, 10):
        reader.refuse("completed_rps", Message(
            "%(value)s is far above offered_rps", value=exact_decimal(run["completed_rps"], 3)
        ))


def merge_load_tests(tests: Sequence[LoadTest]) -> LoadTest:
    """Merge the runs of all reports into one load test.  Raises DeploymentsError."""
    refuse_differences(tests, (*NAMES, "gpus"))
    first, runs = tests[0], tuple(run for test in tests for run in test.runs)
    return LoadTest(first.accelerator, first.gpus, first.model, first.engine, first.precision, runs)


def refuse_differences(tests: Sequence[LoadTest], names: Sequence[str]) -> None:
    """Refuse reports that differ in one of these facts.  Raises DeploymentsError."""
    first = tests[0]
    for other in tests[1:]:
        for name in names:
            if getattr(other, name) != getattr(first, name):
                raise DeploymentsError(Message(
                    "the reports are not of one deployment: %(name)s is %(one)s and %(other)s",
                    name=name, one=repr(getattr(first, name)), other=repr(getattr(other, name)),
                ))


def gpus_of(tests: Sequence[LoadTest], run: LoadRun) -> int:
    """Return the GPUs of the report of a run: least squares takes reports of different ones."""
    return next(test.gpus for test in tests if any(one is run for one in test.runs))
