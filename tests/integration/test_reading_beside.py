"""Reads that are begun early: on a connection of their own outside of a transaction, within one only when asked for."""

import time
from datetime import UTC, datetime
from decimal import Decimal
from threading import Event

import pytest
from django.db import DatabaseError, connection, transaction

from billing.runtime.parallel_reads import deferred_check, deferred_query, parallel_reads, rows_read
from billing.tenancy.models import Team


def backend() -> int:
    return int(rows_read("SELECT pg_backend_pid()", {})[0][0])


@pytest.mark.django_db(transaction=True)
def test_a_read_that_is_begun_runs_beside_the_transaction_that_follows() -> None:
    with parallel_reads(), transaction.atomic():
        other = deferred_query(backend)
        mine = backend()
        assert other() != mine


@pytest.mark.django_db(transaction=True)
def test_what_it_raises_is_raised_where_it_is_asked_for() -> None:
    with parallel_reads(), transaction.atomic():
        broken = deferred_query(rows_read, "SELECT 1 / %(zero)s", {"zero": 0})
        assert backend()
        with pytest.raises(DatabaseError, match="division by zero"):
            broken()


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away_when_the_reads_begin_is_an_error_and_nobody_waits_for_ever() -> None:
    with parallel_reads(snapshot="of no transaction"), pytest.raises(DatabaseError):
        deferred_query(backend)()


@pytest.mark.django_db(transaction=True)
def test_what_is_needed_last_begins_when_no_other_read_waits() -> None:
    order, may_go_on = list[str](), Event()
    with parallel_reads(), transaction.atomic():
        first = deferred_query(may_go_on.wait, 30)
        check = deferred_check(order.append, "check")
        read = deferred_query(order.append, "read")
        may_go_on.set()
        assert first()
        check()
        read()
    assert order == ["read", "check"]


@pytest.mark.django_db
def test_within_a_transaction_a_read_runs_once_however_often_it_is_asked_for() -> None:
    with parallel_reads():
        asked = deferred_query(Team.objects.count)
        assert asked() == 0
        Team.objects.create(code="nlp", name="NLP", cost_center="CC-1")
        assert asked() == 0


@pytest.mark.django_db(transaction=True)
def test_its_connection_is_gone_afterwards() -> None:
    with parallel_reads():
        found = deferred_query(rows_read, "SELECT pg_backend_pid()", {})()
    asked = ("SELECT count(*) FROM pg_stat_activity WHERE pid = %(pid)s", {"pid": found[0][0]})
    ends = time.monotonic() + 30
    while rows_read(*asked) != [(0,)]:  # the server takes a moment to notice
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.django_db
def test_within_a_transaction_it_waits_until_it_is_asked_for_and_sees_what_was_written() -> None:
    assert connection.in_atomic_block
    with parallel_reads():
        asked = deferred_query(Team.objects.count)
        Team.objects.create(code="nlp", name="NLP", cost_center="CC-1")
        assert asked() == 1


@pytest.mark.django_db
def test_numbers_times_and_nothing_come_as_they_are() -> None:
    at = datetime(2026, 10, 1, tzinfo=UTC)
    found = rows_read("SELECT 1.20::numeric, %(at)s::timestamptz, NULL::text, 2::bigint, '100%%'", {"at": at})
    assert found == [(Decimal("1.20"), at, None, 2, "100%")]
    assert str(found[0][0]) == "1.20"
