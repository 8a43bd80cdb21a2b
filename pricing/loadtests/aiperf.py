"""PURE: reader of AIPerf (and GenAI-Perf) `profile_export_aiperf.json` into the own format.

Each metric is an object of statistics with its unit; `inter_token_latency` is the mean gap of a request, TPOT in other
tools. Token counts are those of the server, as on a bill, where they are higher: the tool counts a prompt without the
server's template, and some APIs leave cached input out of their count.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from pricing.fields import exact_number
from pricing.loadtests.rates import as_text, error_rate, number_or_given, per_second, present

MILLISECONDS: Final = {
    "ms": Fraction(1), "sec": Fraction(1000), "s": Fraction(1000), "us": Fraction(1, 1000), "ns": Fraction(1, 10**6),
}  # fmt: skip


def is_report(value: Any) -> bool:
    """Return True for a report of AIPerf."""
    return isinstance(value, Mapping) and isinstance(value.get("time_to_first_token"), Mapping)


def own_format(report: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a report to one run, at the request rate of its configuration."""
    duration = _milliseconds(report, "benchmark_duration", "avg")
    seconds = None if duration is None else duration / 1000
    run = {
        "offered_rps": _request_rate(report.get("input_config")),
        "completed_rps": number_or_given(_statistic(report, "request_throughput", "avg")),
        "input_tps": _larger(
            per_second(_statistic(report, "total_isl", "avg"), seconds), _served(report, "prompt", seconds)
        ),
        "cached_input_tps": per_second(_statistic(report, "total_usage_prompt_cache_read_tokens", "avg"), seconds),
        "output_tps": _larger(
            number_or_given(_statistic(report, "output_token_throughput", "avg")), _served(report, "completion", seconds)
        ),
        "ttft_p99_ms": as_text(_milliseconds(report, "time_to_first_token", "p99")),
        "tpot_p99_ms": as_text(_milliseconds(report, "inter_token_latency", "p99")),
        "error_rate": error_rate(
            completed=_statistic(report, "request_count", "avg"),
            # AIPerf leaves the count of errors out where there were none
            failed=_statistic(report, "error_request_count", "avg") or 0,
        ),
        "duration_s": as_text(seconds),
    }
    return present({"model": _model(report.get("input_config")), "runs": [run]})


def _statistic(report: Mapping[str, Any], metric: str, name: str) -> Any:
    statistics = report.get(metric)
    return statistics.get(name) if isinstance(statistics, Mapping) else None


def _served(report: Mapping[str, Any], kind: str, seconds: Fraction | None) -> str | None:
    """Return tokens per second by the usage objects of the server's answers."""
    return per_second(_statistic(report, f"total_usage_{kind}_tokens", "avg"), seconds)


def _larger(measured: Any, served: str | None) -> Any:
    """Return the larger of two rates, or the one that is known."""
    own, other = exact_number(measured), exact_number(served)
    return served if other is not None and (own is None or own < other) else measured


def _milliseconds(report: Mapping[str, Any], metric: str, name: str) -> Fraction | None:
    number, factor = exact_number(_statistic(report, metric, name)), MILLISECONDS.get(_statistic(report, metric, "unit"))
    return None if number is None or factor is None else number * factor


def _request_rate(config: Any) -> Any:
    """Return the rate of the load generator, or of the measured phase (newer configurations)."""
    if not isinstance(config, Mapping):
        return None
    loadgen = config.get("loadgen")
    if isinstance(loadgen, Mapping) and loadgen.get("request_rate") is not None:
        return loadgen["request_rate"]
    phases = config.get("phases")
    named = phases.get("profiling") if isinstance(phases, Mapping) else None
    listed = [phase for phase in phases if isinstance(phase, Mapping)] if isinstance(phases, list) else []
    measured = [named] if isinstance(named, Mapping) else [phase for phase in listed if phase.get("name") != "warmup"]
    return measured[0].get("rate") if len(measured) == 1 else None


def _model(config: Any) -> Any:
    for section in ("endpoint", "models"):
        given = config.get(section) if isinstance(config, Mapping) else None
        for name in ("model_names", "items"):
            models = given.get(name) if isinstance(given, Mapping) else None
            if isinstance(models, list) and len(models) == 1:
                return models[0].get("name") if isinstance(models[0], Mapping) else models[0]
    return None
