"""Readers of load-test reports: every tool's file becomes the own format, and nothing is guessed."""

import json
from fractions import Fraction
from typing import Any

import pytest

from pricing.documents import DocumentError
from pricing.loadtests.own import LoadTest, LoadTestError, parse_load_test
from pricing.loadtests.reports import Supplement, read_report
from pricing.token_price import LoadPoint

DEPLOYMENT = Supplement(accelerator="NVIDIA-H800", gpus=Fraction(8), model="llama-3-8b", error_rate=None)
POINT = LoadPoint(
    offered_rps=Fraction(5), completed_rps=Fraction("4.99"), input_tps=Fraction(5000), output_tps=Fraction(500),
    ttft_p99_ms=Fraction(410), tpot_p99_ms=Fraction(38), error_rate=Fraction("0.002"), duration_s=Fraction(600),
)  # fmt: skip

VLLM = {
    "date": "20261001-120000", "backend": "vllm", "model_id": "llama-3-8b", "num_prompts": 3000, "request_rate": 5.0,
    "max_concurrency": None, "duration": 600.0, "completed": 2994, "failed": 6, "total_input_tokens": 3_000_000,
    "total_output_tokens": 300_000, "request_throughput": 4.99, "output_throughput": 500.0, "p99_ttft_ms": 410.0,
    "p99_tpot_ms": 38.0, "p99_itl_ms": 90.0, "accelerator": "NVIDIA-H800", "gpus": "8",
}  # fmt: skip
SGLANG = {
    "tag": None, "backend": "sglang", "dataset_name": "random", "request_rate": 5.0, "random_range_ratio": 1.0,
    "duration": 600.0, "completed": 2994, "total_input_tokens": 3_000_000, "total_output_tokens": 300_000,
    "total_output_tokens_retokenized": 299_000, "request_throughput": 4.99, "p99_ttft_ms": 410.0, "p99_tpot_ms": 38.0,
    "errors": [""] * 2994 + ["timeout"] * 6, "server_info": {"model_path": "llama-3-8b"},
}  # fmt: skip
AIPERF = {
    "schema_version": "1.4", "request_throughput": {"unit": "requests/sec", "avg": 4.99},
    "request_count": {"unit": "requests", "avg": 2994.0}, "error_request_count": {"unit": "requests", "avg": 6.0},
    "time_to_first_token": {"unit": "ms", "avg": 200.0, "p99": 410.0},
    "inter_token_latency": {"unit": "ms", "avg": 30.0, "p99": 38.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 500.0}, "total_isl": {"unit": "tokens", "avg": 3_000_000.0},
    "benchmark_duration": {"unit": "sec", "avg": 600.0},
    "input_config": {"endpoint": {"model_names": ["llama-3-8b"]}, "loadgen": {"request_rate": 5.0}},
}  # fmt: skip


def guidellm(rate: float | None) -> dict[str, Any]:
    def split(**statistics: Any) -> dict[str, Any]:
        return {"successful": statistics, "errored": {"mean": 0.0}, "incomplete": {"mean": 0.0}, "total": {"mean": 9.9}}

    strategy = {"type_": "poisson", "rate": rate} if rate else {"type_": "throughput"}
    return {
        "config": {"strategy": strategy, "backend": {"model": "llama-3-8b"}}, "duration": 600.0,
        "metrics": {
            "request_totals": {"successful": 2994, "errored": 6, "incomplete": 3, "total": 3003},
            "requests_per_second": split(mean=4.99), "prompt_tokens_per_second": split(mean=5000.0),
            "output_tokens_per_second": split(mean=500.0),
            "time_to_first_token_ms": split(mean=200.0, percentiles={"p50": 190.0, "p99": 410.0}),
            "inter_token_latency_ms": split(mean=30.0, percentiles={"p99": 38.0}),
            "time_per_output_token_ms": split(mean=32.0, percentiles={"p99": 44.0}),
        },
    }  # fmt: skip


HEADER = (
    "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,Min Response Time,Max Response Time,"
    "Average Content Size,Requests/s,Failures/s,50%,66%,75%,80%,90%,95%,98%,99%,99.9%,99.99%,100%"
)


def locust_row(kind: str, name: str, count: int, failed: int, size: str, p99: int) -> str:
    return f"{kind},{name},{count},{failed},1,1,1,1,{size},0,0,1,1,1,1,1,1,1,{p99},1,1,1"


