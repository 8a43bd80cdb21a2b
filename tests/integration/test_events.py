"""The endpoints for gateways with a format of their own: CloudEvents, Lago, LiteLLM, up to the rows of the ledger."""

import gzip
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.utils import timezone

from billing.tenancy.models import ApiToken
from billing.usage.models import QuarantinedRecord
from billing.usage.services import quarantine_replay
from metering.gateways.naming import read_namings
from tests.factories import token_record
from tests.factories.api import gateway, problem
from tests.gateway_records import SECRET, cloud_event, lago_event, payload
from tests.stored_rows import query, token_events

pytestmark = pytest.mark.django_db

CAPTURES = Path(__file__).parents[1] / "golden" / "captures"
FAR_AHEAD = 10**9
PLAIN = "application/json"
CLOUD = "application/cloudevents+json"
CLOUD_BATCH = "application/cloudevents-batch+json"
Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def clock_of_the_captures() -> Any:
    """The captures are of November 2026: on a machine whose clock is behind they would lie in the future."""
    with override_settings(FUTURE_TOLERANCE_SECONDS=FAR_AHEAD, STATIC_ROOT=None):
        yield


@pytest.fixture
def post(db: None) -> Call:
    return gateway()


def ledger() -> dict[tuple[str, str, str], tuple[int, ...]]:
    """(source, consumer, model) -> requests, and the five counts, as every reader sums them."""
    rows = query(
        f"""SELECT source, consumer, model, count(*), sum(input_tokens), sum(cache_read_input_tokens),
                  sum(cache_creation_input_tokens), sum(output_tokens), sum(reasoning_output_tokens)
             FROM {token_events()} JOIN token_dimension ON token_dimension.id = dimension GROUP BY 1, 2, 3"""
    )
    return {row[:3]: tuple(int(value) for value in row[3:]) for row in rows}


def times() -> list[datetime]:
    return [time for (time,) in query(f"SELECT time FROM {token_events()} ORDER BY time")]


def answered(accepted: int, duplicates: int = 0, conflicts: int = 0) -> dict[str, Any]:
    return {"accepted": accepted, "duplicates": duplicates, "conflicts": conflicts, "rejected": []}


# What a real LiteLLM proxy sent


def replay(client: Client, name: str, path: str | None = None) -> Any:
    """Send a captured request as it is: its headers and its body, and a token that has the secret it presents."""
    head, _, body = (CAPTURES / f"{name}.http").read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
    request, *lines = head.decode().split("\n")
    headers = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    presented = headers["authorization"].removeprefix("Bearer ")
    ApiToken.objects.get_or_create(
        digest=sha256(presented.encode()).hexdigest(),
        defaults={"name": presented, "prefix": presented[:8], "scopes": ["usage:write"]},
    )
    body = body[: int(headers["content-length"])]
    return client.generic(
        "POST", path or request.split()[1], body, content_type=headers.pop("content-type"), headers=headers
    )


CAPTURED: dict[str, dict[tuple[str, str, str], tuple[int, ...]]] = {
    "generic-001": {
        ("litellm", "litellm_proxy_master_key", "demo-chat"): (2, 20, 0, 0, 40, 0),
        ("litellm", "litellm_proxy_master_key", "nope"): (1, 0, 0, 0, 0, 0),
    },
    "lago-001": {("lago", "alice@team-a", "demo-chat"): (1, 10, 0, 0, 20, 0)},
    "lago-002": {("lago", "bob@team-b", "demo-chat"): (1, 10, 0, 0, 20, 0)},
    "openmeter-001": {("litellm-proxy", "alice@team-a", "demo-chat"): (1, 10, 0, 0, 20, 0)},
    "openmeter-002": {("litellm-proxy", "bob@team-b", "demo-chat"): (1, 16, 0, 0, 8, 0)},
    "openmeter-003": {("litellm-proxy", "default_user_id", "demo-chat"): (1, 10, 0, 0, 20, 0)},
}
OUR_DOOR = {"generic-001": "/api/v1/usage/litellm"}
"""The generic logger posts to whatever address it is given; the others to paths of their own."""


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.http")), ids=lambda path: path.stem)
def test_every_captured_request_is_taken_as_it_is_and_gives_these_tokens(client: Client, path: Path) -> None:
    for _ in range(2):
        answer = replay(client, path.stem, OUR_DOOR.get(path.stem))
        assert 200 <= answer.status_code < 300
        assert ledger() == CAPTURED[path.stem]
    assert not QuarantinedRecord.objects.exists()


