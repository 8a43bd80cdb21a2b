"""The head of the audit log leaves the installation, and what was kept outside shows whatever was changed inside."""

import json
import secrets
import socketserver
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from django.core.management import call_command
from django.test import Client
from moto.server import ThreadedMotoServer

from billing.tenancy.anchor_places import anchor_place
from billing.tenancy.audit import audit_record
from billing.tenancy.audit_anchors import anchors_read, anchors_send
from billing.tenancy.audit_chain import ChainProof, audit_chain_prove
from billing.tenancy.models import AnchorDelivery, AuditEntry, AuditLink
from tests.documented import INSTALL, filled, of_page, words
from tests.factories.commands import Manage
from tests.factories.servers import until
from tests.http_servers import HttpServer, Request, serving
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 11, 1, 8, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def noted(*subjects: str, action: str = "note") -> AuditLink:
    for subject in subjects:
        audit_record(actor="tests", action=action, subject=subject)
    return AuditLink.objects.order_by("ordinal")[AuditLink.objects.count() - 1]


def chain_made_anew() -> None:
    """As the database's owner can: every link computed again from the entries as they are now."""
    previous = ""
    for link in AuditLink.objects.order_by("ordinal"):
        payload = json.loads(link.payload) | {"actor": AuditEntry.objects.get(pk=link.entry_id).actor}
        text = json.dumps(payload, ensure_ascii=False)
        digest = sha256((previous + text).encode()).hexdigest()
        rewrite("UPDATE tenancy_auditlink SET payload = %s, previous = %s, digest = %s WHERE ordinal = %s",
                [text, previous, digest, link.ordinal])  # fmt: skip
        previous = digest


def proof(where: str) -> ChainProof:
    from django.db import connection

    connection.ensure_connection()
    return audit_chain_prove(connection.connection, anchors_read(where))


@pytest.fixture
def file(tmp_path: Path, settings: Any) -> Path:
    path = tmp_path / "anchors.jsonl"
    settings.AUDIT_ANCHOR = (f"file://{path}",)
    settings.PORTAL_URL = "https://billing.example.com"
    return path


