"""`/metrics`: numbers of the ledger, the same from every process, without anybody's name."""

from datetime import timedelta

import pytest
from celery.signals import before_task_publish
from django.conf import settings
from django.test import Client, override_settings
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from billing.api.admission import gate
from billing.invoices.models import Operation
from billing.monitoring.tasks import NAME, heartbeat
from billing.tenancy.models import ApiToken, ConsumerOwnership, Team
from billing.tenancy.tokens import api_token_create
from billing.usage.models import AgentWatermark
from billing.usage.services import rollups_fold
from tests.factories import ingest_tokens, token_record

pytestmark = pytest.mark.django_db


def samples() -> dict[tuple[str, str], float]:
    answer = Client().get("/metrics")
    assert answer["Content-Type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.content.decode())
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, "".join(s.labels.get(name, "") for name in ("reason", "part", "kind"))): s.value for s in samples}


def test_it_shows_what_waits_to_be_folded_and_what_waits_for_a_decision() -> None:
    ingest_tokens(token_record(1), token_record(2, output_tokens=-1), token_record(1, model="other"))
    shown = samples()
    assert (shown["suanpan_database_up", ""], shown["suanpan_broker_up", ""]) == (1, 1)
    assert shown["suanpan_rollup_deltas", ""] == 1
    assert shown["suanpan_quarantine_open", "invalid"] == 1
    assert shown["suanpan_quarantine_open", "conflict"] == 1
    rollups_fold()
    assert samples()["suanpan_rollup_deltas", ""] == 0


def test_it_shows_the_bodies_that_are_being_taken_in() -> None:
    with gate.admit(1234):
        assert samples()["suanpan_ingest_bytes_in_flight", ""] == 1234
    assert samples()["suanpan_ingest_bytes_in_flight", ""] == 0


def test_operations_that_wait_have_their_age_and_attempts() -> None:
    assert samples()["suanpan_operations_pending", ""] == 0
    Operation.objects.create(kind="close", month="2026-10", requested_by="ada", attempts=4)
    Operation.objects.create(kind="close", month="2026-09", requested_by="ada", status="done", attempts=9)
    Operation.objects.update(requested_at=timezone.now() - timedelta(hours=2))
    shown = samples()
    assert (shown["suanpan_operations_pending", ""], shown["suanpan_operation_attempts", ""]) == (1, 4)
    assert 7200 <= shown["suanpan_operation_age_seconds", ""] < 7260


def test_tokens_in_use_that_end_soon_are_counted() -> None:
    made, _ = api_token_create(name="agent", scopes=["usage:write"], source="hq-1", actor="t")
    assert samples()["suanpan_tokens_ending", ""] == 0
    ApiToken.objects.filter(pk=made.pk).update(expires_at=timezone.now() + timedelta(days=13), last_used_at=timezone.now())
    assert samples()["suanpan_tokens_ending", ""] == 1


def test_a_worker_shows_that_it_is_at_work_by_the_task_that_the_scheduler_sends() -> None:
    before = timezone.now().timestamp()
    assert (samples()["suanpan_heartbeat_timestamp_seconds", "worker"]) == 0
    before_task_publish.send(sender=NAME)
    assert samples()["suanpan_heartbeat_timestamp_seconds", "scheduler"] >= before
    assert samples()["suanpan_heartbeat_timestamp_seconds", "worker"] == 0
    heartbeat()
    assert samples()["suanpan_heartbeat_timestamp_seconds", "worker"] >= before
    assert NAME in {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}


def test_an_agent_counts_as_silent_when_it_is_more_than_an_hour_behind() -> None:
    AgentWatermark.objects.create(agent="gpu-agent", cluster="secret-cluster", watermark=timezone.now() - timedelta(hours=3))
    shown = samples()
    assert (shown["suanpan_sources_silent", "agent"], shown["suanpan_sources_silent", "gateway"]) == (1, 0)
    assert 10_800 <= shown["suanpan_source_silent_seconds", ""] < 10_860
    AgentWatermark.objects.update(watermark=timezone.now())
    assert samples()["suanpan_sources_silent", "agent"] == 0
    assert b"secret" not in Client().get("/metrics").content


def test_a_consumer_with_usage_and_without_an_owner_is_counted_until_it_has_one() -> None:
    now = timezone.now().isoformat()
    ingest_tokens(token_record(1, time=now), token_record(2, time=now, consumer="other"))
    assert samples()["suanpan_names_unowned", ""] == 2
    team = Team.objects.create(code="a", name="a")
    ConsumerOwnership.objects.create(team=team, source="*", consumer="other")
    assert samples()["suanpan_names_unowned", ""] == 1


def test_what_the_database_says_of_itself_is_shown() -> None:
    shown = samples()
    assert shown["suanpan_database_bytes", ""] > 1_000_000
    assert 1 <= shown["suanpan_database_connections", ""] <= shown["suanpan_database_connections_max", ""]
    assert abs(shown["suanpan_clock_ahead_seconds", ""]) < 5
    assert ("suanpan_database_disk_bytes", "") not in shown
    with override_settings(DATABASE_DISK_BYTES=5_000_000_000):
        assert samples()["suanpan_database_disk_bytes", ""] == 5_000_000_000


def test_it_names_nobody() -> None:
    ingest_tokens(token_record(1, source="secret-gateway", consumer="secret-team", output_tokens=-1))
    assert b"secret" not in Client().get("/metrics").content
