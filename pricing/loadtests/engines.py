"""PURE: readers of the benchmarks of vLLM and SGLang into the own format. Both write the same flat object per run.

vLLM `bench serve --save-result` (one JSON object, or one per line with `--append-result`) names no accelerator and no GPU
count; `--metadata accelerator=... gpus=...` adds them. SGLang `bench_serving` (one object per line) counts completed
requests only: failed ones are known where it has `num_prompts` or the list of `errors`.
"""

from collections.abc import Mapping
from typing import Any

from pricing.loadtests.rates import error_rate, number_or_given, per_second, present


def is_vllm(value: Any) -> bool:
    """Return True for a report of vLLM."""
    return isinstance(value, Mapping) and "total_input_tokens" in value and "num_prompts" in value


def is_sglang(value: Any) -> bool:
    """Return True for a report of SGLang."""
    marks = ("total_output_tokens_retokenized", "random_range_ratio", "server_info")
    return isinstance(value, Mapping) and "total_input_tokens" in value and any(mark in value for mark in marks)


def of_vllm(report: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a report of vLLM to one run, with the names in its metadata."""
    names = {name: report.get(name) for name in ("accelerator", "gpus", "precision")}
    run = _run(report, report.get("failed"))
    return present({**names, "model": report.get("model_id"), "engine": "vllm", "runs": [run]})


def of_sglang(report: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a report of SGLang to one run, with cached input where the cache report was asked for."""
    errors, cache, server = (report.get(name) for name in ("errors", "cache_report", "server_info"))
    run = _run(report, sum(1 for error in errors if error) if isinstance(errors, list) else report.get("failed"))
    if isinstance(cache, Mapping):
        run["cached_input_tps"] = per_second(cache.get("total_cached_tokens"), report.get("duration"))
    model = server.get("model_path") if isinstance(server, Mapping) else None
    return present({"model": report.get("model_id") or model, "engine": "sglang", "runs": [run]})


def _run(report: Mapping[str, Any], failed: Any) -> dict[str, Any]:
    """Convert one flat object. `request_rate` may be "inf": no sustained rate, and the own format refuses it.

    Both tools write a time to first token of 0 where the server did not stream: it was not measured.
    """
    duration = report.get("duration")
    return {
        "offered_rps": report.get("request_rate"),
        "completed_rps": number_or_given(report.get("request_throughput")),
        "input_tps": per_second(report.get("total_input_tokens"), duration),
        "output_tps": per_second(report.get("total_output_tokens"), duration),
        "ttft_p99_ms": report.get("p99_ttft_ms") or None,
        "tpot_p99_ms": report.get("p99_tpot_ms"),
        "error_rate": error_rate(completed=report.get("completed"), sent=report.get("num_prompts"), failed=failed),
        "duration_s": duration,
    }
