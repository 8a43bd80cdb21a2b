"""Logs of training frameworks as they are written -> reports, formulas, and samples without an exporter."""

import io
import json
import sys
import urllib.error
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.message import Message
from fractions import Fraction
from http.client import BadStatusLine, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from metering.__main__ import main, parser
from metering.efficiency import command as command_module
from metering.efficiency import push
from metering.efficiency.formulas import (
    Formula,
    FormulaError,
    ModelShape,
    Recomputation,
    hardware_flops_per_token,
    hfu_factor,
    model_flops_per_token,
)
from metering.efficiency.jobs import JobsFileError, read_jobs_file
from metering.efficiency.reports import JobReport, ReportError, read_reports
from metering.efficiency.scores import Scoring, pod_sample
from metering.efficiency.telemetry import PodTelemetry
from metering.intervals import Interval

SHAPE = ModelShape(70_000_000_000, layers=80, heads=64, head_dim=128, seq_len=4096)
START = datetime(2026, 10, 10, 8, tzinfo=UTC)


def spans(reports: list[JobReport]) -> list[tuple[str, str, Fraction | None]]:
    return [
        (f"{report.span.start:%H:%M:%S.%f}"[:12], f"{report.span.end:%H:%M:%S.%f}"[:12], report.flops_per_second)
        for report in reports
    ]


# Formulas


def test_flop_per_token_by_each_formula() -> None:
    attention = 80 * 64 * 128 * 4096
    assert model_flops_per_token(Formula.SIX_N, SHAPE) == 420_000_000_000
    assert model_flops_per_token(Formula.PALM, SHAPE) == 420_000_000_000 + 12 * attention
    assert model_flops_per_token(Formula.MEGATRON, SHAPE) == 420_000_000_000 + 6 * attention


def test_recomputation_adds_a_forward_pass_of_everything_or_of_attention() -> None:
    attention = 80 * 64 * 128 * 4096
    assert hardware_flops_per_token(Formula.PALM, SHAPE, Recomputation.FULL) == 8 * SHAPE.active_params + 16 * attention
    selective = hardware_flops_per_token(Formula.PALM, SHAPE, Recomputation.SELECTIVE)
    assert selective == 6 * SHAPE.active_params + 16 * attention
    for formula in (Formula.PALM, Formula.MEGATRON, Formula.SIX_N):
        assert hfu_factor(Recomputation.FULL, formula, None) == Fraction(4, 3)
        assert hfu_factor(Recomputation.NONE, formula, None) == 1


def test_selective_recomputation_needs_the_shape() -> None:
    assert hfu_factor(Recomputation.SELECTIVE, Formula.MEGATRON, ModelShape(70_000_000_000)) is None
    factor = hfu_factor(Recomputation.SELECTIVE, Formula.MEGATRON, SHAPE)
    assert factor == Fraction(436_106_127_360 + 2 * 80 * 64 * 128 * 4096, 436_106_127_360)
    with pytest.raises(FormulaError, match="layers, heads"):
        model_flops_per_token(Formula.PALM, ModelShape(1))


# Logs


def test_megatron_reports_cover_the_iterations_and_not_the_checkpoint_between_them() -> None:
    line = (" [2026-10-10 08:{:02}:00] iteration {:8}/  500000 | consumed samples: 4096 | elapsed time per iteration "
            "(ms): 4500.0 | throughput per GPU (TFLOP/s/GPU): {} | learning rate: 1.0E-04 |")  # fmt: skip
    reported = [line.format(1, 10, "405.6"), line.format(5, 20, "400.0"), line.format(6, 11, "1.0e+02")]
    log = ["using world size: 64", *reported]
    found = read_reports("megatron", log, UTC)
    assert spans(found) == [
        ("08:00:55.500", "08:01:00.000", Fraction(4056 * 10**11)),  # of the first line only one iteration is sure
        ("08:04:15.000", "08:05:00.000", Fraction(400 * 10**12)),  # ten iterations of 4.5 s
        ("08:05:55.500", "08:06:00.000", Fraction(100 * 10**12)),  # a restart went back to its checkpoint
    ]
    assert {report.formula for report in found} == {Formula.MEGATRON}


