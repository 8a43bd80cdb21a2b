"""`/metrics`: numbers of the ledger, the same from every process, without anybody's name."""

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from billing.api.admission import gate
from billing.usage.services import rollups_fold
from tests.factories import ingest_tokens, token_record

pytestmark = pytest.mark.django_db


def samples() -> dict[tuple[str, str], float]:
    answer = Client().get("/metrics")
    assert answer["Content-Type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.content.decode())
    return {(s.name, s.labels.get("reason", "")): s.value for family in families for s in family.samples}


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


def test_it_names_nobody() -> None:
    ingest_tokens(token_record(1, source="secret-gateway", consumer="secret-team", output_tokens=-1))
    assert b"secret" not in Client().get("/metrics").content
