"""pgBackRest, by the commands of docs/operations/incidents.md: a database comes back as it was and proves itself.

Debian's pgBackRest and PostgreSQL 15; the repository is encrypted.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from billing.runtime.home import PROJECT
from tests.documented import INCIDENTS, blocks, filled, of_page, words
from tests.factories.servers import until
from tests.operations.peers import home_of, program, running_as
from tests.operations.postgres import ACCOUNT, Server, installed


def pgbackrest(home: Path, command: str) -> None:
    """A command of the page, with a configuration of the test."""
    _, *arguments = words(command)
    argv = [program("pgbackrest"), f"--config={home / 'pgbackrest.conf'}", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/", timeout=120, check=False, **running_as(ACCOUNT))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def configure(home: Path, server: Server) -> None:
    """That of the page, in folders of the test."""
    for name in ("repository", "logs", "spool", "lock"):
        (home / name).mkdir()
    (of_the_page,) = blocks(INCIDENTS, "ini")
    data = {"/var/lib/postgresql/15/main": str(server.data)}
    own = {"/backups/pgbackrest": f"{home}/repository", "...": "hidden-word", **data}
    (home / "pgbackrest.conf").write_text(
        f"{filled(of_the_page.text, own)}pg1-port={server.port}\npg1-user=suanpan\npg1-socket-path={home}\n"
        f"[global]\nlog-path={home}/logs\nlock-path={home}/lock\nspool-path={home}/spool\n"
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
        (archiving,) = (block.text for block in blocks(INCIDENTS, "") if block.text.startswith("archive_mode"))
        archiving = filled(archiving, {"'pgbackrest ": f"'{program('pgbackrest')} --config={home}/pgbackrest.conf "})
        settings = {name: value.strip("'") for name, value in (line.split(" = ") for line in archiving.splitlines())}
        settings["unix_socket_directories"] = str(home)
        begin, back_up = of_page(INCIDENTS, "pgbackrest --stanza=suanpan stanza-create")
        (restore,) = of_page(INCIDENTS, "pgbackrest --stanza=suanpan --delta")
        server.create()
        server.start(**settings)
        try:
            server.command("CREATE DATABASE suanpan")
            pgbackrest(home, begin)
            pgbackrest(home, back_up)
            billed = json.loads(python(server, "-m", "tests.operations.month").splitlines()[-1])
            ((instant,),) = server.ask("SELECT clock_timestamp()::text")
            server.command("DROP TABLE invoices_invoiceline CASCADE", "suanpan")
            server.command("SELECT pg_switch_wal()")
            server.end()
            pgbackrest(home, filled(restore, {"2026-11-02 09:14:00+08": instant}))
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