LOCUST = "\n".join(
    [
        HEADER, locust_row("POST", "/v1/chat/completions", 3000, 6, "900", 9000),
        locust_row("metric", "ttft_ms", 2994, 0, "0", 410), locust_row("metric", "tpot_ms", 2994, 0, "0", 38),
        locust_row("metric", "input_tokens", 3000, 0, "1000.0", 0),
        locust_row("metric", "output_tokens", 3000, 0, "100.0", 0), locust_row("metric", "offered_rps", 1, 0, "5.0", 0),
        locust_row("metric", "duration_s", 1, 0, "600.0", 0), locust_row("", "Aggregated", 18000, 6, "1", 9000),
    ]
)  # fmt: skip


def read(content: Any, extra: Supplement = DEPLOYMENT, name: str = "report.json") -> LoadTest:
    text = content if isinstance(content, str) else json.dumps(content)
    return parse_load_test(read_report(text.encode(), name, extra).value)


@pytest.mark.parametrize(
    ("content", "engine"),
    [
        (VLLM, "vllm"), (SGLANG, "sglang"), (AIPERF, ""), (LOCUST, ""),
        ({"benchmarks": [guidellm(None), guidellm(5.0)]}, ""),
    ],
    ids=["vllm", "sglang", "aiperf", "locust", "guidellm"],
)  # fmt: skip
def test_the_report_of_every_tool_gives_the_same_load_point(content: Any, engine: str) -> None:
    test = read(content)
    assert (test.model, test.gpus, test.accelerator, test.engine) == ("llama-3-8b", 8, "NVIDIA-H800", engine)
    assert [run.point for run in test.runs] == [POINT]


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (Supplement(gpus=Fraction(16)), "gpus '8', but 16"), (Supplement(model="other"), "model 'llama-3-8b', but other"),
        (Supplement(accelerator="H20"), "accelerator 'NVIDIA-H800', but H20"),
    ],
    ids=["gpus", "model", "accelerator"],
)  # fmt: skip
def test_a_deployment_that_is_not_the_one_of_the_report_is_refused(extra: Supplement, says: str) -> None:
    with pytest.raises(DocumentError) as refused:
        read(VLLM, extra)
    assert str(refused.value) == (
        f"report.json: states {says} was given beside it: leave that out, or correct the report"
    )


def test_an_error_rate_does_not_replace_that_of_the_report_and_the_command_says_so() -> None:
    extra = Supplement(error_rate=Fraction(1, 2), cached_input_share=Fraction(0))
    assert read(VLLM, extra).runs[0].point.error_rate == Fraction("0.002")
    assert notes(VLLM, extra) == (
        "report.json: states error_rate of every run by itself: what was given beside it is not used",
    )


@pytest.mark.parametrize(("field", "other"), [("gpus", "4"), ("model_id", "llama-3-70b"), ("accelerator", "H20")])
def test_lines_of_one_file_are_of_one_deployment(field: str, other: str) -> None:
    """A run of 8 GPUs that was priced as one of 4 would cost half."""
    lines = [json.dumps({**VLLM, field: other, "request_rate": 2.0, "request_throughput": 2.0}), json.dumps(VLLM)]
    with pytest.raises(DocumentError) as refused:
        read("\n".join(lines), name="report.jsonl")
    name = field.removesuffix("_id")
    assert str(refused.value) == (
        f"report.jsonl: the reports are not of one deployment: {name} is {other!r} and {VLLM[field]!r}"
    )


@pytest.mark.parametrize("report", [VLLM, SGLANG])
def test_reports_that_a_tool_appends_to_hold_one_run_a_line(report: dict[str, Any]) -> None:
    lines = [json.dumps({**report, "request_rate": rate, "request_throughput": rate}) for rate in (1.0, 5.0)]
    assert [run.point.offered_rps for run in read("\n".join(lines) + "\n\n", name="report.jsonl").runs] == [1, 5]


def test_a_truncated_line_is_named() -> None:
    with pytest.raises(DocumentError, match=r"report\.jsonl line 2: ends in the middle"):
        read(json.dumps(VLLM) + '\n{"total_input_tokens": 5', name="report.jsonl")


def test_old_vllm_reports_count_failures_by_what_is_missing() -> None:
    old = {name: value for name, value in VLLM.items() if name != "failed"}
    assert read(old).runs[0].point.error_rate == Fraction("0.002")


def test_sglang_without_a_count_of_failures_is_not_free_of_them() -> None:
    silent = {name: value for name, value in SGLANG.items() if name != "errors"}
    with pytest.raises(LoadTestError, match=r"runs\[0\]\.error_rate: is missing"):
        read(silent)
    reported = Supplement("NVIDIA-H800", Fraction(8), "llama-3-8b", Fraction(1, 100))
    assert read(silent, reported).runs[0].point.error_rate == Fraction(1, 100)


