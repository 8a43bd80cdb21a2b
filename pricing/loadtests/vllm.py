"""PURE: vLLM `bench serve --save-result` (one JSON object, or one per line with `--append-result`) -> own format.

The report names no accelerator and no GPU count; `--metadata accelerator=... gpus=...` puts them in.
"""

from collections.abc import Mapping
from typing import Any

from pricing.loadtests.rates import error_rate, number_or_given, per_second, present


def is_report(value: Any) -> bool:
    """Whether this is such an object."""
    return isinstance(value, Mapping) and "total_input_tokens" in value and "num_prompts" in value


def own_format(report: Mapping[str, Any]) -> dict[str, Any]:
    """One run. `request_rate` may be "inf": then nothing was sustained, and the own format refuses it."""
    completed, sent = report.get("completed"), report.get("num_prompts")
    run = {
        "offered_rps": report.get("request_rate"),
        "completed_rps": number_or_given(report.get("request_throughput")),
        "input_tps": per_second(report.get("total_input_tokens"), report.get("duration")),
        "output_tps": per_second(report.get("total_output_tokens"), report.get("duration")),
        "ttft_p99_ms": report.get("p99_ttft_ms"),
        "tpot_p99_ms": report.get("p99_tpot_ms"),
        "error_rate": error_rate(completed=completed, sent=sent, failed=report.get("failed")),
        "duration_s": report.get("duration"),
    }
    names = {name: report.get(name) for name in ("accelerator", "gpus", "precision")}
    return present({**names, "model": report.get("model_id"), "engine": "vllm", "runs": [run]})