def test_other_spellings_of_megatron_lines() -> None:
    rocm = ("[20251202 09:12:08][rank-7/8][INFO ] [trainer.py:2560] : iteration 126/ 5000 | consumed samples: 16128 | "
            "elapsed time per iteration (ms): 13372.8/13364.7 | throughput per GPU (TFLOP/s/GPU): 567.6/568.0 |")
    (found,) = read_reports("megatron", [rocm], UTC)
    assert (found.span.end, found.flops_per_second) == (datetime(2025, 12, 2, 9, 12, 8, tzinfo=UTC), Fraction(5676 * 10**11))
    silent = " iteration 4/ 15 | elapsed time per iteration (ms): 1000.0 | lm loss: 9.972E+00 |"
    (problem,) = read_reports("megatron", [f"2026-10-10T08:00:01.5Z {silent}"])
    assert (problem.flops_per_second, problem.problem) == (None, "log without throughput: run with --log-throughput")
    assert problem.span == Interval(START + timedelta(seconds=0.5), START + timedelta(seconds=1.5))


def test_torchtitan_reports_cover_the_time_since_the_line_before() -> None:
    start = "[rank0]:[titan] 2026-10-10 16:00:{:02},250 - root - INFO - step: {:2}  loss:  7.1  "
    line = start + "tps: 7,500  tflops: {}  mfu: {}"
    log = [line.format(5, 10, "395.76", "40.00%"), line.format(15, 20, "1,005.2", "50.8%"), line.format(25, 15, "1", "1%"),
           line.format(35, 30, "400.0", "N/A")]  # fmt: skip
    found = read_reports("torchtitan", log, ZoneInfo("Asia/Shanghai"))
    assert spans(found) == [
        ("08:00:05.250", "08:00:15.250", Fraction(10052 * 10**11)),
        ("08:00:25.250", "08:00:35.250", None),
    ]
    assert found[1].problem == "job computed no MFU: it runs quantised"


def test_nemo_reports_cover_their_step() -> None:
    line = ("2026-10-10T08:00:{:02}Z 0: Training epoch 0, iteration {}/99 | lr: 6.897e-06 | global_batch_size: 128 | "
            "global_step: 45 | reduced_train_loss: 11.96 | train_step_timing in s: 6.08{}| val_loss: 3.6")  # fmt: skip
    log = [line.format(10, 45, " | TFLOPS_per_GPU: 1.249e+03 "), line.format(20, 46, " ")]
    found = read_reports("nemo", log)
    assert spans(found) == [
        ("08:00:03.920", "08:00:10.000", Fraction(1249 * 10**12)), ("08:00:13.920", "08:00:20.000", None),
    ]  # fmt: skip
    assert found[1].problem == "log without TFLOPS_per_GPU: add FLOPsMeasurementCallback"


def test_a_time_without_an_offset_needs_a_zone() -> None:
    line = "[2026-10-10 08:00:00] iteration 1/ 5 | elapsed time per iteration (ms): 10.0 | lm loss: 9.972E+00 |"
    with pytest.raises(ReportError, match="line 1: no instant with an offset"):
        read_reports("megatron", [line])
    with pytest.raises(ReportError, match="line 2"):
        read_reports("progress", ["hello", 'suanpan-progress {"start": "2026-10-10T08:00:00Z", "tokens": 1}'])


# The push helper


class Clock:
    def __init__(self) -> None:
        self.now = START.timestamp()

    def __call__(self) -> float:
        return self.now


def test_a_script_reports_its_progress_in_lines_that_the_agent_reads() -> None:
    clock, out = Clock(), io.StringIO()
    with redirect_stdout(out):
        progress = push.Progress(devices=16, active_params=10**10, recomputation="full", clock=clock)
        for _ in range(7):
            clock.now += 20
            progress.step(tokens=2_000_000)
        progress.pause()
        clock.now += 300
        progress.resume()
        clock.now += 60
        progress.step(tokens=6_000_000)
    found = read_reports("progress", out.getvalue().splitlines())
    assert [(report.span.start - START, report.span.end - START) for report in found] == [
        (timedelta(seconds=lo), timedelta(seconds=hi)) for lo, hi in ((0, 60), (60, 120), (120, 140), (440, 500))
    ]
    assert {report.tokens_per_second for report in found} == {Fraction(100_000)}
    assert {(report.devices, report.recomputation) for report in found} == {(16, Recomputation.FULL)}


