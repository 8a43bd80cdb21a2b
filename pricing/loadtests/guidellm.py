"""PURE: GuideLLM `benchmarks.json` -> own format, one run per benchmark at a fixed rate.

Each metric is split by the status of its requests; rates count successful requests only. TPOT is its
`inter_token_latency_ms`, (last token - first token) / (tokens - 1): its `time_per_output_token_ms` holds the first token.

Source: guidellm 0.8.1, schemas/base/request_stats.py.
"""

from collections.abc import Mapping
from typing import Any

from pricing.loadtests.rates import error_rate, number_or_given, present


def is_report(value: Any) -> bool:
    """Whether this is such an object."""
    return isinstance(value, Mapping) and isinstance(value.get("benchmarks"), list)


def own_format(report: Mapping[str, Any]) -> dict[str, Any]:
    """The runs at a fixed rate; synchronous and throughput benchmarks offer no rate and are left out."""
    benchmarks = [benchmark for benchmark in report["benchmarks"] if isinstance(benchmark, Mapping)]
    runs = [_run(benchmark) for benchmark in benchmarks if _rate(benchmark) is not None]
    return present({"model": _model(report, benchmarks), "runs": runs})


def _run(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    totals = _at(benchmark, "metrics", "request_totals")
    return {
        "offered_rps": _rate(benchmark),
        "completed_rps": _mean(benchmark, "requests_per_second"),
        "input_tps": _mean(benchmark, "prompt_tokens_per_second"),
        "output_tps": _mean(benchmark, "output_tokens_per_second"),
        "ttft_p99_ms": _at(benchmark, "metrics", "time_to_first_token_ms", "successful", "percentiles", "p99"),
        "tpot_p99_ms": _at(benchmark, "metrics", "inter_token_latency_ms", "successful", "percentiles", "p99"),
        "error_rate": error_rate(completed=_at(totals, "successful"), failed=_at(totals, "errored")),
        "duration_s": number_or_given(benchmark.get("duration")),
    }


def _rate(benchmark: Mapping[str, Any]) -> Any:
    for path in (("config", "strategy", "rate"), ("args", "strategy", "rate"), ("scheduler", "strategy", "rate")):
        rate = _at(benchmark, *path)
        if rate is not None:
            return rate
    return None


def _mean(benchmark: Mapping[str, Any], metric: str) -> Any:
    return number_or_given(_at(benchmark, "metrics", metric, "successful", "mean"))


def _model(report: Mapping[str, Any], benchmarks: list[Mapping[str, Any]]) -> Any:
    found = [_at(report, "args", "model"), *(_at(item, "config", "backend", "model") for item in benchmarks)]
    return next((model for model in found if isinstance(model, str)), None)


def _at(value: Any, *path: str) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
