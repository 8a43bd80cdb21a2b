"""`manage.py up` and `manage.py demo` as a user runs them, in an empty home."""

import json
import os
import re
import signal
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from billing.local.process_list import free_port
from tests.cli import Home
from tests.factories.servers import until


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, dict[str, Any]]:
    home = Home(tmp_path_factory.mktemp("demo"))
    return home, json.loads(home.run("demo", "--no-serve", "--json").stdout)


def test_the_demonstration_ends_with_an_invoice_per_team(demonstration: tuple[Home, dict[str, Any]]) -> None:
    _, reported = demonstration
    assert len(reported["invoices"]) == 12
    assert reported["usage"] == {"allocations": 1906, "token_records": 300_050}
    numbers = [invoice["number"] for invoice in reported["invoices"]]
    year = reported["period"][:4]
    assert numbers == [f"AI-INFRA-{year}-{n:06d}" for n in range(1, 13)]
    for invoice in reported["invoices"]:
        assert Decimal(invoice["total"]) == sum(Decimal(line["amount"]) for line in invoice["lines"])
    kinds = {(line["kind"], line["reason"]) for invoice in reported["invoices"] for line in invoice["lines"]}
    assert kinds == {("gpu", None), ("tokens", None), ("efficiency", "reward"), ("efficiency", "penalty")}
    assert {line["unit"] for i in reported["invoices"] for line in i["lines"]} == {"GPU-Hours", "Slice-Hours", "1M Tokens"}
    assert len(reported["documents"]) == 36
    assert all(Path(path).stat().st_size > 500 for path in reported["documents"])


def test_the_moved_namespace_is_on_both_teams_invoices(demonstration: tuple[Home, dict[str, Any]]) -> None:
    _, reported = demonstration
    teams = {
        invoice["team"] for invoice in reported["invoices"] for line in invoice["lines"] if line["namespace"] == "vision-lab"
    }
    assert teams == {"cv", "robotics"}


def test_the_month_follows_from_its_usage_and_adds_up(demonstration: tuple[Home, dict[str, Any]]) -> None:
    home, reported = demonstration
    proofs = json.loads(home.run("period_verify", reported["period"], "--json").stdout)["proofs"]
    assert [proof["ok"] for proof in proofs] == [True] * 12
    report = json.loads(home.run("period_report", reported["period"], "--json").stdout, parse_float=Decimal)
    seconds = report["gpu_seconds"]
    assert seconds["charged"] + seconds["platform"] + seconds["idle"] == seconds["capacity"]
    assert all(check["ok"] for check in report["checks"])


def test_a_second_demonstration_in_the_same_home_changes_nothing(demonstration: tuple[Home, dict[str, Any]]) -> None:
    home, reported = demonstration
    again = json.loads(home.run("demo", "--no-serve", "--json").stdout)
    assert again["invoices"] == reported["invoices"]
    assert again["usage"] == reported["usage"]


def test_up_serves_reports_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home, port = Home(tmp_path), free_port()
    process = home.start("up", "--port", str(port))
    try:
        url = f"http://127.0.0.1:{port}"
        _until_ready(url)
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        assert httpx.get(f"{url}/", follow_redirects=True).status_code == 200
        assert httpx.get(f"{url}/api/v1/schema/").status_code == 200
        token = home.run("token_create", "gateway", "--scope", "usage:write", "--by", "admin").stdout.strip()
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{url}/api/v1/usage/tokens", content=b"[]", headers=headers)
        assert (answer.status_code, answer.json()["accepted"]) == (200, 0)
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 3
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert re.search(r"sign in as admin with \S+", output)
        assert "Traceback" not in output
        gone, left = psutil.wait_procs(family, timeout=10)
        assert not left
        assert len(gone) == len(family)
        assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = Home(tmp_path).run("up", "--port", str(port), status=2)
        assert done.stderr.strip() == f"error: port {port} on 127.0.0.1 is in use: choose another with --port"


def _until_ready(url: str) -> None:
    def ready() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/readyz", timeout=5).status_code == httpx.codes.OK
        return False

    until(ready, 180)


def test_a_database_without_tables_or_out_of_reach_is_reported_in_one_line(tmp_path: Path) -> None:
    import subprocess
    import sys

    import psycopg

    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE without_tables")
    try:
        empty = url.rsplit("/", 1)[0] + "/without_tables"
        for given, says in ((empty, "manage.py migrate"), ("postgresql://x@127.0.0.1:1/x", "cannot be reached")):
            environment = {**Home(tmp_path).environment, "DATABASE_URL": given, "BROKER_URL": "redis://127.0.0.1:1/0"}
            done = subprocess.run(
                [sys.executable, "manage.py", "period_report", "2026-10"], env=environment, capture_output=True, text=True,
                timeout=60, check=False,
            )  # fmt: skip
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
            assert says in done.stderr
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP DATABASE without_tables")
