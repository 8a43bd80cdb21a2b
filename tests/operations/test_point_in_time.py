"""pgBackRest, as docs/operations.md says: a database comes back as it was at an instant, and proves itself.

Debian's pgBackRest and PostgreSQL 15; the repository is encrypted.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from billing.runtime.home import PROJECT
from tests.factories.servers import until
from tests.operations.peers import home_of, program, running_as
from tests.operations.postgres import ACCOUNT, Server, installed

STANZA = "suanpan"


def pgbackrest(home: Path, *arguments: str) -> None:
    argv = [program("pgbackrest"), f"--config={home / 'pgbackrest.conf'}", f"--stanza={STANZA}", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/", timeout=120, check=False, **running_as(ACCOUNT))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def configure(home: Path, server: Server) -> None:
    for name in ("repository", "logs", "spool", "lock"):
        (home / name).mkdir()
    (home / "pgbackrest.conf").write_text(
        f"[global]\nrepo1-path={home}/repository\nrepo1-cipher-type=aes-256-cbc\nrepo1-cipher-pass=hidden-word\n"
        f"repo1-retention-full=2\nstart-fast=y\nlog-path={home}/logs\nlock-path={home}/lock\nspool-path={home}/spool\n"
        f"[{STANZA}]\npg1-path={server.data}\npg1-port={server.port}\npg1-user=suanpan\n"
        f"pg1-socket-path={home}\n"
    )
    if os.geteuid() == 0:
        for path in home.iterdir():
            os.chown(path, running_as(ACCOUNT)["user"], running_as(ACCOUNT)["group"])


def python(server: Server, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", *arguments], cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "DATABASE_URL": server.url("suanpan")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_a_month_that_was_destroyed_is_back_as_it_was_the_moment_before() -> None:
    with home_of(ACCOUNT) as home:
        server = Server(installed()[15], home)
        configure(home, server)
        archive = f"{program('pgbackrest')} --config={home}/pgbackrest.conf --stanza={STANZA}"
        settings = {"archive_mode": "on", "archive_command": f"{archive} archive-push %p"}
        settings["unix_socket_directories"] = str(home)
        server.create()
        server.start(**settings)
        try:
            server.command("CREATE DATABASE suanpan")
            pgbackrest(home, "stanza-create")
            pgbackrest(home, "--type=full", "backup")
            billed = json.loads(python(server, "-m", "tests.operations.month").splitlines()[-1])
            ((instant,),) = server.ask("SELECT clock_timestamp()::text")
            server.command("DROP TABLE invoices_invoiceline CASCADE", "suanpan")
            server.command("SELECT pg_switch_wal()")
            server.end()
            to = ("--type=time", f"--target={instant}", "--target-action=promote")
            pgbackrest(home, "--delta", *to, "restore")
            server.start(**settings)
            until(lambda: server.ask("SELECT pg_is_in_recovery()") == [(False,)])
            proven = json.loads(python(server, "manage.py", "restore_check", "--running", "--json"))
            assert (proven["holds"], proven["documents"], proven["problems"]) == (True, 1, [])
            python(server, "manage.py", "period_verify", "2026-10")
            kept = server.ask("SELECT number, total::text, sha256 FROM invoices_invoice", "suanpan")
            assert [list(row) for row in kept] == billed["documents"]
            assert server.ask("SELECT count(*) FROM token_entry", "suanpan") == [(101,)]
        finally:
            server.end()
        stored = [file.read_bytes()[:8] for file in (home / "repository").rglob("*") if file.is_file()]
        assert set(stored) == {b"Salted__"}  # as openssl marks what it encrypted