def test_the_openmeter_callback_is_taken_as_it_is(client: Client) -> None:
    for _ in range(2):
        for number in (1, 2, 3):
            answer = replay(client, f"openmeter-00{number}")
            assert (answer.status_code, answer.content) == (204, b"")
    assert times()[0] == datetime(2026, 11, 20, 21, 9, 18, 707399, tzinfo=UTC)


def test_the_lago_callback_is_taken_as_it_is(client: Client) -> None:
    sent = {"lago-001": "3cf0b79a-e7b7-42c5-88d2-d79cde7d702d", "lago-002": "b5a6c057-6dc9-452c-862f-7555f1a3e0c5"}
    lago_ids = set()
    for _ in range(2):
        for name, transaction in sent.items():
            answer = replay(client, name)
            assert answer.status_code == 200
            event = answer.json()["event"]
            assert (event["transaction_id"], event["code"]) == (transaction, "litellm_tokens")
            assert event["properties"]["prompt_tokens"] == 10
            lago_ids.add(event["lago_id"])
    assert len(lago_ids) == 2


def test_the_generic_api_logger_is_taken_as_it_is(client: Client) -> None:
    assert replay(client, "generic-001", "/api/v1/usage/litellm").json() == answered(3)
    assert replay(client, "generic-001", "/api/v1/usage/litellm").json() == answered(0, duplicates=3)


def test_the_generic_api_logger_can_bill_another_field(client: Client) -> None:
    with override_settings(LITELLM_CONSUMER=("end_user_id",)):
        replay(client, "generic-001", "/api/v1/usage/litellm")
    assert ledger() == {
        ("litellm", "alice@team-a", "demo-chat"): (1, 10, 0, 0, 20, 0),
        ("litellm", "bob@team-b", "demo-chat"): (1, 10, 0, 0, 20, 0),
        ("litellm", "bob@team-b", "nope"): (1, 0, 0, 0, 0, 0),
    }


# Who may enter, and what a body may be


@pytest.mark.parametrize("endpoint", ["events", "events/batch", "usage/litellm"])
def test_the_endpoints_are_bounded_like_the_others(post: Call, endpoint: str) -> None:
    problem(post(endpoint, b" " * (17 * 1024 * 1024)), 413)
    problem(post(endpoint, b""), 400)
    problem(post(endpoint, b"[{},"), 400)
    assert not QuarantinedRecord.objects.exists()


def test_a_batch_has_at_most_10_000_records(post: Call) -> None:
    problem(post("events", [{}] * 10_001, CLOUD_BATCH), 413)
    problem(post("events/batch", {"events": [{}] * 10_001}), 413)
    problem(post("usage/litellm", [{}] * 10_001), 413)


def test_a_token_that_is_bound_reports_for_its_source_only() -> None:
    first, second, third = (gateway(source=source) for source in ("gw-1", "gw-2", "gw-3"))
    assert "may report for" in problem(first("events", cloud_event(), CLOUD), 400)["detail"]
    assert first("events", cloud_event(source="gw-1"), CLOUD).status_code == 204
    assert second("events", {"event": lago_event()}).status_code == 200
    assert third("usage/litellm", [payload()]).json() == answered(1)
    assert {source for source, _, _ in ledger()} == {"gw-1", "gw-2", "gw-3"}


# CloudEvents


def test_a_batch_is_answered_record_by_record(post: Call) -> None:
    body = [cloud_event(), cloud_event(), cloud_event(id="2", subject=""), 7, cloud_event(id="3")]
    answer = post("events", body, CLOUD_BATCH).json()
    assert (answer["accepted"], answer["duplicates"], answer["conflicts"]) == (2, 1, 0)
    assert [(item["index"], item["key"]) for item in answer["rejected"]] == [(2, "litellm-proxy/2"), (3, "")]
    assert QuarantinedRecord.objects.count() == 2
    assert post("events", body[:1]).json() == answered(0, duplicates=1)


