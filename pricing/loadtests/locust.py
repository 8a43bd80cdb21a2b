"""PURE: reader of Locust `<prefix>_stats.csv` into the own format.

Locust knows requests and milliseconds, not tokens. A script fires the rest as extra entries: type `metric` and the
names `ttft_ms` and `tpot_ms` (the response time is the latency), `input_tokens` and `output_tokens` (the content size is
the count of tokens). The offered rate and the duration are in no column: the script fires them as `offered_rps` and
`duration_s` with the content size as their value.
"""

import csv
from typing import Any, Final

from metering.messages import Message
from pricing.documents import DocumentError
from pricing.fields import exact_number, shown
from pricing.loadtests.rates import error_rate, number_or_given, per_second, present
from pricing.money import exact_decimal

HEADER: Final = ("Type", "Name", "Request Count", "Failure Count")
METRICS: Final = ("ttft_ms", "tpot_ms", "input_tokens", "output_tokens", "offered_rps", "duration_s")
PERCENTILE: Final = "99%"
SIZE: Final = "Average Content Size"


def is_report(text: str) -> bool:
    """Return True if the first line is the header of Locust."""
    return text.lstrip().replace('"', "", 2 * len(HEADER)).startswith(",".join(HEADER))


def own_format(text: str, name: str) -> dict[str, Any]:
    """Convert a report to one run.  Raises DocumentError where entries of tokens and latencies are missing."""
    rows = list(csv.DictReader(text.splitlines()))
    fired = {row["Name"]: row for row in rows if row.get("Type") == "metric"}
    # the Aggregated row would count every request twice
    requests = [row for row in rows if row.get("Type") not in ("metric", "", None) and row.get("Name") != "Aggregated"]
    absent = [metric for metric in METRICS if metric not in fired]
    if absent:
        raise DocumentError(Message(
            "%(name)s: Locust counts no tokens, fire entries of type metric named %(names)s",
            name=name, names=", ".join(absent),
        ))
    count, failed = (sum(_count(row, column, name) for row in requests) for column in ("Request Count", "Failure Count"))
    duration = number_or_given(fired["duration_s"].get(SIZE))
    run = {
        "offered_rps": number_or_given(fired["offered_rps"].get(SIZE)),
        "completed_rps": per_second(count - failed, duration),
        "input_tps": per_second(_total(fired["input_tokens"], name), duration),
        "output_tps": per_second(_total(fired["output_tokens"], name), duration),
        "ttft_p99_ms": fired["ttft_ms"].get(PERCENTILE),
        "tpot_p99_ms": fired["tpot_ms"].get(PERCENTILE),
        "error_rate": error_rate(completed=count - failed, failed=failed),
        "duration_s": duration,
    }
    return present({"runs": [run]})


def _count(row: dict[str, str], column: str, name: str) -> int:
    """Parse a count as Locust writes it.  Raises DocumentError: an unreadable count is not zero."""
    value = row.get(column) or ""
    if not value.isascii() or not value.isdigit():
        raise DocumentError(Message(
            "%(name)s: %(column)s of %(entry)s: %(value)s must be a whole number",
            name=name, column=column, entry=row.get("Name"), value=shown(value),
        ))
    return int(value)


def _total(row: dict[str, str], name: str) -> str | None:
    """Return the mean content size times the count of entries."""
    mean = exact_number(row.get(SIZE))
    return None if mean is None else exact_decimal(mean * _count(row, "Request Count", name))
