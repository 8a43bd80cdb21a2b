"""PURE: reader of GuideLLM `benchmarks.json` into the own format, one run per benchmark at a fixed rate.

Each metric is split by the status of its requests; rates count successful requests only. TPOT is its
`inter_token_latency_ms`, (last token - first token) / (tokens - 1): its `time_per_output_token_ms` includes the first token.

Cached input has no metric of its own: a report states it per request, in
`requests.successful[].input_metrics.cached_tokens`, where the server counts it. A server that counts omits misses
(vLLM with `--enable-prompt-tokens-details`), so one count means that the others are zero.

Source: guidellm 0.8.1, schemas/base/request_stats.py; cached tokens: github.com/vllm-project/guidellm/pull/994.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from metering.messages import Message
from pricing.documents import DocumentError
from pricing.fields import exact_number
from pricing.loadtests.rates import error_rate, number_or_given, present, share_of


def is_report(value: Any) -> bool:
    """Return True for a report of GuideLLM."""
    return isinstance(value, Mapping) and isinstance(value.get("benchmarks"), list)


def own_format(report: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the benchmarks at a fixed rate; others have no rate and are left out.  Raises DocumentError without any."""
    benchmarks = [benchmark for benchmark in report["benchmarks"] if isinstance(benchmark, Mapping)]
    at_a_rate = [benchmark for benchmark in benchmarks if _strategy(benchmark, "rate") is not None]
    if not at_a_rate:
        raise DocumentError(_no_rate(benchmarks))
    counted = any(_cached(request) is not None for benchmark in at_a_rate for request in _requests(benchmark))
    return present({"model": _model(report, benchmarks), "runs": [_run(one, counted) for one in at_a_rate]})


def _no_rate(benchmarks: list[Mapping[str, Any]]) -> Message:
    if not benchmarks:
        return Message("%(field)s: %(text)s", field="benchmarks", text=Message("is an empty list"))
    kinds = ", ".join(sorted({str(_strategy(benchmark, "type_") or "unknown") for benchmark in benchmarks}))
    return Message(
        "benchmarks of kind %(kinds)s offer no fixed rate of requests: measure with the profile constant or poisson",
        kinds=kinds,
    )


def _run(benchmark: Mapping[str, Any], counted: bool) -> dict[str, Any]:
    totals = _at(benchmark, "metrics", "request_totals")
    input_tps = _mean(benchmark, "prompt_tokens_per_second")
    return {
        "offered_rps": _strategy(benchmark, "rate"),
        "completed_rps": _mean(benchmark, "requests_per_second"),
        "input_tps": input_tps,
        "cached_input_tps": share_of(input_tps, _cached_share(benchmark) if counted else None),
        "output_tps": _mean(benchmark, "output_tokens_per_second"),
        "ttft_p99_ms": _at(benchmark, "metrics", "time_to_first_token_ms", "successful", "percentiles", "p99"),
        "tpot_p99_ms": _at(benchmark, "metrics", "inter_token_latency_ms", "successful", "percentiles", "p99"),
        "error_rate": error_rate(completed=_at(totals, "successful"), failed=_at(totals, "errored")),
        "duration_s": number_or_given(benchmark.get("duration")),
    }


def _cached_share(benchmark: Mapping[str, Any]) -> Fraction | None:
    """Return cached over all input of the measured requests; None unless every one of them is listed with its tokens."""
    requests = [request for request in _requests(benchmark) if _measured(request, benchmark)]
    if len(requests) != _at(benchmark, "metrics", "request_totals", "successful"):
        return None
    prompts = [exact_number(_at(request, "input_metrics", "total_tokens")) for request in requests]
    # a server that counts leaves a miss out, so a missing count is 0 (see above)
    hits = [exact_number(0 if _cached(request) is None else _cached(request)) for request in requests]
    total = sum((tokens for tokens in prompts if tokens is not None), Fraction(0))
    cached = sum((tokens for tokens in hits if tokens is not None), Fraction(0))
    whole = None not in prompts and None not in hits and min([Fraction(0), *filter(None, hits)]) == 0
    return cached / total if whole and total else None


def _requests(benchmark: Mapping[str, Any]) -> list[Any]:
    listed = _at(benchmark, "requests", "successful")
    return listed if isinstance(listed, list) else []


def _cached(request: Any) -> Any:
    return _at(request, "input_metrics", "cached_tokens")


def _measured(request: Any, benchmark: Mapping[str, Any]) -> bool:
    """Return True if a request is within the measured time: neither warm-up nor cool-down."""
    began, ended = (exact_number(_at(request, name)) for name in ("request_start_time", "request_end_time"))
    start, end = (exact_number(benchmark.get(name)) for name in ("start_time", "end_time"))
    return (ended is None or start is None or ended >= start) and (began is None or end is None or began <= end)


def _strategy(benchmark: Mapping[str, Any], field: str) -> Any:
    for section in ("config", "args", "scheduler"):
        found = _at(benchmark, section, "strategy", field)
        if found is not None:
            return found
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
