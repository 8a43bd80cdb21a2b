"""Kong's http-log and APISIX's http-logger post their entries as they are: the records of the log readers, once each."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from billing.usage.models import QuarantinedRecord
from billing.usage.services import quarantine_replay
from metering.logs.formats import translator
from metering.records import TokenUsage
from tests.factories.api import gateway, problem, program
from tests.stored_rows import ledger

pytestmark = pytest.mark.django_db
CAPTURES = Path(__file__).parents[1] / "golden" / "captures"
KONG, APISIX = ((CAPTURES / f"{name}.json").read_text() for name in ("kong-http-log", "apisix-http-logger"))
ONE, NOTHING_NEW = {"accepted": 1, "duplicates": 0, "conflicts": 0}, {"accepted": 0, "duplicates": 1, "conflicts": 0}


@pytest.fixture(autouse=True)
def clock_of_the_captures(settings: Any) -> None:
    """The captures are of November 2026: on a machine whose clock is behind they would lie in the future."""
    settings.FUTURE_TOLERANCE_SECONDS = 10**9


def counts(answer: Any) -> dict[str, int]:
    assert answer.status_code == 200, answer.content
    return {name: answer.json()[name] for name in ONE}


def test_an_entry_of_kong_is_the_record_of_the_log_reader_and_sent_again_it_is_none() -> None:
    send = gateway(source="kong-hq")
    assert counts(send("usage/kong", KONG)) == ONE
    assert ledger() == [("kong-hq", "nlp-key-1", "gpt-4o", 1, 1200, 1000, 300)]
    assert counts(send("usage/kong", KONG)) == NOTHING_NEW
    assert counts(send("usage/kong", f"[{KONG}]")) == NOTHING_NEW  # max_batch_size above 1
    (read,) = translator("kong", source="kong-hq")(json.loads(KONG), "")
    assert isinstance(read, TokenUsage)
    assert read.id == "3f0f3c4f7f0b4f1aa6f1c2d9b7c1a550:1794189630250"
    assert counts(send("usage/tokens", b"[" + msgspec.json.encode(read) + b"]")) == NOTHING_NEW


def test_a_batch_of_apisix_counts_calls_passes_over_the_rest_and_keeps_what_has_no_counts() -> None:
    send = gateway(source="apisix-hq")
    answer = send("usage/apisix", APISIX)
    assert counts(answer) == ONE
    (refused,) = answer.json()["rejected"]
    assert refused["index"] == 2
    assert "no token counts for model qwen3-32b, status 200" in refused["error"]
    assert ledger() == [("apisix-hq", "nlp-key-1", "qwen3-32b", 1, 700, 0, 100)]
    kept = QuarantinedRecord.objects.get()
    assert kept.reason == "invalid"
    lines = "\n".join(json.dumps(line) for line in json.loads(APISIX))
    assert counts(send("usage/apisix", lines, "text/plain")) == NOTHING_NEW  # concat_method: new_line
    assert QuarantinedRecord.objects.count() == 1


def test_a_call_without_counts_is_in_the_ledger_once_a_person_has_added_them() -> None:
    gateway(source="apisix-hq")("usage/apisix", json.loads(APISIX)[2])
    entry = QuarantinedRecord.objects.get()
    fields = json.loads(entry.record)
    counts_of_the_bill = {
        "input_tokens": 60, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 7,
        "reasoning_output_tokens": 0,
    }  # fmt: skip
    corrected = json.dumps({**fields, **counts_of_the_bill})
    now = datetime(2026, 12, 1, tzinfo=UTC)
    quarantine_replay(record_id=entry.pk, actor="admin", reason="as billed", now=now, corrected=corrected)
    assert ledger() == [("apisix-hq", "cv-key-1", "qwen3-32b", 1, 60, 0, 7)]


def test_words_and_keys_of_clients_are_kept_nowhere() -> None:
    send = gateway(source="gw")
    entry = json.loads(KONG)
    entry["ai"]["proxy"]["usage"] = {"total_tokens": 1500}
    assert send("usage/kong", entry).json()["rejected"]
    assert send("usage/apisix", APISIX).json()["accepted"] == 1
    stored = str(list(QuarantinedRecord.objects.values())) + str(ledger())
    assert ("the words" in stored, "the-key-of-a-client" in stored) == (False, False)


def test_a_line_that_cannot_be_read_costs_its_neighbours_nothing_and_is_kept_as_a_digest() -> None:
    send = gateway(source="kong-hq")
    broken = {**json.loads(KONG), "started_at": "the words of a prompt"}
    answer = send("usage/kong", [broken, json.loads(KONG), 7])
    assert counts(answer) == ONE
    assert sorted(item["index"] for item in answer.json()["rejected"]) == [0, 2]
    assert "the words" not in str(list(QuarantinedRecord.objects.values_list("record", flat=True)))


def test_an_entry_without_an_id_of_its_own_is_known_by_all_that_it_says() -> None:
    send = gateway(source="apisix-hq")
    entry = json.loads(APISIX)[0]
    del entry["request"]["headers"]["x-request-id"], entry["response"]["headers"]["x-request-id"]
    assert counts(send("usage/apisix", entry)) == ONE
    assert counts(send("usage/apisix", dict(reversed(entry.items())))) == NOTHING_NEW
    assert counts(send("usage/apisix", {**entry, "latency": 1205})) == ONE


def test_a_token_without_a_source_reports_for_the_name_of_the_format_and_needs_the_scope() -> None:
    assert counts(gateway()("usage/kong", KONG)) == ONE
    assert ledger()[0][0] == "kong"
    problem(program("usage:read").post("/api/v1/usage/kong", KONG, "application/json"), 403)
