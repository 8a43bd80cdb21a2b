"""Counters of inference servers: read from /metrics or a Prometheus, exact, each replica by itself."""

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metering.__main__ import main
from metering.engines.readings import WANTED, readings, scraped_once
from metering.engines.samples import Sample, SampleError, read_answer, read_text
from metering.records import EngineReading
from tests.http_servers import HttpServer, Request, acknowledgement, serving

NOW = datetime(2026, 10, 15, 4, 0, 1, tzinfo=UTC)
STARTED = 1791921600
VLLM = f"""# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="Qwen/Qwen3-32B"}} 1.2345678e+07
vllm:prompt_tokens_total{{engine="1",model_name="Qwen/Qwen3-32B"}} 22.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="Qwen/Qwen3-32B"}} 1000.0
vllm:generation_tokens_total{{engine="1",model_name="Qwen/Qwen3-32B"}} 1.0
vllm:prompt_tokens_created{{engine="0",model_name="Qwen/Qwen3-32B"}} {STARTED + 20}.5
vllm:num_requests_running{{engine="0",model_name="Qwen/Qwen3-32B"}} 3.0
process_start_time_seconds {STARTED}.25
process_resident_memory_bytes 1.0e+09
"""
SGLANG = """sglang:prompt_tokens_total{model_name="deepseek",note="a \\"b\\", c"} 128201.0
sglang:generation_tokens_total{model_name="deepseek",note="a \\"b\\", c"} 7557.0
"""


def of_text(text: str, **models: str) -> list[EngineReading]:
    return readings(read_text(text, WANTED), source="hq", replica_of=lambda labels: "pod-1", now=NOW, models=models)


def test_ranks_of_a_server_are_added_up_and_its_start_is_that_of_the_process() -> None:
    assert of_text(VLLM) == [
        EngineReading(
            source="hq", replica="pod-1", model="Qwen/Qwen3-32B", time=NOW, prompt_tokens=12_345_700,
            generation_tokens=1001, started_at=datetime.fromtimestamp(STARTED, UTC),
        )
    ]  # fmt: skip


def test_a_server_that_reports_no_start_of_its_process_reports_when_its_counter_was_made() -> None:
    (reading,) = of_text(VLLM.replace("process_start_time_seconds", "other_seconds"))
    assert reading.started_at == datetime.fromtimestamp(STARTED + 20, UTC)


def test_sglang_and_the_name_of_a_model_in_the_ledger() -> None:
    (reading,) = of_text(SGLANG, deepseek="deepseek-v3")
    assert (reading.model, reading.prompt_tokens, reading.generation_tokens, reading.started_at) == (
        "deepseek-v3", 128_201, 7557, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("up 1\n", "no counters of vLLM or SGLang"),
        ('vllm:prompt_tokens_total{model_name="m"} 1.5\n', "1.5 is no whole number of tokens"),
        ('vllm:prompt_tokens_total{model_name="m"} NaN\n', "NaN is no whole number of tokens"),
        ('vllm:prompt_tokens_total{model_name="m"} many\n', "no number"),
        ("vllm:prompt_tokens_total{} 1\n", "has no label model_name or model"),
        ('vllm:prompt_tokens_total{model_name="m\n', "not the text format"),
    ],
)
def test_what_is_no_counter_is_refused(text: str, message: str) -> None:
    with pytest.raises(SampleError, match=message):
        of_text(text)


def series(name: str, value: str, **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **labels}, "value": [1792036801.5, value]}


ANSWER = {
    "status": "success",
    "data": {
        "resultType": "vector",
        "result": [
            series("vllm:prompt_tokens_total", "100", instance="a:8000", pod="pod-a", model_name="m"),
            series("vllm:generation_tokens_total", "10", instance="a:8000", pod="pod-a", model_name="m"),
            series("vllm:prompt_tokens_total", "7", instance="b:8000", model_name="m"),
            series("process_start_time_seconds", "1791921600.25", instance="a:8000", pod="pod-a"),
            series("process_start_time_seconds", "1791921600.25", instance="node:9100"),
        ],
    },
}


def test_an_answer_of_prometheus_is_read_with_its_time() -> None:
    samples = list(read_answer(json.dumps(ANSWER).encode()))
    assert samples[0] == Sample(
        "vllm:prompt_tokens_total", {"instance": "a:8000", "pod": "pod-a", "model_name": "m"}, Decimal(100),
        datetime(2026, 10, 15, 4, 0, 1, 500000, tzinfo=UTC),
    )  # fmt: skip
    with pytest.raises(SampleError, match="Prometheus answered bad query"):
        list(read_answer(b'{"status": "error", "error": "bad query", "data": {}}'))
    with pytest.raises(SampleError, match="not an answer of Prometheus"):
        list(read_answer(b"<html>"))