def test_cached_input_is_read_where_it_was_reported() -> None:
    cached = {**SGLANG, "cache_report": {"total_prompt_tokens": 3_000_000, "total_cached_tokens": 1_800_000}}
    assert read(cached).runs[0].point.cached_input_tps == 3000
    usage = {**AIPERF, "total_usage_prompt_cache_read_tokens": {"unit": "tokens", "avg": 1_800_000}}
    assert read(usage).runs[0].point.cached_input_tps == 3000


def test_tokens_of_aiperf_are_those_that_the_server_counted_where_it_did() -> None:
    """The tool's own count of a prompt is without the chat template, 100 of 1,100 tokens here; bills are of all of them.

    1,800,000 cached of 3,300,000 leave 2500 tokens/s uncached, not 2000. Method R at 10 an hour on one GPU:
    10 x 10^6 / 3600 / (2500 + 300 + 4 x 550) is 0.555556 for 1M of input; by the tool's counts it was 0.645995.
    """
    counted = {"total_usage_prompt_tokens": 3_300_000, "total_usage_completion_tokens": 330_000,
               "total_usage_prompt_cache_read_tokens": 1_800_000}  # fmt: skip
    usage = {name: {"unit": "tokens", "avg": float(count)} for name, count in counted.items()}
    point = read({**AIPERF, **usage}).runs[0].point
    assert (point.input_tps, point.cached_input_tps, point.output_tps) == (5500, 3000, 550)
    beside = usage | {"total_usage_prompt_tokens": {"unit": "tokens", "avg": 1_500_000.0}}
    assert read({**AIPERF, **beside}).runs[0].point.input_tps == 5000, "an API that leaves cached input out of its count"


@pytest.mark.parametrize("report", [VLLM, SGLANG], ids=["vllm", "sglang"])
def test_a_first_token_after_no_time_was_not_measured(report: dict[str, Any]) -> None:
    """Both write 0 where the server did not stream: every load would keep the bound."""
    with pytest.raises(LoadTestError, match=r"runs\[0\]\.ttft_p99_ms: is missing"):
        read({**report, "p99_ttft_ms": 0.0})


@pytest.mark.parametrize("rate", ["inf", None])
def test_as_fast_as_possible_is_no_sustained_rate(rate: Any) -> None:
    with pytest.raises(LoadTestError, match=r"runs\[0\]\.offered_rps"):
        read({**VLLM, "request_rate": rate})


def test_seconds_of_aiperf_become_milliseconds() -> None:
    seconds = {**AIPERF, "time_to_first_token": {"unit": "sec", "p99": 0.41}}
    assert read(seconds).runs[0].point.ttft_p99_ms == 410
    with pytest.raises(LoadTestError, match="ttft_p99_ms: is missing"):
        read({**AIPERF, "time_to_first_token": {"unit": "fortnights", "p99": 0.41}})


@pytest.mark.parametrize(
    "phases", [[{"name": "warmup", "rate": 1.0}, {"name": "profiling", "rate": 5.0}], {"profiling": {"rate": 5.0}}]
)
def test_newer_aiperf_configurations_have_phases(phases: Any) -> None:
    config = {"models": {"items": [{"name": "llama-3-8b"}]}, "phases": phases}
    test = read({**AIPERF, "input_config": config}, Supplement("NVIDIA-H800", Fraction(8)))
    assert (test.model, test.runs[0].point.offered_rps) == ("llama-3-8b", 5)


def cached(counts: list[int | None], rate: float = 5.0, **window: float) -> dict[str, Any]:
    """A GuideLLM benchmark that lists its requests: 1000 input tokens each, of which so many came from the cache."""
    listed = [
        {"request_start_time": 100.0 + i, "request_end_time": 101.0 + i,
         "input_metrics": {"text_tokens": 1000, "total_tokens": 1000, "cached_tokens": count}}
        for i, count in enumerate(counts)
    ]  # fmt: skip
    found = {**guidellm(rate), "requests": {"successful": listed, "errored": [], "incomplete": []}, **window}
    found["metrics"]["request_totals"] = {"successful": 4, "errored": 0, "incomplete": 0, "total": 4}
    return found


def notes(content: Any, extra: Supplement = DEPLOYMENT) -> tuple[str, ...]:
    return read_report(json.dumps(content).encode(), "report.json", extra).notes


def test_cached_input_of_guidellm_is_that_of_its_requests() -> None:
    """1200 of 4000 tokens, of 5000 a second; a server that counts hits leaves the count of a miss out."""
    report = {"benchmarks": [cached([600, 600, None, 0])]}
    assert read(report).runs[0].point.cached_input_tps == 1500
    assert notes(report) == ()