def test_an_object_of_plain_json_is_an_event_as_openmeter_clients_send_it(post: Call) -> None:
    assert post("events", cloud_event()).status_code == 204
    packed = gzip.compress(json.dumps(cloud_event(id="2")).encode())
    assert post("events", packed, CLOUD + "; charset=utf-8", **{"Content-Encoding": "gzip"}).status_code == 204
    assert ledger() == {("litellm-proxy", "alice", "demo-chat"): (2, 20, 0, 0, 40, 0)}


def test_the_binary_form_is_the_same_event(post: Call) -> None:
    event = cloud_event()
    headers = {f"ce-{name}": value for name, value in event.items() if name != "data"}
    assert post("events", event["data"], **headers).status_code == 204
    assert post("events", event, CLOUD).status_code == 204
    assert ledger() == {("litellm-proxy", "alice", "demo-chat"): (1, 10, 0, 0, 20, 0)}


@pytest.mark.parametrize("body", [{}, cloud_event(subject=""), cloud_event(specversion="0.3"), b"{broken", b"7"])
def test_a_bad_event_alone_is_a_400_and_goes_to_quarantine(post: Call, body: object) -> None:
    for times_sent in (1, 2):
        assert problem(post("events", body, CLOUD), 400)["detail"]
        record = QuarantinedRecord.objects.get()
        assert (record.door, record.reason, record.times_received) == ("events", "invalid", times_sent)
    assert ledger() == {}


def test_an_event_of_the_future_is_a_400(post: Call) -> None:
    ahead = (timezone.now() + timedelta(days=2)).isoformat()
    with override_settings(FUTURE_TOLERANCE_SECONDS=86_400):
        assert "future" in problem(post("events", cloud_event(time=ahead), CLOUD), 400)["detail"]


def test_the_same_id_with_other_content_is_a_409_and_the_first_one_stays(post: Call) -> None:
    post("events", cloud_event(), CLOUD)
    assert "reported before" in problem(post("events", cloud_event(subject="bob"), CLOUD), 409)["detail"]
    assert ledger() == {("litellm-proxy", "alice", "demo-chat"): (1, 10, 0, 0, 20, 0)}
    assert QuarantinedRecord.objects.get().reason == "conflict"


PYTHON, JAVASCRIPT = "python-openmeter/1.0.0b236 Python/3.11.7 (Linux)", "node"
"""What OpenMeter's clients call themselves."""


@pytest.mark.parametrize(("agent", "all_taken"), [(PYTHON, 204), (JAVASCRIPT, 200), ("custom/1", 200)])
def test_clients_of_openmeter_learn_from_the_status_what_became_of_a_batch(post: Call, agent: str, all_taken: int) -> None:
    headers, good = {"User-Agent": agent}, [cloud_event(id="1"), cloud_event(id="2")]
    for _ in range(2):
        answer = post("events", good, CLOUD_BATCH, **headers)
        assert (answer.status_code, bool(answer.content)) == (all_taken, all_taken != 204)
    bad = [cloud_event(id="3"), cloud_event(id="4", data={"model": "m"})]
    conflict = [cloud_event(id="1", subject="bob"), cloud_event(id="5")]
    for batch, status, said in ((bad, 400, "prompt_tokens is missing"), (conflict, 409, "was reported before")):
        answer = post("events", batch, CLOUD_BATCH, **headers)
        assert answer.status_code == (200 if agent == "custom/1" else status)
        said_of = answer.json()
        assert (said_of["accepted"], len(said_of["rejected"]) + said_of["conflicts"]) == (1, 1)
        if agent != "custom/1":
            assert problem(answer, status)["detail"].startswith("1 of 2 events were not taken, all others were; event ")
            assert said in said_of["detail"]
    assert sum(counts[0] for counts in ledger().values()) == 4