def counted(*found: dict[str, Any]) -> int:
    """Prompt tokens of pod-a by what a Prometheus has of it."""
    answer = {"status": "success", "data": {"resultType": "vector", "result": found}}
    samples = scraped_once(read_answer(json.dumps(answer).encode()), lambda labels: labels["pod"])
    (reading,) = readings(samples, source="hq", replica_of=lambda labels: labels["pod"], now=NOW, models={})
    return reading.prompt_tokens


def scraped(value: int, **labels: str) -> dict[str, Any]:
    named = {"pod": "pod-a", "model_name": "m", "engine": "0", "instance": "a:8000", "job": "vllm"} | labels
    return series("vllm:prompt_tokens_total", str(value), **named)


def begun(at: str, **labels: str) -> dict[str, Any]:
    return series("process_start_time_seconds", at, **{"pod": "pod-a", "instance": "a:8000", "job": "vllm"} | labels)


def test_a_server_that_is_scraped_twice_is_counted_once() -> None:
    """By two monitors, by a pair of Prometheis, and at two ports of one process; ranks and servers of a pod are added up."""
    assert counted(scraped(100), scraped(101, job="monitor-2", endpoint="http", service="llm")) == 101
    assert counted(scraped(100, prometheus_replica="p-0"), scraped(100, prometheus_replica="p-1")) == 100
    other = {"instance": "a:9090", "job": "all-ports"}
    assert counted(scraped(100), begun("1791921600.25"), scraped(100, **other), begun("1791921600.25", **other)) == 100
    assert counted(scraped(100), begun("1791921600.25"), scraped(60, **other), begun("1791921600.26", **other)) == 160
    assert counted(scraped(100), scraped(60, instance="a:8001")) == 160
    assert counted(scraped(100), scraped(60, engine="1")) == 160


class Servers(HttpServer):
    """A server with /metrics, a Prometheus and a platform in one."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Any] = []
        self.asked: list[str] = []

    def answer(self, request: Request) -> tuple[int, bytes]:
        if request.body:
            self.taken.append((request.path, json.loads(request.body)))
            return 200, acknowledgement(request.body)
        self.asked.append(request.path)
        found = {"/metrics": VLLM.encode(), "/api/v1/query": json.dumps(ANSWER).encode()}.get(request.path.partition("?")[0])
        return 200 if found else 404, found or b"nothing"


@pytest.fixture
def servers() -> Iterator[Servers]:
    with serving(Servers()) as made:
        yield made


def test_the_command_reports_the_platform_what_it_could_read_and_names_what_it_could_not(
    tmp_path: Path, servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    arguments = ["engines", "--source", "hq", "--once", "--state", str(tmp_path / "state"), "--endpoint", servers.address,
                 "--token-file", str(token), "--url", f"pod-1={servers.address}/metrics"]  # fmt: skip
    assert main(arguments) == 0
    ((path, (reading,)),) = servers.taken
    assert (path, reading["replica"], reading["prompt_tokens"]) == ("/api/v1/usage/engine-counters", "pod-1", 12_345_700)
    assert main([*arguments, "--url", f"{servers.address}/gone"]) == 3
    assert len(servers.taken) == 2
    assert "404" in caplog.text


def test_one_reading_of_a_prometheus_into_a_usage_file(tmp_path: Path, servers: Servers) -> None:
    out = tmp_path / "engines.csv"
    arguments = ["engines", "--prometheus", servers.address, "--selector", 'job="vllm"', "--source", "hq"]
    assert main([*arguments, "--out", str(out)]) == 0
    shown = ("replica", "prompt_tokens", "generation_tokens", "started_at")
    with out.open() as file:
        rows = [tuple(row[name] for name in shown) for row in csv.DictReader(file)]
    assert rows == [("b:8000", "7", "0", ""), ("pod-a", "100", "10", "2026-10-13T20:00:00Z")]
    assert "job%3D%22vllm%22" in servers.asked[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "http://x/metrics"], "give a destination: --out FILE, or --state DIR"),
        (["--url", "http://x/metrics", "--out", "-", "--model", "a"], "--model 'a' must be written NAME=VALUE"),
    ],
)
def test_bad_usage_is_one_line_and_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engines", "--source", "hq", *arguments]) == 2
    assert message in capsys.readouterr().err
