"""`python -m metering logs` as a process: killed, refused, doubled, and asked for what it cannot do."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest

from metering.__main__ import main
from metering.delivery import DeliveryThread
from metering.logs.formats import translator
from metering.logs.reading import SpoolSink
from metering.numbering import Numbering
from metering.spool import Spool, open_state
from tests.cli import PROJECT
from tests.factories.gateway_logs import line, nameless
from tests.http_servers import HttpServer, Request, acknowledgement, serving


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "access.log"
    path.parent.mkdir()
    return path


class Platform(HttpServer):
    """Answers 503 now and then, and remembers what it took; a record is known by its id."""

    def __init__(self, *, failing: float = 0.0, seed: int = 1) -> None:
        super().__init__()
        self.taken: Counter[str] = Counter()
        self.tokens: dict[str, int] = {}
        self.watermarks: list[dict[str, str]] = []
        self.failing = failing
        self.random = random.Random(seed)
        self.lock = threading.Lock()

    def answer(self, request: Request) -> tuple[int, bytes]:
        if request.path.endswith("usage/watermarks"):
            self.watermarks.append(json.loads(request.body))
            return 204, b""
        with self.lock:
            status = 503 if self.random.random() < self.failing else 200
            if status == 200 or self.random.random() < 0.5:  # taken, and the answer is lost
                for record in json.loads(request.body):
                    self.taken[record["id"]] += 1
                    self.tokens[record["id"]] = record["input_tokens"]
        return status, acknowledgement(request.body)


@pytest.fixture
def platform() -> Iterator[Platform]:
    with serving(Platform(failing=0.03)) as server:
        yield server


def command(tmp_path: Path, platform: Platform, *more: str) -> list[str]:
    token = tmp_path / "token"
    token.write_text("secret\n")
    return ["tokens", "--format", "envoy", "--state", str(tmp_path / "state"), "--token-file", str(token),
            "--endpoint", platform.address, *more]  # fmt: skip


def test_a_reader_killed_at_any_moment_loses_nothing_through_rotations(
    tmp_path: Path, log: Path, platform: Platform
) -> None:
    """Half of the records have no id of their own; the log is rotated in both ways while readers come and go."""
    chance, written = random.Random(7), 2
    log.write_text(line(1))
    arguments = [
        sys.executable,
        "-m",
        "metering",
        *command(tmp_path, platform, "--follow", "--poll-seconds", "0.02", str(log)),
    ]
    for round_number in range(8):
        reader = subprocess.Popen(arguments, cwd=PROJECT, stderr=subprocess.DEVNULL)
        while not platform.taken:
            time.sleep(0.02)  # what was rotated away before the first start is nobody's
        # a fixed number of lines: a fast machine that wrote more would have more to deliver at the end
        for _ in range(chance.randint(15, 60)):
            with log.open("a") as file:
                for number in range(written, written + 40):
                    file.write(line(number) if number % 2 else nameless(number))
            written += 40
            if chance.random() < 0.1:
                rotate(log, chance)
            time.sleep(0.02)
        reader.send_signal(signal.SIGKILL)
        reader.wait()
        if round_number % 3 == 0:
            rotate(log, chance)
    assert main([*command(tmp_path, platform, str(log)), "--deliver-seconds", "600"]) == 0
    reported = Counter(platform.tokens.values())
    assert (set(range(1, written)) - set(reported), [n for n, times in reported.items() if times > 1]) == (set(), [])
    assert written > 400


def rotate(log: Path, chance: random.Random) -> None:
    for number in range(99, 0, -1):
        old = log.with_name(f"access.log.{number}")
        if old.exists():
            old.rename(log.with_name(f"access.log.{number + 1}"))
    if chance.random() < 0.5:
        log.rename(log.with_name("access.log.1"))
        log.touch()
    else:
        shutil.copyfile(log, log.with_name("access.log.1"))
        os.truncate(log, 0)


def test_the_same_log_reported_twice_changes_nothing(tmp_path: Path, log: Path, platform: Platform) -> None:
    log.write_text("".join(nameless(number % 5 + 1) for number in range(2000)))
    assert main(command(tmp_path, platform, str(log))) == 0
    first = set(platform.taken)
    shutil.rmtree(tmp_path / "state")
    log.rename(tmp_path / "elsewhere.log")
    assert main(command(tmp_path, platform, str(tmp_path / "elsewhere.log"))) == 0
    assert len(first) == 2000
    assert set(platform.taken) == first


def test_a_second_reader_on_the_same_state_is_refused(
    tmp_path: Path, log: Path, platform: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(line(1))
    running = subprocess.Popen(
        [sys.executable, "-m", "metering", *command(tmp_path, platform, "--follow", str(log))], cwd=PROJECT,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while not platform.taken or not platform.watermarks:
            time.sleep(0.05)
        assert platform.watermarks[0] == {"agent": "log reader", "source": "envoy", "watermark": ANY}
        assert main(command(tmp_path, platform, str(log))) == 2
        assert "another reader works with this state directory" in capsys.readouterr().err
    finally:
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=30)
    assert running.returncode == 0
    assert errors.splitlines()[-1] == "1 records"


def test_a_token_that_is_gone_for_a_while_stops_no_delivery(
    tmp_path: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metering.delivery.HINDERED_WAIT_S", 0.05)
    state, token = tmp_path / "s.sqlite", tmp_path / "token"
    connection = open_state(state)
    with connection:
        Spool(connection).put("usage/tokens", b'[{"id": "a", "input_tokens": 1}]')
    with DeliveryThread(state, endpoint=platform.address, token_file=token) as delivery:
        time.sleep(0.2)
        assert not platform.taken
        token.write_text("secret")
        assert delivery.finish(30)
    connection.close()
    assert set(platform.taken) == {"a"}


def test_a_state_belongs_to_one_source(
    tmp_path: Path, log: Path, platform: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(line(1))
    assert main(command(tmp_path, platform, str(log))) == 0
    assert main(command(tmp_path, platform, "--source", "other", str(log))) == 2
    assert "is for --source envoy, not other" in capsys.readouterr().err


def test_a_usage_file_of_what_standard_input_reports(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "metering", "tokens", "--format", "envoy", "--source", "gw", "--out", "-", "-"], cwd=PROJECT,
        input=line(5) + "bad\n" + line(6)[:-1], text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [(row["source"], row["id"], row["input_tokens"]) for row in rows] == [
        ("gw", "r5:2026-10-05T10:00:00Z", "5"), ("gw", "r6:2026-10-05T10:00:00Z", "6"),
    ]  # fmt: skip
    assert done.returncode == 3, "a bad line is for somebody to look at"
    assert "- at byte" in done.stderr
    assert done.stderr.splitlines()[-1] == "2 records, 1 bad lines"


def test_a_usage_file_has_the_optional_columns_that_a_record_states(tmp_path: Path) -> None:
    lines = [line(1), line(2, service_tier="flex", product="a,\"b", secret="x")]
    (tmp_path / "access.log").write_text("".join(lines))
    out = tmp_path / "usage.csv"
    options = ["--format", "envoy", "--source", "gw", "--tags", "product=product,team=team", "--out", str(out)]
    assert main(["tokens", *options, str(tmp_path / "access.log")]) == 0
    with out.open(newline="") as file:
        first, second = csv.DictReader(file)
    assert list(first)[-2:] == ["service_tier", "tags"]
    assert (first["service_tier"], first["tags"], second["service_tier"]) == ("", "", "flex")
    assert json.loads(second["tags"]) == {"product": 'a,"b'}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x.log"], "give a destination: --out FILE, or --state DIR with --endpoint and --token-file"),
        (["nowhere.log", "--out", "-"], "nowhere.log: no such file or directory"),
        (["-", "x.log", "--out", "-"], "- must be alone"),
        (["x.log", "--out", "-", "--follow"], "--out writes a file and ends"),
        (["-", "--out", "-", "--mapping", "none.yaml"], "none.yaml: No such file or directory"),
    ],
)
def test_bad_usage_is_one_line_and_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "--format", "envoy", *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_a_mapping_that_finds_no_usage_at_all_ends_with_3(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(line(1) + line(2), encoding="utf-8")
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("model: llm\ninput_tokens: tokens_in\noutput_tokens: tokens_out\n", encoding="utf-8")
    read = ["tokens", str(log), "--format", "envoy", "--out", str(tmp_path / "usage.csv")]
    assert (main(read), capsys.readouterr().err) == (0, "2 records\n")
    assert main([*read, "--mapping", str(mapping)]) == 3
    said = "no usage was found: see which log it is (--format), its --pattern and --mapping"
    assert capsys.readouterr().err.splitlines() == ["0 records, 2 lines without usage", said]
    assert main(["tokens", str(log.parent), "--pattern", "*.jsonl", *read[2:]]) == 3
    assert capsys.readouterr().err.splitlines() == ["0 records", said]


def test_a_usage_file_leaves_out_what_the_gateway_guessed_and_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, mapping, out = tmp_path / "own.log", tmp_path / "mapping.yaml", tmp_path / "usage.csv"
    mapping.write_text("estimated: guessed\n", encoding="utf-8")
    log.write_text(line(1, guessed=True) + line(2, guessed=False), encoding="utf-8")
    assert main(["tokens", str(log), "--format", "envoy", "--mapping", str(mapping), "--out", str(out)]) == 3
    assert "r1:2026-10-05T10:00:00Z: gateway_estimate: a usage file does not say so" in caplog.text
    assert [row["id"] for row in csv.DictReader(out.read_text().splitlines())] == ["r2:2026-10-05T10:00:00Z"]


def test_the_spool_holds_bodies_of_at_most_a_thousand_records_with_the_incomplete_ones(tmp_path: Path) -> None:
    connection = open_state(tmp_path / "s.sqlite")
    spool = Spool(connection)
    translate = translator("envoy", source="gw")
    reported = [record for number in range(1, 1501) for record in translate(json.loads(line(number)), "")]
    nothing = {"gen_ai.usage.input_tokens": None, "gen_ai.usage.output_tokens": None}
    with connection:
        SpoolSink(spool, Numbering(connection)).put([*reported, *translate(json.loads(line(7, **nothing)), "")])
    first = spool.oldest()
    assert first is not None
    spool.acknowledge(first.id)
    second = spool.oldest()
    assert second is not None
    assert (len(json.loads(first.body)), len(json.loads(second.body)), second.door) == (1000, 501, "usage/tokens")
    assert "input_tokens" not in json.loads(second.body)[-1]
    connection.close()