def test_a_lago_client_learns_of_a_bad_event_in_its_batch(post: Call) -> None:
    batch = {"events": [lago_event(), lago_event(transaction_id="2", external_subscription_id="")]}
    answer = post("events/batch", batch, **{"User-Agent": "Lago Python v1.30.0"})
    said = problem(answer, 422)
    assert (said["accepted"], [event["transaction_id"] for event in said["events"]]) == (1, ["t-1"])
    assert (said["code"], list(said["error_details"])) == ("validation_errors", ["1"])
    changed = {"events": [lago_event(external_subscription_id="bob")]}
    again = post("events/batch", changed, **{"User-Agent": "Lago Python v1.30.0"}).json()
    assert again["error_details"] == {"0": {"transaction_id": ["value_already_exist"]}}
    assert post("events/batch", {"events": [lago_event()]}, **{"User-Agent": "Lago Python v1.30.0"}).status_code == 200


def test_an_event_for_each_class_of_a_request_is_refused_with_what_is_expected(post: Call) -> None:
    """OpenMeter's first example: its type of token is a text in the data."""
    for tokens in (120, "120"):
        event = cloud_event(type="prompt", data={"tokens": tokens, "model": "gpt4-turbo", "type": "input"})
        said = problem(post("events", event, CLOUD), 400)["detail"]
        assert said == "tokens: one event is one request with all its counts, in input_tokens and output_tokens"


def test_a_batch_must_be_an_array(post: Call) -> None:
    problem(post("events", cloud_event(), CLOUD_BATCH), 400)


def test_an_extension_named_event_does_not_make_a_cloudevent_one_of_lago(post: Call) -> None:
    assert post("events", cloud_event(event="x")).status_code == 204


def test_names_of_data_are_configured_by_type(post: Call) -> None:
    namings = read_namings('{"chat": {"model": "llm", "input_tokens": "in", "output_tokens": "out"}}')
    with override_settings(EVENT_NAMINGS=namings):
        assert post("events", cloud_event(type="chat", data={"llm": "m", "in": 3, "out": 4}), CLOUD).status_code == 204
    assert ledger() == {("litellm-proxy", "alice", "m"): (1, 3, 0, 0, 4, 0)}


def test_a_count_whose_name_is_unknown_is_in_quarantine_under_that_name_and_in_no_ledger(post: Call) -> None:
    data = {"model": "m1", "input_tokens": 10_000_000, "output_tokens": 100_000, "cached_tokens": 9_000_000, "note": SECRET}
    event = cloud_event(type="chat", data=data)
    assert problem(post("events", event, CLOUD), 400)["detail"] == "cached_tokens 9000000 is not known"
    batch = post("events", [event, cloud_event(id="2")], CLOUD_BATCH).json()
    assert (batch["accepted"], [item["error"] for item in batch["rejected"]]) == (1, ["cached_tokens 9000000 is not known"])
    lago = lago_event(code="chat", properties=data)
    answer = problem(post("events", {"event": lago}), 422)
    assert answer["error_details"] == {"event": ["cached_tokens 9000000 is not known"]}
    assert ledger() == {("litellm-proxy", "alice", "demo-chat"): (1, 10, 0, 0, 20, 0)}
    kept = [json.loads(entry.record) for entry in QuarantinedRecord.objects.order_by("pk")]
    assert [(record.get("data") or record["properties"])["cached_tokens"] for record in kept] == [9_000_000, 9_000_000]
    assert SECRET not in str(kept)


# Records whose sender reports no time


def test_an_event_without_a_time_keeps_the_time_of_its_first_arrival(post: Call) -> None:
    event = cloud_event()
    del event["time"]
    before = timezone.now()
    assert post("events", event, CLOUD).status_code == 204
    (first,) = times()
    assert before <= first <= timezone.now()
    assert post("events", event, CLOUD).status_code == 204
    assert post("events", [event, event], CLOUD_BATCH).json() == answered(0, duplicates=2)
    assert times() == [first]
    assert not QuarantinedRecord.objects.exists()
    changed = {**event, "data": {**event["data"], "prompt_tokens": 99, "total_tokens": 119}}
    problem(post("events", changed, CLOUD), 409)
    problem(post("events", cloud_event(), CLOUD), 409)  # a time that is reported now is something else than was reported


# Lago


