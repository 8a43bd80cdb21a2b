"""The disk of the database is full under ingest and a close: reports are refused, none is lost or doubled, alerts say so."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from pathlib import Path

import httpx
import psycopg
import pytest

from billing.local.process_list import free_port, server_argv
from billing.runtime.home import PROJECT
from tests.factories import token_record
from tests.factories.servers import until
from tests.operations.gateways import SET_UP, Sender, more_acknowledged, python
from tests.operations.peers import home_of, running_as
from tests.operations.postgres import ACCOUNT, Server, installed
from tests.prometheus.alerts import firing, scraped, watching

DISK_MB, SPARE = 96, 1024 * 1024
SERVES_AGAIN_S = 30
ALERTS = {"SuanpanDatabaseDisk", "SuanpanRequestsFail"}


@contextmanager
def small_disk(home: Path) -> Iterator[Path]:
    """A disk of its own that the server may write to; it takes root."""
    disk = home / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk)], check=True)
    try:
        place = disk / "tables"
        place.mkdir()
        os.chown(place, running_as(ACCOUNT)["user"], running_as(ACCOUNT)["group"])
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def server() -> Iterator[tuple[Server, Path]]:
    """A server whose database, but not its log, is on a small disk."""
    assert os.geteuid() == 0, "a small disk is mounted, which takes root"
    with home_of(ACCOUNT) as home, small_disk(home) as disk:
        found = Server(installed()[15], home)
        found.create()
        found.start()
        try:
            found.command(f"CREATE TABLESPACE small LOCATION '{disk / 'tables'}'")
            found.command("CREATE DATABASE suanpan TABLESPACE small")
            yield found, disk
        finally:
            found.end()


def fill(database: Server, disk: Path) -> Path:
    """A table that leaves nothing; returns a file to delete first, since a full disk takes no new connection."""
    (spare := disk / "spare").write_bytes(bytes(SPARE))
    database.command("CREATE UNLOGGED TABLE ballast (text text)", "suanpan")
    with suppress(psycopg.errors.DiskFull):
        while True:
            database.command("INSERT INTO ballast SELECT repeat('x', 1000) FROM generate_series(1, 1024)", "suanpan")
    return spare


def test_a_full_disk_refuses_with_a_time_to_come_again_and_nothing_is_lost_or_doubled(
    server: tuple[Server, Path], tmp_path: Path
) -> None:
    database, disk = server
    where = {
        **os.environ, "DATABASE_URL": database.url("suanpan"), "BROKER_URL": "redis://127.0.0.1:1/0", "WEB_WORKERS": "1",
        "SUANPAN_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "billing.settings.base", "PYTHONPATH": str(PROJECT),
        "DATABASE_DISK_BYTES": str(DISK_MB * 1024 * 1024),
    }  # fmt: skip
    token = python(where, "-c", SET_UP, str(tmp_path)).splitlines()[-1]
    url = f"http://127.0.0.1:{(port := free_port())}"
    web = subprocess.Popen(server_argv(port), env=where, cwd=PROJECT)
    senders = [Sender(url, token, first) for first in (0, 1_000_000)]
    threads, parts = [threading.Thread(target=sender.run) for sender in senders], ExitStack()
    try:
        for thread in threads:
            thread.start()
        more_acknowledged(senders, 20)
        prometheus = parts.enter_context(watching(tmp_path / "prometheus", url, window="[20s]"))
        until(lambda: scraped(prometheus))
        assert firing(prometheus) & ALERTS == set()
        spare = fill(database, disk)
        until(lambda: all(time.monotonic() - sender.last_answer > 2 for sender in senders))
        bearer = {"Authorization": f"Bearer {token}"}
        refused = httpx.post(f"{url}/api/v1/usage/tokens", json=[token_record(7_000_000)], headers=bearer, timeout=30)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        ready = httpx.get(f"{url}/readyz", timeout=30)
        assert ready.status_code == httpx.codes.OK  # what is stored can be read
        assert (ready.json()["status"], ready.json()["database"]) == ("reads only", "its disk is full")
        python(where, "manage.py", "period_close", "2026-10", status=None)
        until(lambda: firing(prometheus) >= ALERTS)
        spare.unlink()
        database.command("DROP TABLE ballast", "suanpan")
        freed = time.monotonic()
        until(lambda: all(sender.last_answer > freed for sender in senders), SERVES_AGAIN_S)
        more_acknowledged(senders, 20)
        until(lambda: firing(prometheus) & ALERTS == set())
    finally:
        parts.close()
        for sender in senders:
            sender.over.set()
        for thread in threads:
            thread.join()
        web.kill()
        web.wait()
    acknowledged = sum(len(sender.acknowledged) for sender in senders)
    stored = database.ask("SELECT count(*), count(DISTINCT id), sum(input_tokens)::bigint FROM token_entry", "suanpan")
    assert stored == [(acknowledged, acknowledged, 1000 * acknowledged)]
    assert sum(sender.repeated for sender in senders) == 0
    python(where, "manage.py", "period_close", "2026-10")
    (invoice,) = json.loads(python(where, "manage.py", "invoice_issue", "2026-10", "--json"))["invoices"]
    amounts = {line["token_class"] or "gpu": line["quantity"] for line in invoice["lines"]}
    assert (amounts["gpu"], amounts["output"]) == ("20.962222", str(Decimal(acknowledged * 100).scaleb(-6)))
