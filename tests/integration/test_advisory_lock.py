"""A lock that outlives transactions of its work, and is nobody else's behind a pooler that shares connections."""

import pytest
from django.db import connection, transaction

from billing.closing.services import operations
from billing.closing.services.operations import operation_request, operation_run
from billing.runtime.advisory_lock import advisory_lock
from tests.stored_rows import query

pytestmark = pytest.mark.django_db(transaction=True)
OURS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"


def own_locks() -> int:
    ((number,),) = query(OURS)
    return int(number)


def test_one_has_it_until_its_block_ends_whatever_it_commits() -> None:
    with advisory_lock(7, 1, wait=False) as first:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        with advisory_lock(7, 1, wait=False) as second, advisory_lock(7, 2, wait=False) as other:
            assert (first, second, other) == (True, False, True)
    with advisory_lock(7, 1, wait=True) as again:
        assert again


def test_it_ends_where_the_work_raises() -> None:
    with pytest.raises(ZeroDivisionError), advisory_lock(7, wait=False):
        raise ZeroDivisionError
    with advisory_lock(7, wait=False) as taken:
        assert taken


def test_the_connection_that_an_operation_works_on_holds_no_lock_between_its_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pooler of transactions gives that connection to somebody else, and the lock with it."""
    seen = list[int]()
    monkeypatch.setitem(operations.KINDS, "assess", lambda *_: seen.append(own_locks()) or operations.Message("looked"))
    done = operation_run(operation_id=operation_request(kind="assess", month="2026-10", actor="ops").pk)
    assert (done.status, seen, own_locks()) == ("done", [0], 0)