def test_samples_that_cannot_be_sent_wait_and_never_stop_the_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, sent, fails = Clock(), [], [True]

    def urlopen(request: Any, timeout: float) -> io.BytesIO:
        if fails[0]:
            raise urllib.error.URLError("refused")
        sent.append(json.loads(request.data))
        return io.BytesIO(receipt(accepted=2))

    monkeypatch.setattr(push.urllib.request, "urlopen", urlopen)
    sink = push.Push(endpoint="http://suanpan", token="t", cluster="hq-1", peak_tflops="989.4", workload="llm")
    progress = push.Progress(devices=256, active_params=10**10, recomputation="full", sink=sink, clock=clock)
    clock.now += 60
    progress.step(tokens=1_200_000 * 60)
    assert "1 samples wait" in capsys.readouterr().err
    fails[0] = False
    clock.now += 60
    progress.step(tokens=1_200_000 * 60)
    (first, second) = sent[0]
    assert (first["mfu"], first["hfu"], first["gpu_seconds"]) == ("0.284263189812", "0.379017586416", "15360.000000")
    assert (second["workload"], second["method"], sink.waiting) == ("llm", "6N (pushed, not checked)", [])


def receipt(**counts: Any) -> bytes:
    return json.dumps({"accepted": 0, "duplicates": 0, "conflicts": 0, "rejected": [], **counts}).encode()


def http_error(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://suanpan", status, "no", Message(), None)


def pushed(monkeypatch: pytest.MonkeyPatch, *answers: bytes | Exception) -> tuple[push.Push, list[int]]:
    """A sink whose attempts get these answers, and how many samples each attempt sent."""
    left, sent = list(answers), []

    def urlopen(request: Any, timeout: float) -> io.BytesIO:
        sent.append(len(json.loads(request.data)))
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(answer)

    monkeypatch.setattr(push.urllib.request, "urlopen", urlopen)
    sink = push.Push(endpoint="http://suanpan", token="t", cluster="hq-1", peak_tflops="989.4", workload="llm")
    clock = Clock()
    progress = push.Progress(devices=8, active_params=10**10, sink=sink, clock=clock)
    for _ in answers:
        clock.now += 60
        progress.step(tokens=10**6)
    return sink, sent


@pytest.mark.parametrize("answer", [
    http_error(401), http_error(404), http_error(503), http_error(429), RemoteDisconnected("closed"), BadStatusLine("x"),
    IncompleteRead(b""), TimeoutError("slow"), b"<html>maintenance</html>", b"{}", b"[]", b"7", receipt(accepted=0),
    receipt(accepted=2), receipt(accepted=None), b'{"accepted": 1}', b"\xff",
])  # fmt: skip
def test_samples_that_the_platform_does_not_account_for_are_sent_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: bytes | Exception
) -> None:
    sink, sent = pushed(monkeypatch, answer, receipt(accepted=1, duplicates=1))
    assert (sent, sink.waiting) == ([1, 2], [])
    assert capsys.readouterr().err.startswith("suanpan: 1 samples wait: ")


@pytest.mark.parametrize("status", [400, 413, 422])
def test_samples_that_are_refused_for_good_are_named_and_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    sink, sent = pushed(monkeypatch, http_error(status), receipt(accepted=1))
    assert (sent, sink.waiting) == ([1, 1], [])
    assert capsys.readouterr().err == f"suanpan: the platform refuses 1 samples for good: HTTP Error {status}: no\n"


def test_samples_in_quarantine_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pushed(monkeypatch, receipt(rejected=[{"error": "mfu must be at most 1"}]), receipt(conflicts=1))
    assert capsys.readouterr().err.splitlines() == [
        "suanpan: in quarantine: mfu must be at most 1",
        "suanpan: in quarantine: 1 samples were reported before with other content",
    ]


