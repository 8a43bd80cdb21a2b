"""The outbox of our LiteLLM callback: what is put is there, through kill -9, once, from however many processes."""

import asyncio
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from metering.__main__ import main
from metering.gateways.litellm_callback import CallbackOutbox, read_settings
from metering.gateways.outbox import FILE, Outbox, Sender, open_outbox, pack, sole_sender, waiting
from metering.records import RecordError
from metering.spool import Spool
from tests.cli import PROJECT
from tests.gateway_records import kept, payload
from tests.http_servers import acknowledgement


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    made = Outbox(tmp_path)
    yield made
    made.close()


def test_a_record_put_again_is_one_record_and_is_forgotten_after_an_hour(tmp_path: Path, outbox: Outbox) -> None:
    for key, body in (("a", b'{"n":1}'), ("b", b'{"n":2}'), ("a", b'{"n":1}')):
        outbox.put(key, body).result(10)
    connection = open_outbox(tmp_path / FILE)
    spool = Spool(connection)
    assert pack(connection, spool, now=time.time(), settle_s=3600) == 0, "what came just now may still be completed"
    assert pack(connection, spool, now=time.time(), settle_s=0) == 2
    outbox.put("a", b'{"n":1}').result(10)
    assert (pack(connection, spool, now=time.time(), settle_s=0), waiting(connection)) == (0, 0)
    first = spool.oldest()
    assert first is not None
    assert (first.door, json.loads(first.body)) == ("usage/tokens", [{"n": 1}, {"n": 2}])
    assert pack(connection, spool, now=time.time() + 3_700, settle_s=0) == 0
    assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
    connection.close()


OPENER = """
import sys
from pathlib import Path
from metering.gateways.outbox import open_outbox
sys.stdin.readline()
for turn in range(25):
    open_outbox(Path(sys.argv[1]) / f"{turn}.sqlite").close()
"""


