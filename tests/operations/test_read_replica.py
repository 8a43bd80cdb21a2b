"""Pages that only show read a streaming replica, say through when it has everything, and do without it when it is behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from billing.local.process_list import free_port, server_argv
from billing.runtime.home import PROJECT
from billing.settings.read_replica import HEADER, PAGES
from tests.factories.servers import until
from tests.operations.postgres import Server, streaming_pair

SET_UP = """
import sys, django; django.setup()
from pathlib import Path
from django.core.management import call_command
from tests.factories import apply, person
call_command("migrate", verbosity=0, interactive=False)
apply(Path(sys.argv[1]))
person("fay", "finance")
from django.contrib.auth.models import User
fay = User.objects.get(username="fay"); fay.set_password("correct horse battery"); fay.save()
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    with streaming_pair() as servers:
        yield servers


@pytest.fixture(scope="module")
def web(pair: tuple[Server, Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web process with one worker, which is told of the replica; it may be 3 seconds behind."""
    primary, standby = pair
    home = tmp_path_factory.mktemp("home")
    where = {
        **os.environ, "DATABASE_URL": primary.url("suanpan"), "DATABASE_REPLICA_URL": standby.url("suanpan"),
        "DATABASE_REPLICA_MAX_LAG_SECONDS": "3", "BROKER_URL": "redis://127.0.0.1:1/0", "SUANPAN_HOME": str(home),
        "DJANGO_SETTINGS_MODULE": "billing.settings.base", "WEB_WORKERS": "1", "PYTHONPATH": str(PROJECT),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-P", "-c", SET_UP, str(home)], cwd=PROJECT, env=where, timeout=240, check=False)
    assert done.returncode == 0
    port = free_port()
    process = subprocess.Popen(server_argv(port), env=where, cwd=PROJECT)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def fay(web: str) -> Iterator[httpx.Client]:
    """Signed in, for longer than somebody who has just written something reads the primary."""
    with httpx.Client(base_url=web, timeout=60) as client:
        until(lambda: reachable(client))
        page = client.get("/login/").text
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert found is not None
        given = {"username": "fay", "login": "fay", "password": "correct horse battery", "csrfmiddlewaretoken": found[1]}
        answer = client.post("/login/", data=given)
        assert (answer.status_code, client.cookies.get("suanpan_wrote")) == (302, "1"), answer.text[:2000]
        client.cookies.delete("suanpan_wrote")
        yield client


def reachable(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def renamed(primary: Server, name: str) -> None:
    primary.command(f"UPDATE tenancy_team SET name = '{name}' WHERE code = 'nlp'", "suanpan")


def shown(client: httpx.Client, path: str = "/teams/nlp/?month=2026-10") -> tuple[bool, str]:
    """Whether the replica answered, and the page."""
    answer = client.get(path)
    assert answer.status_code == httpx.codes.OK
    assert (HEADER in answer.headers) == ("Read from a replica that has everything through" in answer.text)
    return HEADER in answer.headers, answer.text


def test_only_what_a_page_needs_to_show_is_read_there_and_the_page_says_through_when(
    pair: tuple[Server, Server], fay: httpx.Client
) -> None:
    primary, standby = pair
    until(lambda: shown(fay)[0], 30)
    instant = datetime.fromisoformat(fay.get("/invoices/").headers[HEADER])
    assert timedelta(0) <= datetime.now(UTC) - instant < timedelta(seconds=5)
    standby.command("SELECT pg_wal_replay_pause()")  # from here on what is new is on the primary only
    try:
        renamed(primary, "Language")
        assert [place for place in ("/close/", "/people/", "/prices/workbench/") if HEADER in fay.get(place).headers] == []
        by_replica, page = shown(fay)
        assert (by_replica, "Language" in page) == (True, False)  # within the 3 seconds
        until(lambda: not shown(fay)[0], 10)
        assert "Language" in shown(fay)[1]
    finally:
        standby.command("SELECT pg_wal_replay_resume()")
    until(lambda: shown(fay)[0], 30)
    assert "Language" in shown(fay)[1]


def test_who_has_just_changed_something_sees_it(pair: tuple[Server, Server], fay: httpx.Client) -> None:
    until(lambda: shown(fay)[0], 30)
    fay.cookies.set("suanpan_wrote", "1")
    assert shown(fay)[0] is False


def test_a_page_that_is_not_there_yet_is_looked_for_on_the_primary(pair: tuple[Server, Server], fay: httpx.Client) -> None:
    primary, standby = pair
    until(lambda: shown(fay)[0], 30)
    standby.command("SELECT pg_wal_replay_pause()")
    try:
        primary.command("UPDATE tenancy_team SET code = 'fresh' WHERE code = 'cv'", "suanpan")
        answer = fay.get("/teams/fresh/?month=2026-10")
        assert (answer.status_code, HEADER in answer.headers) == (200, False)
    finally:
        standby.command("SELECT pg_wal_replay_resume()")


def test_a_right_that_was_taken_away_is_gone_at_once(pair: tuple[Server, Server], fay: httpx.Client) -> None:
    primary, standby = pair
    until(lambda: shown(fay)[0], 30)
    standby.command("SELECT pg_wal_replay_pause()")
    try:
        primary.command("UPDATE auth_user SET is_active = false WHERE username = 'fay'", "suanpan")
        assert fay.get("/invoices/").status_code == 302
    finally:
        primary.command("UPDATE auth_user SET is_active = true WHERE username = 'fay'", "suanpan")
        standby.command("SELECT pg_wal_replay_resume()")


def test_without_the_replica_pages_go_on_and_find_it_again(pair: tuple[Server, Server], fay: httpx.Client) -> None:
    primary, standby = pair
    until(lambda: shown(fay)[0], 30)
    primary.command("ALTER SYSTEM SET synchronous_standby_names = ''")
    primary.command("SELECT pg_reload_conf()")
    standby.end(signal.SIGQUIT)
    assert shown(fay)[0] is False
    standby.start()
    until(lambda: shown(fay)[0], 30)


def test_every_named_page_is_a_page() -> None:
    from billing.portal.urls import urlpatterns

    assert PAGES - {pattern.name for pattern in urlpatterns} == set()