@pytest.mark.parametrize("facts", [
    {"active_params": None}, {"active_params": 10**10, "formula": "palm"}, {"active_params": 10**10, "formula": "6n"},
])  # fmt: skip
def test_a_sample_that_cannot_be_reckoned_never_stops_the_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], facts: dict[str, Any]
) -> None:
    clock, (sink, _) = Clock(), pushed(monkeypatch)
    progress = push.Progress(devices=8, sink=sink, clock=clock, **facts)
    clock.now += 60
    progress.step(tokens=10**6)
    progress.flush()
    assert sink.waiting == []
    assert "is not reported: KeyError(" in capsys.readouterr().err


def test_a_sink_or_a_stream_that_fails_never_stops_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: dict[str, Any]) -> None:
        raise OSError(28, "No space left on device")

    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    clock = Clock()
    progress = push.Progress(devices=8, active_params=10**10, sink=full, clock=clock)
    clock.now += 60
    progress.step(tokens=10**6)


# By workload, without an exporter


def command(tmp_path: Path, jobs: str, *more: str) -> tuple[int, list[dict[str, Any]]]:
    (tmp_path / "jobs.yaml").write_text(jobs, encoding="utf-8")
    out = tmp_path / "out.json"
    status = main(["efficiency", "--cluster", "hq-1", "--jobs", str(tmp_path / "jobs.yaml"), "--out", str(out),
                   "--from", "2026-10-10T08:00:00Z", "--until", "2026-10-10T09:00:00Z", *more])  # fmt: skip
    return status, [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


WORKLOAD = """
jobs:
  - workload: llm
    devices: 256
    accelerator: NVIDIA-H100
    dtype: {dtype}
    recomputation: full
    model: {{active_params: 10000000000}}
    reports: {{format: progress, file: log}}
"""


def write_progress(tmp_path: Path, *stretches: tuple[int, int]) -> None:
    lines = [
        {"start": (START + timedelta(minutes=lo)).isoformat(), "end": (START + timedelta(minutes=hi)).isoformat(),
         "tokens": 1_200_000 * 60 * (hi - lo), "devices": 256}
        for lo, hi in stretches
    ]  # fmt: skip
    (tmp_path / "log").write_text("".join(f"suanpan-progress {json.dumps(line)}\n" for line in lines), encoding="utf-8")


def test_a_report_that_nothing_checks_is_believed_only_on_request(tmp_path: Path) -> None:
    write_progress(tmp_path, (0, 20), (30, 50))
    status, (sample,) = command(tmp_path, WORKLOAD.format(dtype="bf16"))
    assert (status, sample["mfu"], sample["reason"]) == (0, None, "nothing checks the report")
    _, (sample,) = command(tmp_path, WORKLOAD.format(dtype="bf16"), "--trust-reports")
    # 6 x 1e10 x 1.2e6 / (256 x 989.4e12), and 8/6 of it; 40 of 50 minutes reported
    assert (sample["mfu"], sample["hfu"], sample["coverage"]) == ("0.284263189812", "0.379017586416", "0.8")
    assert (sample["gpu_seconds"], sample["workload"], sample["pod_uid"]) == ("768000", "llm", None)


@pytest.mark.parametrize(
    ("dtype", "mfu", "coverage", "reason"),
    [
        ("fp8", "0.142124412552", "1", None),  # half of that against the peak of bf16
        ("int4", None, "0", "dense peak of NVIDIA-H100 in int4 is not known"),
    ],
)
def test_work_is_scored_against_the_peak_of_its_precision(
    tmp_path: Path, dtype: str, mfu: str | None, coverage: str, reason: str | None
) -> None:
    write_progress(tmp_path, (0, 60))
    _, (sample,) = command(tmp_path, WORKLOAD.format(dtype=dtype), "--trust-reports")
    assert (sample["dtype"], sample["mfu"], sample["coverage"], sample["reason"]) == (dtype, mfu, coverage, reason)


def test_more_than_any_job_reaches_is_an_error_of_the_report(tmp_path: Path) -> None:
    write_progress(tmp_path, (0, 60))
    jobs = WORKLOAD.format(dtype="bf16").replace("10000000000", "30000000000")
    _, (sample,) = command(tmp_path, jobs, "--trust-reports")
    assert sample["reason"] == "MFU 0.853 is not plausible: wrong peak, precision or count of FLOP"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("jobs: [{reports: {format: megatron, file: log}}]", "exactly one of namespace and workload"),
        ("jobs: [{workload: a, reports: {format: megatron, file: log}}]", "needs devices and accelerator"),
        ("jobs: [{namespace: a, reports: {format: tensorboard, file: log}}]", "tensorboard"),
        ("jobs: [{namespace: a, team: x, reports: {format: nemo, file: log}}]", "team"),
        ("jobs: [", "jobs.yaml"),
    ],
)
def test_a_jobs_file_that_is_wrong_is_refused_by_name(tmp_path: Path, text: str, reported: str) -> None:
    (tmp_path / "jobs.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(JobsFileError, match=r"jobs\.yaml") as refused:
        read_jobs_file(tmp_path / "jobs.yaml")
    assert reported in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--from", "2026-10-10T08:00:00Z"], "nothing to read"),
        (["--jobs", "jobs.yaml"], "--from is missing"),
        (["--jobs", "jobs.yaml", "--from", "2026-10-10T08:00:00"], "has no offset"),
        (["--jobs", "none.yaml", "--from", "2026-10-10T08:00:00Z"], "none.yaml: No such file"),
        (["--jobs", "jobs.yaml", "--follow"], "--follow sends"),
        (["--jobs", "j.yaml", "--from", "2026-10-10T08:00:00Z", "--endpoint", "http://x"], "belong together"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    arguments: list[str], reported: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["efficiency", "--cluster", "hq-1", *arguments])
    except SystemExit as stop:
        status = int(stop.code or 0)
    said = capsys.readouterr().err
    assert (status, said.count("\n")) == (2, 1)
    assert reported in said



# Following


class Undelivered:
    """A platform that never answers."""

    rejected_records = 0

    def flush(self, *, seconds: float) -> bool:
        return False


def test_an_hour_that_cannot_be_read_is_read_in_the_next_turn(tmp_path: Path) -> None:
    log = tmp_path / "log"
    arguments = ["efficiency", "--cluster", "hq-1", "--jobs", str(tmp_path / "jobs.yaml"), "--follow", "--trust-reports",
                 "--from", "2026-10-10T08:00:00Z", "--until", "2026-10-10T09:00:00Z"]  # fmt: skip
    options = parser(arguments).parse_args(arguments)
    (tmp_path / "jobs.yaml").write_text(WORKLOAD.format(dtype="bf16"), encoding="utf-8")
    outbox = command_module.Outbox(tmp_path / "spool.db", "hq-1")
    waits: list[float] = []
    failed = command_module.FAILURES._value.get()

    command_module._deliver_and_wait(options, outbox, Undelivered(), waits.append)
    assert (outbox.read_until, len(outbox.spool), command_module.FAILURES._value.get() - failed) == (None, 0, 1)

    write_progress(tmp_path, (0, 60))
    assert log.exists()
    command_module._deliver_and_wait(options, outbox, Undelivered(), waits.append)
    assert outbox.read_until is not None
    assert outbox.read_until >= START + timedelta(hours=1)
    parcel = outbox.spool.oldest()
    assert parcel is not None
    (sample,) = json.loads(parcel.body)
    assert (parcel.door, sample["workload"], sample["mfu"]) == ("usage/efficiency", "llm", "0.284263189812")
    command_module._deliver_and_wait(options, outbox, Undelivered(), waits.append)
    assert (len(outbox.spool), waits) == (1, [60.0] * 3)  # nothing is read twice
    outbox.close()


def test_an_hour_of_a_slice_is_its_part_of_a_gpu_hour() -> None:
    """Two slices of a seventh of a card for an hour are 7,200 / 7 GPU-seconds, as the allocation holds them."""
    measured = {f"GPU-a/{number}": set(range(60)) for number in (1, 2)}
    pod = PodTelemetry("lab", "sliced-0", "uid-1", "NVIDIA-H800", Fraction(1, 7), measured, {})
    sample = pod_sample(pod, [], Interval(START, START + timedelta(hours=1)), Scoring("hq-1", {}))
    assert sample.gpu_seconds == Decimal("1028.571429")
