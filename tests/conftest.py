"""What every suite shares."""

from collections.abc import Iterator

import pytest


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
def tables_that_refuse_truncate_can_be_flushed() -> Iterator[None]:
    """Django empties every table after a test that commits; the tables that only grow would refuse it, rightly."""
    from django.db.backends.postgresql.operations import DatabaseOperations

    flush = DatabaseOperations.execute_sql_flush

    def flush_as_replica(self: DatabaseOperations, sql_list: list[str]) -> None:
        return flush(self, ["SET session_replication_role = replica;", *sql_list, "SET session_replication_role = origin;"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "execute_sql_flush", flush_as_replica)
        yield


@pytest.fixture(autouse=True)
def nobody_has_chosen_a_language() -> Iterator[None]:
    """A request leaves the language of its reader with the thread, and so with the test that comes next."""
    yield
    from django.utils import translation

    translation.deactivate()


def _empty() -> None:
    from django.db import connection

    from billing.usage.services import tokens

    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(tablename, ', ') FROM pg_tables WHERE tablename ~ '^token_'")
        cursor.execute(f"TRUNCATE {cursor.fetchone()[0]} RESTART IDENTITY")
    tokens._dimension_ids.clear()