def test_requests_of_the_warm_up_count_for_no_share() -> None:
    """Six are listed, four were measured: (600 + 600 + 0 + 0) of 4000 tokens, not (2000 + 1200) of 6000."""
    report = {"benchmarks": [cached([1000, 1000, 600, 600, 0, 0], start_time=102.5, end_time=200.0)]}
    assert read(report).runs[0].point.cached_input_tps == 1500


@pytest.mark.parametrize(
    "benchmark",
    [guidellm(5.0), cached([None] * 4), cached([600]), {**cached([600] * 4), "requests": None}, cached([600, 600, 600, -1])],
    ids=["no requests", "no counts", "a sample", "requests are null", "no count of tokens"],
)
def test_where_guidellm_does_not_state_its_cached_input_the_price_says_so(benchmark: dict[str, Any]) -> None:
    report = {"benchmarks": [benchmark]}
    assert notes(report) == (
        "report.json: does not state cached input of 1 of 1 runs: it is priced as uncached; give cached_input_share, "
        "0 where nothing came from the cache",
    )  # fmt: skip
    assert read(report).runs[0].point.cached_input_tps == 0


@pytest.mark.parametrize("content", [VLLM, SGLANG, AIPERF], ids=["vllm", "sglang", "aiperf"])
def test_the_same_is_said_of_every_tool_and_not_where_a_share_was_given(content: Any) -> None:
    assert "does not state cached input" in notes(content)[0]
    reported = Supplement("NVIDIA-H800", Fraction(8), "llama-3-8b", cached_input_share=Fraction(3, 10))
    assert notes(content, reported) == ()
    assert read(content, reported).runs[0].point.cached_input_tps == 1500


def test_a_share_does_not_replace_what_a_report_states() -> None:
    reported = Supplement("NVIDIA-H800", Fraction(8), "llama-3-8b", cached_input_share=Fraction(9, 10))
    assert read({"benchmarks": [cached([600, 600, None, 0])]}, reported).runs[0].point.cached_input_tps == 1500


def test_a_guidellm_report_without_a_fixed_rate_says_which_profiles_it_has() -> None:
    concurrent = guidellm(None)
    concurrent["config"]["strategy"] = {"type_": "concurrent", "streams": 32}
    with pytest.raises(DocumentError) as refused:
        read({"benchmarks": [guidellm(None), concurrent, concurrent]})
    assert str(refused.value) == (
        "report.json: benchmarks of kind concurrent, throughput offer no fixed rate of requests: measure with the profile "
        "constant or poisson"
    )


def test_a_guidellm_report_without_benchmarks_is_named() -> None:
    with pytest.raises(DocumentError, match=r"report\.json: benchmarks: is an empty list"):
        read({"benchmarks": []})


def test_locust_alone_knows_no_tokens() -> None:
    plain = "\n".join(line for line in LOCUST.splitlines() if not line.startswith("metric"))
    with pytest.raises(DocumentError, match=r"Locust counts no tokens, fire entries of type metric named ttft_ms"):
        read(plain, name="run_stats.csv")


@pytest.mark.parametrize(
    ("there", "written", "says"),
    [
        ("completions,3000,6,", 'completions,3000,"1,200",', "Failure Count of /v1/chat/completions: '1,200'"),
        ("completions,3000,6,", "completions,3000,,", "Failure Count of /v1/chat/completions: ''"),
        ("input_tokens,3000,", "input_tokens,3000.0,", "Request Count of input_tokens: '3000.0'"),
    ],
)
def test_a_count_of_locust_that_cannot_be_read_is_not_zero(there: str, written: str, says: str) -> None:
    assert there in LOCUST
    with pytest.raises(DocumentError, match=f"run_stats.csv: {says} must be a whole number"):
        read(LOCUST.replace(there, written), name="run_stats.csv")


@pytest.mark.parametrize("report", [VLLM, SGLANG, AIPERF])
def test_a_report_without_the_deployment_names_what_is_missing(report: dict[str, Any]) -> None:
    bare = {name: value for name, value in report.items() if name not in ("gpus", "accelerator")}
    with pytest.raises(LoadTestError, match="gpus: is missing"):
        read(bare, Supplement())


def test_an_unknown_document_is_no_load_test() -> None:
    with pytest.raises(LoadTestError, match="colour: is no field of a load test"):
        read({"colour": "red"})
    with pytest.raises(LoadTestError, match="must be a mapping"):
        read([1, 2])
    with pytest.raises(DocumentError, match="no report of a known tool"):
        read('{"a": 1}\n{"b": 2}')
