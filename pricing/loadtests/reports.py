"""Reader of any load-test report into a document in the own format; the tool is recognised by its fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from metering.messages import Message
from pricing.documents import Document, DocumentError, parse_document, parse_json_lines, read_text
from pricing.fields import exact_number, shown
from pricing.loadtests import aiperf, engines, guidellm, locust
from pricing.loadtests.own import CACHED
from pricing.loadtests.rates import share_of
from pricing.money import exact_decimal

Reader = Callable[[Mapping[str, Any]], dict[str, Any]]

READERS: Final[tuple[tuple[Callable[[Any], bool], Reader], ...]] = (
    (engines.is_sglang, engines.of_sglang),
    (engines.is_vllm, engines.of_vllm),
    (aiperf.is_report, aiperf.own_format),
    (guidellm.is_report, guidellm.own_format),
)


@dataclass(frozen=True, slots=True)
class Supplement:
    """Facts that a report lacks. `cached_input_share`: the part of the input that came from the cache."""

    accelerator: str = ""
    gpus: Fraction | None = None
    model: str = ""
    error_rate: Fraction | None = None
    cached_input_share: Fraction | None = None

    def complete(self, fields: dict[str, Any], name: str) -> dict[str, Any]:
        """Fill in missing facts; the report's own facts stay.  Raises DocumentError where both differ."""
        given: dict[str, Any] = {"accelerator": self.accelerator, "model": self.model}
        if self.gpus is not None:
            given["gpus"] = str(self.gpus)
        for field, value in given.items():
            stated = fields.get(field)
            if value and stated and (exact_number(stated) != self.gpus if field == "gpus" else stated != value):
                raise DocumentError(Message(
                    "%(name)s: states %(field)s %(stated)s, but %(given)s was given beside it: "
                    "leave that out, or correct the report",
                    name=name, field=field, stated=shown(stated), given=value,
                ))
        for run in fields.get("runs", ()):
            if run.get("error_rate") is None and self.error_rate is not None:
                run["error_rate"] = exact_decimal(self.error_rate)
            if run.get(CACHED) is None and self.cached_input_share is not None:
                run[CACHED] = share_of(run.get("input_tps"), self.cached_input_share)
        return {**fields, **{name: value for name, value in given.items() if value and not fields.get(name)}}

    def unused(self, runs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the names of given facts that every run states by itself."""
        given = {"error_rate": (self.error_rate, "error_rate"), "cached_input_share": (self.cached_input_share, CACHED)}
        return [
            name for name, (value, field) in given.items()
            if value is not None and runs and all(run.get(field) is not None for run in runs)
        ]  # fmt: skip


def read_report(raw: bytes, name: str, extra: Supplement) -> Document:
    """Read a tool's report into the own format.  Raises DocumentError."""
    text = read_text(raw, name)
    if locust.is_report(text):
        return _completed(name, locust.own_format(text, name), extra)
    values = _values(raw, text, name)
    # SGLang is first: its reports may have `num_prompts`, by which vLLM is recognised, as well
    tool = next((own_format for matches, own_format in READERS if all(map(matches, values))), None)
    if tool is None:
        if len(values) > 1:
            raise DocumentError(Message(
                "%(name)s: holds %(values)s documents that are no report of a known tool", name=name, values=len(values)
            ))
        fields = values[0]
        return _completed(name, dict(fields), extra, text) if _is_own(fields) else Document(name, text, fields)
    try:
        parts = [tool(value) for value in values]
    except DocumentError as error:
        raise DocumentError(Message("%(field)s: %(text)s", field=name, text=error)) from error
    return _completed(name, {**_one_deployment(name, parts), "runs": [run for part in parts for run in part["runs"]]}, extra)


def _one_deployment(name: str, parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the deployment that all lines of a file name.  Raises DocumentError where two differ."""
    first = parts[0]
    for other in parts[1:]:
        for field in sorted({*first, *other} - {"runs"}):
            if first.get(field) != other.get(field):
                raise DocumentError(Message("%(field)s: %(text)s", field=name, text=Message(
                    "the reports are not of one deployment: %(name)s is %(one)s and %(other)s",
                    name=field, one=repr(first.get(field)), other=repr(other.get(field)),
                )))
    return first


def _completed(name: str, reported: dict[str, Any], extra: Supplement, text: str = "") -> Document:
    """Complete a report and note its gaps.

    The price notes unknown cached input, since unknown is not zero, and facts that were given but not used.
    """
    unused = extra.unused(reported["runs"])
    fields = extra.complete(reported, name)
    runs = fields["runs"]
    silent = sum(1 for run in runs if run.get(CACHED) is None)
    note = (
        f"{name}: does not state cached input of {silent} of {len(runs)} runs: it is priced as uncached; give "
        "cached_input_share, 0 where nothing came from the cache"
    )
    ignored = [f"{name}: states {field} of every run by itself: what was given beside it is not used" for field in unused]
    return Document(name, text, fields, (*([note] if silent else []), *ignored))


def _values(raw: bytes, text: str, name: str) -> list[Any]:
    """Parse the one document of the file, or one per line (reports that tools append to)."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and all(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in lines):
        return parse_json_lines(text, name)
    if name.lower().endswith((".jsonl", ".ndjson")):
        return parse_json_lines(text, name)
    return [parse_document(raw, name).value]


def _is_own(fields: Any) -> bool:
    return isinstance(fields, dict) and isinstance(fields.get("runs"), list) and all(
        isinstance(run, dict) for run in fields["runs"]
    )