def test_a_bad_event_of_a_lago_client_is_a_422_with_what_lago_says_beside_ours(post: Call) -> None:
    fields = problem(post("events", {"event": lago_event(external_subscription_id="")}), 422)
    assert (fields["code"], list(fields["error_details"])) == ("validation_errors", ["event"])
    post("events", {"event": lago_event()})
    changed = lago_event(external_subscription_id="bob")
    fields = problem(post("events", {"event": changed}), 422)
    assert fields["error_details"] == {"transaction_id": ["value_already_exist"]}
    assert QuarantinedRecord.objects.count() == 2
    assert ledger() == {("lago", "alice", "demo-chat"): (1, 10, 0, 0, 20, 0)}


def test_a_batch_of_a_lago_client_keeps_its_good_events(post: Call) -> None:
    bad, undated = lago_event(transaction_id="t-2", code=""), lago_event(transaction_id="t-3")
    batch = [lago_event(timestamp=1792036800), bad, undated, 7]
    answer = post("events/batch", {"events": batch}).json()
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (2, [1, 3])
    assert [event["transaction_id"] for event in answer["events"]] == ["t-1", "t-3"]
    assert datetime.fromisoformat(answer["events"][0]["timestamp"]) == datetime(2026, 10, 15, 4, tzinfo=UTC)
    again = post("events/batch", {"events": batch[:1]}).json()
    assert (again["duplicates"], len(again["events"])) == (1, 1)
    assert QuarantinedRecord.objects.filter(door="events/batch").count() == 2


# LiteLLM


def test_every_log_format_of_litellm_is_taken(post: Call) -> None:
    one, two, three = (payload(id=f"chatcmpl-{number}") for number in (1, 2, 3))
    assert post("usage/litellm", [one]).json() == answered(1)
    lines = "\n".join(json.dumps(item) for item in (one, two)).encode()
    assert post("usage/litellm", lines).json() == answered(1, duplicates=1)
    assert post("usage/litellm", json.dumps(three, indent=2).encode()).json() == answered(1)
    assert ledger() == {("litellm", "team-1", "demo-chat"): (3, 300, 192, 0, 90, 36)}


def test_a_failure_its_fallback_and_the_same_answer_from_the_cache_are_charged_once(post: Call) -> None:
    """LiteLLM states tokens of all three: those of the prompt that was refused, by its own count, and the answer twice."""
    failed = payload(id="call-1", status="failure", prompt_tokens=2900, completion_tokens=0, total_tokens=2900,
                     metadata={"usage_object": {}}, error_information={"error_code": "400"})  # fmt: skip
    cached = payload(id="chatcmpl-1_cache_hit1795209040.25", litellm_call_id="call-2", cache_hit=True)
    answer = post("usage/litellm", [failed, payload(), payload(status=None), payload(), cached]).json()
    assert (answer["accepted"], answer["duplicates"], [item["index"] for item in answer["rejected"]]) == (3, 1, [2])
    assert ledger() == {("litellm", "team-1", "demo-chat"): (3, 100, 64, 0, 30, 12)}


def test_usage_that_nobody_knows_is_in_quarantine_whole_and_in_no_ledger(post: Call) -> None:
    unknown = {"tokens": {"in": 30, "out": 4}, "sum": 34}
    answer = post("usage/litellm", [payload(metadata={"usage_object": unknown})]).json()
    assert (answer["accepted"], [item["error"] for item in answer["rejected"]]) == (
        0, ["usage of no known API: sum, tokens.in, tokens.out"],
    )  # fmt: skip
    data = {"model": "m", "prompt_tokens": 12, "completion_tokens": 20, "total_tokens": 102}
    assert post("events", cloud_event(data=data), CLOUD).status_code == 400
    kept = [json.loads(entry.record) for entry in QuarantinedRecord.objects.order_by("pk")]
    assert kept[0]["payload"]["metadata"]["usage_object"] == unknown
    assert kept[1]["data"] == data
    assert ledger() == {}


def test_what_a_gateway_guessed_can_be_found_in_the_ledger(post: Call) -> None:
    with override_settings(ESTIMATES_FROM=frozenset({"litellm"})):
        post("usage/litellm", [payload(error_information={"error_code": "499"})])
    found = query(f"SELECT attributes->>'usage_source', attributes->>'cache_counts' FROM {token_events()}")
    assert found == [("gateway_estimate", "unknown")]


