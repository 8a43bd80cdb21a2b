"""Closing and issuing as tasks: a real broker that forgets, real workers that are killed, and the month is still right."""

import os
import signal
from pathlib import Path

import psycopg
import pytest
import redis

from billing.closing.services.operations import operation_request
from billing.closing.tasks import operation_wake, operations_resume
from billing.corrections.services.proof import period_verify
from billing.invoices.models import BillingPeriod, Invoice, Operation
from billing.rating.models import Charge
from billing.usage.epochs import USAGE_LOCK
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.servers import environment, is_done, until, worker

pytestmark = pytest.mark.django_db(transaction=True)


def forget_everything() -> None:
    client = redis.Redis.from_url(os.environ["BROKER_URL"])
    client.flushall()
    client.close()


@pytest.fixture(autouse=True)
def a_month_of_usage(tmp_path: Path) -> None:
    forget_everything()
    apply(tmp_path)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv"))
    ingest_tokens(token_record(1))


def test_a_worker_closes_and_issues_through_the_broker() -> None:
    with worker():
        close = operation_request(kind="close", month="2026-10", actor="finance", wake=operation_wake)
        until(lambda: is_done(close))
        issue = operation_request(kind="issue", month="2026-10", actor="finance", wake=operation_wake)
        until(lambda: is_done(issue))
    assert list(Invoice.objects.order_by("number").values_list("number", "team__code")) == [
        ("AI-INFRA-2026-000001", "cv"),
        ("AI-INFRA-2026-000002", "nlp"),
    ]


def test_a_worker_killed_in_the_middle_of_a_close_is_followed_by_another() -> None:
    with psycopg.connect(environment()["DATABASE_URL"]) as blocker:
        blocker.execute("SELECT pg_advisory_lock_shared(%s)", [USAGE_LOCK])  # an ingest that takes its time
        with worker() as first:
            close = operation_request(kind="close", month="2026-10", actor="finance", wake=operation_wake)
            until(lambda: Operation.objects.get(pk=close.pk).attempts == 1)
            os.killpg(first.pid, signal.SIGKILL)
    assert not BillingPeriod.objects.exclude(status=BillingPeriod.Status.OPEN).exists()
    with worker():
        operations_resume()
        until(lambda: is_done(close))
    assert close.attempts == 2
    assert Invoice.objects.count() == 2
    assert Charge.objects.count() == 5  # two of GPUs; input, cached input and output of one consumer
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_two_workers_woken_for_the_same_close_bring_it_about_once() -> None:
    with worker(), worker():
        close = operation_request(kind="close", month="2026-10", actor="finance", wake=operation_wake)
        for _ in range(10):
            operation_wake(close.pk)
        until(lambda: is_done(close))
    assert close.attempts == 1
    assert Invoice.objects.count() == 2