def test_a_new_outbox_can_be_opened_by_all_workers_of_a_gateway_at_once(tmp_path: Path) -> None:
    openers = [
        subprocess.Popen([sys.executable, "-c", OPENER, str(tmp_path)], cwd=PROJECT, stdin=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("now\n")
        opener.stdin.flush()
    assert [opener.wait(timeout=60) for opener in openers] == [0] * 6
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.close()


WRITER = """
import sys
from pathlib import Path
from metering.gateways.outbox import Outbox
outbox = Outbox(Path(sys.argv[1]))
for number in range(10**6):
    outbox.put(f"{sys.argv[2]}-{number}", str(number).encode()).result()
    print(number, flush=True)
"""


def test_what_was_put_is_there_after_kill_9_of_every_writer(tmp_path: Path) -> None:
    reported: dict[str, int] = {}
    for turn in range(3):
        names = [f"{turn}-{number}" for number in range(2)]
        writers = {
            name: subprocess.Popen(
                [sys.executable, "-c", WRITER, str(tmp_path), name], cwd=PROJECT, stdout=subprocess.PIPE, text=True
            )
            for name in names
        }
        for writer in writers.values():
            assert writer.stdout is not None
            assert [int(writer.stdout.readline()) for _ in range(3)] == [0, 1, 2]
        time.sleep(0.3)
        for name, writer in writers.items():
            os.kill(writer.pid, signal.SIGKILL)
            assert writer.stdout is not None
            whole = [line for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
            writer.stdout.close()
            writer.wait()
            reported[name] = int(whole[-1]) if whole else 2
    connection = sqlite3.connect(tmp_path / FILE)
    keys = {key for (key,) in connection.execute("SELECT key FROM outbox")}
    connection.close()
    missing = {f"{name}-{number}" for name, last in reported.items() for number in range(last + 1)} - keys
    assert missing == set()
    assert min(reported.values()) >= 2


def test_one_sender_at_a_time(tmp_path: Path) -> None:
    with sole_sender(tmp_path) as first, sole_sender(tmp_path) as second:
        assert (first, second) == (True, False)
    with sole_sender(tmp_path) as third:
        assert third


class Platform:
    """Takes what it gets unless it is made busy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[Any] = []
        self.watermarks: list[Any] = []
        self.busy = 0
        transport = httpx.MockTransport(self._answer)
        client = httpx.Client
        monkeypatch.setattr("metering.delivery.httpx.Client", lambda **options: client(transport=transport))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.busy:
            self.busy -= 1
            return httpx.Response(503)
        body = request.content
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        document = json.loads(body)
        many = isinstance(document, list)
        (self.taken if many else self.watermarks).extend(document if many else [document])
        return httpx.Response(200, content=acknowledgement(body)) if many else httpx.Response(204)


def test_a_sender_delivers_through_a_busy_platform(
    tmp_path: Path, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform(monkeypatch)
    platform.busy = 2
    for number in range(2500):
        done = outbox.put(str(number), str(number).encode())
    done.result(30)
    sender = Sender(tmp_path, endpoint="http://platform", token=lambda: "t")
    assert sender.run_once(seconds=30)
    assert platform.taken == list(range(2500))


def test_a_token_that_is_gone_for_a_while_stops_no_sender(
    tmp_path: Path, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metering.gateways.outbox.HINDERED_WAIT_S", 0.05)
    platform = Platform(monkeypatch)
    outbox.put("a", b'{"n":1}').result(10)
    token, stop = tmp_path / "token", threading.Event()
    sender = Sender(tmp_path, endpoint="http://platform", token=token.read_text)
    thread = threading.Thread(target=sender.run, args=(stop,))
    thread.start()
    stop.wait(2.5)
    assert (platform.taken, thread.is_alive()) == ([], True)
    token.write_text("secret")
    while not platform.taken:
        stop.wait(0.05)
    stop.set()
    thread.join()


def test_the_command_sends_what_waits(
    tmp_path: Path, outbox: Outbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    platform = Platform(monkeypatch)
    outbox.put("a", b'{"n":1}').result(10)
    token = tmp_path / "token"
    token.write_text("secret")
    arguments = ["outbox", "--state", str(tmp_path), "--endpoint", "http://platform", "--token-file", str(token), "--once"]
    assert main(arguments) == 0
    assert platform.taken == [{"n": 1}]
    with sole_sender(tmp_path):
        assert main(arguments) == 2
    assert "another process sends from this outbox" in capsys.readouterr().err
    platform.busy = 100
    outbox.put("b", b'{"n":2}').result(10)
    assert main([*arguments, "--deliver-seconds", "0.3"]) == 3
    assert "503" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "SUANPAN_OUTBOX is not set"),
        ({"SUANPAN_OUTBOX": "x"}, "SUANPAN_ENDPOINT and SUANPAN_TOKEN_FILE say where to send to"),
        ({"SUANPAN_OUTBOX": "x", "SUANPAN_SENDER": "pigeon"}, "SUANPAN_SENDER 'pigeon' is neither thread nor none"),
        ({"SUANPAN_OUTBOX": "x", "SUANPAN_CONSUMER": "nobody"}, "nobody is none of"),
    ],
)
def test_a_wrong_setting_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        read_settings(environment)


def test_the_books_of_a_proxy_send_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = Platform(monkeypatch)
    token = tmp_path / "token"
    token.write_text("secret\n")
    environment = {"SUANPAN_OUTBOX": str(tmp_path), "SUANPAN_ENDPOINT": "http://p", "SUANPAN_TOKEN_FILE": str(token)}
    settings = read_settings(environment)
    assert settings.read_token() == "secret"
    callback_outbox = CallbackOutbox(settings)
    asyncio.run(callback_outbox.write(payload(), None))
    end = threading.Event()
    while not platform.taken and not end.wait(0.05):
        pass
    callback_outbox.close()
    assert [record["input_tokens"] for record in platform.taken] == [100]
    assert {(reported["agent"], reported["source"]) for reported in platform.watermarks} <= {("litellm callback", "litellm")}


def test_a_watermark_is_behind_the_records_that_it_vouches_for(tmp_path: Path, outbox: Outbox) -> None:
    outbox.put("a", b'{"n":1}').result(10)
    connection = open_outbox(tmp_path / FILE)
    spool = Spool(connection)
    sender = Sender(tmp_path, endpoint="http://nowhere", token=lambda: "t", source="hq")
    before = time.time()
    sender._watched(connection, spool, before - 2)
    sender._watched(connection, spool, before - 1.9)
    first = spool.oldest()
    assert first is not None
    assert first.door == "usage/watermarks"
    reported = datetime.fromisoformat(json.loads(first.body)["watermark"]).timestamp()
    assert reported == pytest.approx(before - 2, abs=1e-5)
    assert len(spool) == 1, "once a minute"
    connection.close()


def test_while_the_spool_is_full_nothing_is_vouched_for(
    tmp_path: Path, outbox: Outbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    platform, stop = Platform(monkeypatch), threading.Event()
    outbox.put("a", json.dumps({"n": "x" * 500}).encode()).result(10)
    connection = open_outbox(tmp_path / FILE)
    with connection:
        connection.execute("UPDATE outbox SET put_at = put_at - 10")
    connection.close()
    sender = Sender(tmp_path, endpoint="http://platform", token=lambda: "t", source="hq", max_bytes=400)
    thread = threading.Thread(target=sender.run, args=(stop,), kwargs={"idle_s": 0.05})
    thread.start()
    while caplog.text.count("the records stay in it") < 3:
        stop.wait(0.05)
    stop.set()
    thread.join()
    assert (platform.taken, platform.watermarks) == ([], []), "a watermark would have had room"
    assert [len(record["n"]) for record in kept(tmp_path)] == [500]