def test_what_a_gateway_guessed_is_in_quarantine_unless_its_source_may_guess_or_somebody_accepts_it(post: Call) -> None:
    guess = {"attributes": {"usage_source": "gateway_estimate", "cache_counts": "unknown"}}
    said = "gateway_estimate: the provider of model demo-chat counted nothing, and source 'litellm' may not guess"
    aborted = payload(error_information={"error_code": "499"})
    assert [item["error"] for item in post("usage/litellm", [aborted]).json()["rejected"]] == [said]
    native = token_record(id="r-2", source="gw", **guess)
    (refused,) = post("usage/tokens", [native, token_record(id="r-3", source="gw")]).json()["rejected"]
    assert (refused["index"], "source 'gw' may not guess" in refused["error"]) == (0, True)
    with override_settings(ESTIMATES_FROM=frozenset({"*"})):
        assert post("usage/tokens", [token_record(id="r-4", source="gw", **guess)]).json() == answered(1)
    entry = QuarantinedRecord.objects.get(key="litellm/" + QuarantinedRecord.objects.earliest("pk").key.partition("/")[2])
    quarantine_replay(record_id=entry.pk, actor="lin", reason="the client left", now=timezone.now())
    assert sorted(source for source, _, _ in ledger()) == ["gw", "litellm"]


# Prompts and answers


def test_no_prompt_is_anywhere_in_the_database_or_in_a_log(post: Call, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    data = {**cloud_event()["data"], "prompt": SECRET}
    bodies: list[tuple[str, object, str]] = [
        ("usage/litellm", [payload(), payload(status=None), payload(id=None, error_str=SECRET), [SECRET]], PLAIN),
        ("usage/litellm", [payload(prompt_tokens=99, total_tokens=129, metadata={"usage_object": None})], PLAIN),
        ("usage/litellm", f'{{"messages": "{SECRET}"'.encode(), PLAIN),
        ("usage/litellm", f'[{{"messages": "{SECRET}"'.encode(), PLAIN),
        ("events", cloud_event(data=data, prompt=SECRET), CLOUD),
        ("events", cloud_event(data=data, subject="bob", prompt=SECRET), CLOUD),
        ("events", cloud_event(data=data, subject="", prompt=SECRET), CLOUD),
        ("events", f'{{"prompt": "{SECRET}"'.encode(), CLOUD),
        ("events", {"event": lago_event(properties=data, prompt=SECRET)}, PLAIN),
        ("events/batch", {"events": [lago_event(properties=data, code=""), SECRET]}, PLAIN),
    ]
    for endpoint, body, kind in bodies:
        assert SECRET not in post(endpoint, body, kind).content.decode()
    assert len(ledger()) == 3
    assert QuarantinedRecord.objects.count() == 10
    assert SECRET not in caplog.text
    assert _tables_with(SECRET) == []


def test_the_search_for_prompts_would_find_one(post: Call) -> None:
    post("usage/tokens", [token_record(1, attributes={"note": SECRET}), {"id": SECRET}])
    assert {token_events(), "usage_quarantinedrecord"} <= set(_tables_with(SECRET))


def _tables_with(marker: str) -> list[str]:
    """Tables of which any row holds the marker in any column: as text, in JSON, or as bytes."""
    found = []
    patterns = [f"%{marker}%", f"%{marker.encode().hex()}%"]
    with connection.cursor() as cursor:
        for table in [*connection.introspection.table_names(cursor), token_events()]:
            cursor.execute(f'SELECT count(*) FROM "{table}" AS t WHERE t::text LIKE ANY(%s)', [patterns])
            if cursor.fetchone()[0]:
                found.append(table)
    return found


# OpenAPI


def test_the_endpoints_are_described(client: Client) -> None:
    paths = client.get("/api/v1/schema/?format=json").json()["paths"]
    assert paths["/api/v1/events"]["post"]["operationId"] == "report_events"
    assert set(paths["/api/v1/events"]["post"]["responses"]) == {
        "200", "204", "400", "401", "403", "409", "413", "415", "422", "429", "503",
    }  # fmt: skip
    assert CLOUD_BATCH in paths["/api/v1/events"]["post"]["requestBody"]["content"]
    assert paths["/api/v1/events/batch"]["post"]["operationId"] == "report_lago_events"
    assert paths["/api/v1/usage/litellm"]["post"]["operationId"] == "report_litellm"