def test_a_head_goes_out_each_day_and_after_each_close_and_not_between(file: Path) -> None:
    assert (anchors_send(now=NOW), file.exists()) == (0, False)  # nothing has happened yet
    first = noted("1", "2")
    assert [anchors_send(now=NOW), anchors_send(now=NOW + MINUTE)] == [1, 0]
    third = noted("3")
    assert [anchors_send(now=NOW + DAY - MINUTE), anchors_send(now=NOW + DAY)] == [0, 1]
    closed = noted("2026-10", action="period_close")
    assert [anchors_send(now=NOW + DAY + MINUTE), anchors_send(now=NOW + DAY + 2 * MINUTE)] == [1, 0]
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"schema": "suanpan/audit-anchor/1", "installation": "https://billing.example.com", "sequence": link.ordinal,
         "hash": link.digest, "time": at}
        for link, at in ((first, "2026-11-01T08:00:00+00:00"), (third, "2026-11-02T08:00:00+00:00"),
                         (closed, "2026-11-02T08:01:00+00:00"))
    ]  # fmt: skip
    assert (first.ordinal, third.ordinal, closed.ordinal) == (2, 3, 4)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_chain_that_was_made_anew_differs_from_the_anchors_and_the_first_is_named(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = []
    for day in range(3):
        digests.append(noted(f"{day} a", f"{day} b").digest)
        anchors_send(now=NOW + day * DAY)
    verify = partial(Manage(capsys), "audit_verify")
    assert f"head 6:{digests[2]}, as 3 anchors say\n" in verify("--anchor", file).out
    rewrite("UPDATE tenancy_auditentry SET actor = 'mallory' WHERE subject = '1 a'")
    chain_made_anew()
    assert proof(str(file)).faults[0].startswith("link 4 is ")
    assert verify().status == 0  # by itself the chain holds
    found = verify("--anchor", f"file://{file}", "--json")
    now = AuditLink.objects.get(ordinal=4).digest
    assert found.status == 3
    assert json.loads(found.out)["faults"] == [
        f"link 4 is {now}, the anchor says {digests[1]}; links up to 2 are as they were anchored, "
        "the first change is in 3 to 4; 1 later anchors differ too"
    ]


def test_a_file_of_a_syslog_server_is_read_and_one_without_an_anchor_is_refused(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = noted("1")
    anchors_send(now=NOW)
    log = tmp_path / "messages"
    log.write_text(f"Nov  1 host kernel: {{\nNov  1 host suanpan: {file.read_text()}")
    assert anchors_read(str(log)) == [(1, head.digest)]
    log.write_text("Nov  1 host kernel: nothing\n")
    assert "no anchor is kept there" in Manage(capsys)("audit_verify", "--anchor", str(log)).error


def test_a_failure_is_seen_and_tried_again_after_1_4_16_and_60_minutes(
    tmp_path: Path, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "not there yet" / "anchors.jsonl"
    settings.AUDIT_ANCHOR = (f"file://{path}",)
    noted("1")
    assert samples() == {"suanpan_audit_anchor_age_seconds": "+Inf", "suanpan_audit_anchor_failing": "0.0"}
    at, tried = NOW, []
    for minute in range(150):
        before = AnchorDelivery.objects.filter(failures__gt=0).values_list("failures", flat=True).first()
        anchors_send(now=at + minute * MINUTE)
        if AnchorDelivery.objects.get().failures != (before or 0):
            tried.append(minute)
    assert tried == [0, 1, 5, 21, 81, 141]
    assert f"the head of the audit log did not reach file {path}: FileNotFoundError" in caplog.text
    assert samples()["suanpan_audit_anchor_failing"] == "1.0"
    path.parent.mkdir()
    assert anchors_send(now=at + 201 * MINUTE) == 1
    assert samples()["suanpan_audit_anchor_failing"] == "0.0"
    state = AnchorDelivery.objects.get()
    assert (state.failures, state.error, state.ordinal, state.sent_at) == (0, "", 1, at + 201 * MINUTE)


def samples() -> dict[str, str]:
    lines = Client().get("/metrics").content.decode().splitlines()
    return dict(line.split(" ") for line in lines if line.startswith("suanpan_audit_anchor"))


def test_a_time_in_the_future_does_not_stop_the_anchors(file: Path) -> None:
    noted("1")
    assert anchors_send(now=NOW) == 1
    AnchorDelivery.objects.update(sent_at=NOW + 400 * DAY)
    assert anchors_send(now=NOW + MINUTE) == 1


def test_a_place_that_fails_keeps_no_other_from_its_anchor(file: Path, tmp_path: Path, settings: Any) -> None:
    settings.AUDIT_ANCHOR = (f"file://{tmp_path}/missing/x", *settings.AUDIT_ANCHOR)
    head = noted("1")
    assert anchors_send(now=NOW) == 1
    assert anchors_read(str(file)) == [(1, head.digest)]


# --- syslog and webhook ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_syslog_gets_one_message_of_rfc_5424(transport: str) -> None:
    received: list[bytes] = []
    done = threading.Event()

    class Datagram(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            received.append(self.request[0] if transport == "udp" else self.request.makefile("rb").read())
            done.set()

    kind: Any = socketserver.UDPServer if transport == "udp" else socketserver.TCPServer
    with serving(kind(("127.0.0.1", 0), Datagram)) as server:
        scheme = "syslog" if transport == "udp" else "syslog+tcp"
        anchor_place(f"{scheme}://127.0.0.1:{server.server_address[1]}").keep('{"sequence": 1}', ordinal=1, now=NOW)
        assert done.wait(10)
    (message,) = received
    if transport == "tcp":
        length, _, message = message.partition(b" ")
        assert int(length) == len(message)
    assert message.startswith(b"<109>1 2026-11-01T08:00:00+00:00 ")
    assert message.endswith(b' suanpan - audit-anchor - {"sequence": 1}')


def test_a_webhook_gets_json_and_any_other_answer_than_2xx_is_a_failure(settings: Any) -> None:
    bodies, answers = [], [204, 500]

    class Hook(HttpServer):
        def answer(self, request: Request) -> tuple[int, bytes]:
            bodies.append((request.path, request.body))
            return answers.pop(0), b""

    head = noted("1")
    with serving(Hook()) as server:
        settings.AUDIT_ANCHOR = (f"{server.address}/hidden-word",)
        assert [anchors_send(now=NOW), anchors_send(now=NOW + DAY)] == [1, 0]
    assert [(path, json.loads(body)["hash"]) for path, body in bodies] == [("/hidden-word", head.digest)] * 2
    state = AnchorDelivery.objects.get()
    assert (state.place, state.error) == ("webhook 127.0.0.1", "OSError: webhook 127.0.0.1 answered 500")


# --- object store --------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


def test_anchors_in_an_object_store_are_locked_and_each_version_is_compared(store: str, settings: Any) -> None:
    client = boto3.client("s3", endpoint_url=store, region_name="us-east-1")
    client.create_bucket(Bucket="anchors", ObjectLockEnabledForBucket=True)
    address = f"s3://anchors/hq?endpoint={store}&region=us-east-1&days=30"
    settings.AUDIT_ANCHOR = (address,)
    head = noted("1", "2")
    assert anchors_send(now=datetime.now(UTC)) == 1
    (stored,) = client.list_object_versions(Bucket="anchors")["Versions"]
    assert stored["Key"].startswith("hq/000000000002-")
    lock = client.head_object(Bucket="anchors", Key=stored["Key"])
    assert lock["ObjectLockMode"] == "COMPLIANCE"
    assert timedelta(days=29) < lock["ObjectLockRetainUntilDate"] - datetime.now(UTC) <= timedelta(days=30)
    with pytest.raises(ClientError, match="AccessDenied"):
        client.delete_object(Bucket="anchors", Key=stored["Key"], VersionId=stored["VersionId"])
    rewrite("UPDATE tenancy_auditentry SET actor = 'mallory'")
    chain_made_anew()
    forged = json.dumps({"schema": "suanpan/audit-anchor/1", "sequence": 2, "hash": AuditLink.objects.get(ordinal=2).digest})
    client.put_object(Bucket="anchors", Key=stored["Key"], Body=forged)  # hides the first version, removes nothing
    assert (len(anchors_read(address)), proof(address).faults) == (2, [
        f"link 2 is {AuditLink.objects.get(ordinal=2).digest}, the anchor says {head.digest}",
    ])  # fmt: skip


def test_the_command_of_the_page_reads_every_version_of_every_object(
    store: str, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    client = boto3.client("s3", endpoint_url=store, region_name="us-east-1")
    client.create_bucket(Bucket="bucket", ObjectLockEnabledForBucket=True)
    of_the_store = f"endpoint={store}&region=us-east-1"
    settings.AUDIT_ANCHOR = (f"s3://bucket/prefix?{of_the_store}&days=30",)
    head = noted("1", "2")
    assert anchors_send(now=datetime.now(UTC)) == 1
    (command,) = of_page(INSTALL, "python manage.py audit_verify --anchor 's3:")
    call_command(*words(filled(command, {"s3://bucket/prefix": f"s3://bucket/prefix?{of_the_store}"}))[2:])
    assert f"the audit log holds: 2 entries, head 2:{head.digest}" in capsys.readouterr().out


def test_a_bucket_that_is_not_there_is_a_failure(store: str, settings: Any) -> None:
    settings.AUDIT_ANCHOR = (f"s3://nowhere/hq?endpoint={store}&region=us-east-1",)
    noted("1")
    assert anchors_send(now=NOW) == 0
    assert "NoSuchBucket" in AnchorDelivery.objects.get().error


# --- every place against whoever owns the database -------------------------------------------------------------------------


@contextmanager
def syslog_server(log: Path, transport: str) -> Iterator[str]:
    """Writes what it receives to a file, a line each, as syslog servers do."""

    class Message(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            message = self.request[0] if transport == "udp" else self.request.makefile("rb").read()
            with log.open("ab") as file:
                file.write(message + b"\n")

    kind: Any = socketserver.UDPServer if transport == "udp" else socketserver.TCPServer
    with serving(kind(("127.0.0.1", 0), Message)) as server:
        yield f"syslog{'+tcp' if transport == 'tcp' else ''}://127.0.0.1:{server.server_address[1]}"


@contextmanager
def hook_server(log: Path) -> Iterator[str]:
    """Writes each body to a file, a line each."""

    class Hook(HttpServer):
        def answer(self, request: Request) -> tuple[int, bytes]:
            with log.open("ab") as file:
                file.write(request.body + b"\n")
            return 204, b""

    with serving(Hook()) as server:
        yield f"{server.address}/anchors"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of a place of the kind, and where its anchors are read again."""
    log = tmp_path / "received"
    if request.param == "file":
        yield f"file://{log}", str(log)
    elif request.param == "s3":
        store = request.getfixturevalue("store")
        client = boto3.client("s3", endpoint_url=store, region_name="us-east-1")
        bucket = f"anchors-{secrets.token_hex(4)}"
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        yield (address := f"s3://{bucket}/hq?endpoint={store}&region=us-east-1&days=30"), address
    else:
        with hook_server(log) if request.param == "webhook" else syslog_server(log, request.param) as address:
            yield address, str(log)


def entry_changed() -> None:
    rewrite("UPDATE tenancy_auditentry SET actor = 'mallory' WHERE subject = '1 b'")
    chain_made_anew()


def end_cut_off() -> None:
    rewrite("DELETE FROM tenancy_auditlink WHERE ordinal = 4")
    rewrite("DELETE FROM tenancy_auditentry WHERE subject = '1 b'")


CHANGES = {"entry changed": entry_changed, "end cut off": end_cut_off}


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("place", ["file", "udp", "tcp", "webhook", "s3"], indirect=True)
def test_what_a_superuser_changes_is_found_against_what_any_place_received(
    place: tuple[str, str], change: str, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chain by itself holds; a place that received the head of it as it was does not agree."""
    address, kept = place
    settings.AUDIT_ANCHOR = (address,)
    heads = []
    for day in range(2):
        heads.append(noted(f"{day} a", f"{day} b"))
        assert anchors_send(now=datetime.now(UTC) + day * DAY) == 1
    if kept != address:
        until(lambda: Path(kept).exists() and Path(kept).read_bytes().count(b"\n") == 2)
    assert anchors_read(kept) == [(2, heads[0].digest), (4, heads[1].digest)]
    verify = partial(Manage(capsys), "audit_verify")
    assert verify("--anchor", kept).status == 0
    CHANGES[change]()
    assert verify().status == 0
    found = verify("--anchor", kept)
    assert (found.status, heads[1].digest in found.out) == (3, True)
