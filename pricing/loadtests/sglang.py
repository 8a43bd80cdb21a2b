"""PURE: SGLang `bench_serving` (one JSON object per line) -> own format.

The report counts completed requests only. Failed ones are known where `num_prompts` or the list of `errors` is in it.
"""

from collections.abc import Mapping
from typing import Any

from pricing.loadtests.rates import error_rate, number_or_given, per_second, present


def is_report(value: Any) -> bool:
    """Whether this is such an object."""
    marks = ("total_output_tokens_retokenized", "random_range_ratio", "server_info")
    return isinstance(value, Mapping) and "total_input_tokens" in value and any(mark in value for mark in marks)


def own_format(report: Mapping[str, Any]) -> dict[str, Any]:
    """One run, with cached input where the cache report was asked for."""
    duration = report.get("duration")
    cache = report.get("cache_report")
    cached = cache.get("total_cached_tokens") if isinstance(cache, Mapping) else None
    errors = report.get("errors")
    failed = sum(1 for error in errors if error) if isinstance(errors, list) else report.get("failed")
    run = {
        "offered_rps": report.get("request_rate"),
        "completed_rps": number_or_given(report.get("request_throughput")),
        "input_tps": per_second(report.get("total_input_tokens"), duration),
        "cached_input_tps": per_second(cached, duration),
        "output_tps": per_second(report.get("total_output_tokens"), duration),
        "ttft_p99_ms": report.get("p99_ttft_ms"),
        "tpot_p99_ms": report.get("p99_tpot_ms"),
        "error_rate": error_rate(completed=report.get("completed"), sent=report.get("num_prompts"), failed=failed),
        "duration_s": duration,
    }
    server = report.get("server_info")
    model = server.get("model_path") if isinstance(server, Mapping) else None
    return present({"model": report.get("model_id") or model, "engine": "sglang", "runs": [run]})
