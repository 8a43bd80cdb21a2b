"""What every suite shares."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tests.hypothesis_profile  # noqa: F401 - a profile that holds wherever examples are made up

KEPT = ("django_migrations", "django_content_type", "auth_permission", "django_site")
"""Tables that migrations fill and no test changes."""
FILLED = """SELECT string_agg(format('SELECT %%L WHERE EXISTS (SELECT FROM %%I)', relname, relname), ' UNION ALL ')
    FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
      AND relname <> ALL (%s)"""
RESTARTED = """SELECT setval(seq, 1, false) FROM (SELECT pg_get_serial_sequence(t.relname, c.attname) AS seq FROM pg_class t
    JOIN pg_attribute c ON c.attrelid = t.oid AND c.attidentity <> '' WHERE t.relname ~ '^token_' AND t.relkind IN ('r', 'p')
      AND NOT t.relispartition) s"""


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
def token_ledger_is_empty(request: pytest.FixtureRequest) -> Iterator[None]:
    """Empty the plain tables of the token ledger around tests that commit: Django's flush knows only its models."""
    marker = request.node.get_closest_marker("django_db")
    marked = marker is not None and marker.kwargs.get("transaction")
    if not marked and not {"transactional_db", "live_server"} & set(request.fixturenames):
        yield
        return
    request.getfixturevalue("transactional_db")
    _empty()
    yield
    _empty()


@pytest.fixture(scope="session", autouse=True)
def nothing_stays_frozen() -> Iterator[None]:
    """Parts of the installation that a test starts set aside for ever what is there: at the end extension modules miss
    it.
    """
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def only_what_a_test_committed_is_deleted() -> Iterator[None]:
    """Django empties all tables after a test that commits, and fills types and permissions anew: most of its time.

    Here the rows that are there go. Tables that only grow refuse that, rightly, but not to a replica.
    """
    from django.test import TransactionTestCase

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda self: _empty())
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


@pytest.fixture(autouse=True)
def nobody_has_chosen_a_language() -> Iterator[None]:
    """A request leaves the language of its reader with the thread, and so with the test that comes next."""
    yield
    from django.utils import translation

    translation.deactivate()


def _empty() -> None:
    from django.db import connection

    from billing.usage.services.token_dimensions import dimensions_forget

    with connection.cursor() as cursor:
        cursor.execute(FILLED, [list(KEPT)])
        cursor.execute(cursor.fetchone()[0])
        filled = [name for (name,) in cursor.fetchall()]
        verbs = ((name, "TRUNCATE" if name.startswith("token_") else "DELETE FROM") for name in filled)
        deletions = "".join(f"{verb} {name}; " for name, verb in verbs)
        cursor.execute(f"SET session_replication_role = replica; {deletions} SET session_replication_role = origin")
        cursor.execute(RESTARTED)
    dimensions_forget()
