"""What every suite shares."""

import gc
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tests.hypothesis_profile  # noqa: F401 - a profile that holds wherever examples are made up

IN_CLICKHOUSE = os.environ.get("SUANPAN_TEST_TOKEN_STORE") == "clickhouse"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(services: None, django_db_modify_db_settings_parallel_suffix: None) -> None:
    """The services start before the first database of a test is made, and not before."""


@pytest.fixture(scope="module")
def for_all_tests(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder for fixtures of a module: what they store is there for all its tests, each of which undoes its own changes.

    For modules whose tests do not commit.
    """
    from django.db import transaction

    with django_db_blocker.unblock(), transaction.atomic():
        yield tmp_path_factory.mktemp("module")
        transaction.set_rollback(True)


@pytest.fixture(autouse=True)
def nothing_is_there_before_a_test_that_commits(request: pytest.FixtureRequest) -> None:
    """Nor in the plain tables of the token ledger. What it commits goes with it: `only_what_a_test_committed_is_deleted`."""
    marker = request.node.get_closest_marker("django_db")
    marked = marker is not None and marker.kwargs.get("transaction")
    if not marked and not {"transactional_db", "live_server"} & set(request.fixturenames):
        return
    request.getfixturevalue("transactional_db")
    from tests.stored_rows import database_emptied, token_shards_anew

    database_emptied()
    if IN_CLICKHOUSE:
        token_shards_anew()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ClickHouse leave out what is about the tables of PostgreSQL."""
    if IN_CLICKHOUSE:
        left_out = {item for item in items if item.get_closest_marker("postgresql")}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def token_server(django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A server of ClickHouse that keeps the token records of all tests of the session, in two shards.

    At the end connections that threads had beside their transactions are cut: the threads ended long before.
    """
    from django.conf import settings
    from django.db import connection

    from billing.usage.store.clickhouse import client, token_servers
    from billing.usage.store.sharded import tables_make
    from tests.clickhouse.servers import replicas

    with replicas(tmp_path_factory.mktemp("clickhouse"), 1) as (only,), pytest.MonkeyPatch.context() as patch:
        address = f"clickhouse://{only.address};{only.address}/tokens"
        patch.setattr(settings, "TOKEN_STORE", address)
        patch.setenv("TOKEN_STORE", address)
        servers = token_servers()
        assert servers is not None
        tables_make(servers)
        yield
        client().close()
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            idle = "datname = current_database() AND state = 'idle'"
            cursor.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {idle}")


@pytest.fixture(scope="module", autouse=True)
def token_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """With SUANPAN_TEST_TOKEN_STORE=clickhouse the tests keep token records there (`make clickhouse`).

    What a test wrote there counts for no other: of a test that commits nothing its batches stay open, and after one that
    commits the shards begin anew, as after a restore.
    """
    if not IN_CLICKHOUSE:
        yield
        return
    from billing.usage.store.sharded import beside_close
    from tests.stored_rows import token_shards_anew

    request.getfixturevalue("django_db_setup")
    request.getfixturevalue("token_server")
    with request.getfixturevalue("django_db_blocker").unblock():
        token_shards_anew()
    yield
    beside_close()


@pytest.fixture(scope="session", autouse=True)
def nothing_stays_frozen() -> Iterator[None]:
    """What is there before the first test is nobody's garbage: neither a collection looks through it nor a fork copies it.

    At the end extension modules miss what is set aside, by us or by parts of the installation that a test starts.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def only_what_a_test_committed_is_deleted() -> Iterator[None]:
    """Django empties all tables after a test that commits, and fills types and permissions anew: most of its time.

    Here the rows that are there go. Tables that only grow refuse that, rightly, but not to a replica.
    """
    from django.test import TransactionTestCase

    from tests.stored_rows import database_emptied

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda self: database_emptied())
        yield


@pytest.fixture(scope="session", autouse=True)
def passwords_are_hashed_in_a_moment() -> Iterator[None]:
    """By the same algorithm as ever, with fewer rounds; who checks one reads their number from the hash."""
    from django.contrib.auth.hashers import PBKDF2PasswordHasher

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PBKDF2PasswordHasher, "iterations", 1000)
        yield


@pytest.fixture(scope="session", autouse=True)
def static_files_are_listed_once() -> Iterator[None]:
    """WhiteNoise lists them anew for every client: half the time of a test that opens one page."""
    from whitenoise.middleware import WhiteNoiseMiddleware

    listed: dict[str, Any] = {}
    list_them = WhiteNoiseMiddleware.add_files_from_finders

    def once(self: Any) -> None:
        if not listed:
            list_them(self)
            listed.update(self.files)
        self.files.update(listed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", once)
        yield


@pytest.fixture(scope="session", autouse=True)
def trusted_authorities_are_read_once() -> Iterator[None]:
    """httpx reads them anew for every client, 17 ms each: most of the time of a test that asks until something holds."""
    from httpx._transports import default

    read = default.create_ssl_context
    for_these = cache(lambda *given: read(*given[:3]))

    def once(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        return for_these(verify, cert, trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", once)
        yield


@pytest.fixture(autouse=True)
def nobody_has_chosen_a_language() -> Iterator[None]:
    """A request leaves the language of its reader with the thread, and so with the test that comes next."""
    yield
    from django.utils import translation

    translation.deactivate()
