"""What gateways send becomes TokenUsage: every format, record by record, with nothing but counts and identities left."""

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from metering.gateways import cloudevents, lago, litellm
from metering.gateways.naming import DEFAULT, naming_of, read_namings
from metering.gateways.translation import Translated, translate, unreadable
from metering.records import RecordError, TokenUsage
from tests.gateway_records import SECRET, cloud_event, lago_event, payload

NOW = datetime(2026, 10, 15, 4, 0, 0, 123456, tzinfo=UTC)
WHOLE = "a whole number from 0 to 1000000000000000"


def events(*given: Any, now: datetime = NOW, namings: Any = DEFAULT) -> Translated:
    raws = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in given]
    return translate(
        raws, partial(cloudevents.redacted, namings=namings), partial(cloudevents.usage, namings=namings, now=now)
    )


def lago_events(*given: Any, now: datetime = NOW) -> Translated:
    raws = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in given]
    return translate(
        raws, partial(lago.redacted, source="lago", namings=DEFAULT), partial(lago.usage, namings=DEFAULT, now=now)
    )


def payloads(*given: Any, consumer: tuple[str, ...] = litellm.CONSUMER) -> Translated:
    raws = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in given]
    return translate(raws, partial(litellm.redacted, source="litellm"), partial(litellm.usage, consumer=consumer))


def only(translated: Translated) -> TokenUsage:
    assert translated.rejected == []
    ((_, record, _),) = translated.records
    return record


def refusal(translated: Translated) -> str:
    assert translated.records == []
    (rejected,) = translated.rejected
    return str(rejected.error)


# CloudEvents


def test_an_event_of_the_openmeter_callback() -> None:
    record = only(events(cloud_event()))
    assert (record.source, record.id, record.consumer, record.model) == (
        "litellm-proxy", "chatcmpl-1", "alice", "demo-chat",
    )  # fmt: skip
    assert record.counts == (10, 0, 0, 20, 0)
    assert record.time == datetime(2026, 10, 15, 4, tzinfo=UTC)
    assert record.attributes == {"cache_counts": "unknown"}


def test_an_event_of_any_type_with_the_names_of_the_contract() -> None:
    data = {"model": "m", "input_tokens": 1000, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 50,
            "output_tokens": "100", "reasoning_output_tokens": 40, "provider": "vllm", "site": "hz",
            "status": "200"}  # fmt: skip
    record = only(events(cloud_event(type="request", data=data)))
    assert record.counts == (1000, 200, 50, 100, 40)
    assert (record.provider, record.site, record.status, record.attributes) == ("vllm", "hz", "200", None)


def test_a_total_of_an_event_is_the_sum_of_its_counts() -> None:
    data = {"model": "m", "prompt_tokens": 12, "completion_tokens": 20, "total_tokens": 102}
    assert refusal(events(cloud_event(data=data))) == "counts by name: total 102 is not input 12 + output 20"
    beside = {"model": "m", "input_tokens": 10, "cache_read_input_tokens": 80, "output_tokens": 5, "total_tokens": 95}
    assert only(events(cloud_event(type="chat", data=beside))).counts == (90, 80, 0, 5, 0)
    assert refusal(lago_events(lago_event(properties=data))) == "counts by name: total 102 is not input 12 + output 20"


COUNTED: dict[str, Any] = {"model": "m1", "input_tokens": 10_000_000, "output_tokens": 100_000}


@pytest.mark.parametrize(
    ("beside", "named"),
    [
        ({"cached_tokens": 9_000_000}, "cached_tokens 9000000"), ({"cached_tokens": "9000000"}, "cached_tokens 9000000"),
        ({"cache_read": 9e6}, "cache_read 9000000.0"), ({"cacheReadTokens": 4}, "cacheReadTokens 4"),
        ({"prompt_tokens_details": {"cached_tokens": 5}}, "prompt_tokens_details.cached_tokens 5"),
        ({"usage": {"more": [{"in": 7}]}}, "usage.more[0].in 7"), ({"audio_seconds": 30}, "audio_seconds 30"),
        ({"images": {"n": 4}}, "images.n 4"), ({"toolCalls": 2}, "toolCalls 2"), ({"service_tier": 3}, "service_tier 3"),
        ({"cache_hits": 0.5}, "cache_hits 0.5"), ({"what the tokens were": 3}, "(withheld-3) 3"),
        ({"cache_read_input_tokens": {"ephemeral": 8}}, "cache_read_input_tokens.ephemeral 8"),
        ({"tokens": [1] * 100}, "tokens[0] 1"), ({"cached_tokens": -1}, "cached_tokens -1"),
    ],
)  # fmt: skip
def test_a_number_that_may_be_usage_and_has_an_unknown_name_goes_to_quarantine(
    beside: dict[str, Any], named: str
) -> None:
    event, lago = cloud_event(type="chat", data=COUNTED | beside), lago_event(code="chat", properties=COUNTED | beside)
    for translated in (events(event), lago_events(lago)):
        assert refusal(translated) == f"{named} is not known"
        kept = json.loads(translated.rejected[0].raw)
        with pytest.raises(RecordError, match="is not known"):
            cloudevents.usage({**cloud_event(type="chat"), "data": kept.get("data", kept.get("properties"))},
                              namings=read_namings(""), now=NOW)  # fmt: skip
    assert refusal(events(cloud_event(type="chat", data=COUNTED, cachedtokens=8))) == "cachedtokens 8 is not known"
    assert refusal(lago_events(lago_event(code="chat", properties=COUNTED, tokens={"n": 8}))) == "tokens.n 8 is not known"


def test_other_numbers_of_an_event_and_zeros_are_no_usage() -> None:
    beside = {"latency_ms": 120, "score": 7, "token_cost": 0.5, "max_tokens": 4096, "cached_tokens": 0, "user": {"id": 9},
              "tokens_per_second": 80, "time_to_first_token": 0.2, "cost": 3, "price_per_1m_tokens": 2,
              "tier": "gold", "x-ratelimit-remaining-tokens": "149", "images": None, "stream_tokens": True}  # fmt: skip
    assert only(events(cloud_event(type="chat", data=COUNTED | beside))).counts == (10_000_000, 0, 0, 100_000, 0)
    assert only(lago_events(lago_event(code="chat", properties=COUNTED | beside))).counts == (10_000_000, 0, 0, 100_000, 0)


def test_numbers_of_an_event_that_are_no_usage_are_named_in_its_naming() -> None:
    namings = read_namings('{"chat": {"other_numbers": ["cache.entries", "tier"]}}')
    event = cloud_event(type="chat", data=COUNTED | {"cache": {"entries": 7}, "tier": 2})
    assert only(events(event, namings=namings)).counts == (10_000_000, 0, 0, 100_000, 0)
    assert refusal(events(event)) == "cache.entries 7 is not known"


def test_an_event_of_an_answer_to_no_input_goes_to_quarantine() -> None:
    nothing = {"model": "m", "input_tokens": 0, "output_tokens": 0}
    assert refusal(events(cloud_event(type="chat", data=nothing | {"output_tokens": 7}))) == (
        "input 0 of an answer with output 7"
    )
    assert refusal(events(cloud_event(type="chat", data=nothing))) == "a success that states no token counts"
    assert only(events(cloud_event(type="chat", data=nothing | {"status": "503"}))).counts == (0, 0, 0, 0, 0)


def test_names_can_be_configured_per_type() -> None:
    namings = read_namings('{"chat": {"model": "llm", "input_tokens": "in", "output_tokens": "out", "site": null}}')
    event = cloud_event(type="chat", data={"llm": "m", "in": 3, "out": 4})
    assert only(events(event, namings=namings)).counts == (3, 0, 0, 4, 0)
    assert naming_of("litellm_tokens", namings).input_tokens == "prompt_tokens"
    for wrong in ("{", "[]", '{"chat": {"inptu_tokens": "in"}}', '{"chat": 1}'):
        with pytest.raises(RecordError, match="namings of events"):
            read_namings(wrong)


def test_data_may_be_packed_as_base64() -> None:
    event = cloud_event(data_base64=b64encode(json.dumps(cloud_event()["data"]).encode()).decode())
    del event["data"]
    assert only(events(event)).counts == (10, 0, 0, 20, 0)


def test_the_binary_form_is_the_same_event() -> None:
    event = cloud_event(subject="团队 a")
    headers = {f"Ce-{name.title()}": value for name, value in event.items() if name != "data"}
    headers |= {"Ce-Subject": "%E5%9B%A2%E9%98%9F%20a", "Content-Type": "application/json", "Ce-Data": SECRET}
    assert cloudevents.is_binary(headers)
    binary = only(events(cloudevents.of_binary(headers, json.dumps(event["data"]).encode())))
    structured = only(events(event))
    assert binary == structured
    assert (binary.key, binary.content) == (structured.key, structured.content)
    assert not cloudevents.is_binary({"Content-Type": "application/json"})
    assert "no data" in refusal(events(cloudevents.of_binary(headers, SECRET.encode())))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"specversion": "0.3"}, "specversion must be '1.0', not \"0.3\""),
        ({"specversion": None}, "specversion must be '1.0', not null"),
        ({"subject": ""}, "subject is missing"), ({"subject": None}, "subject is missing"), ({"id": ""}, "id is missing"),
        ({"source": 7.5}, "source must be a text, not 7.5"), ({"type": None}, "type is missing"),
        ({"data": None}, "no data"),
        ({"data": [1]}, "no data"), ({"data": {"model": "m"}}, "prompt_tokens is missing"),
        ({"data": {"model": "", "prompt_tokens": 1, "completion_tokens": 1}}, "model is missing"),
        ({"data": {"model": "m", "prompt_tokens": 1, "completion_tokens": None}}, "completion_tokens is missing"),
        ({"data": {"model": "m", "prompt_tokens": -1, "completion_tokens": 1}}, f"prompt_tokens must be {WHOLE}, not -1"),
        ({"data": {"model": "m", "prompt_tokens": 1.5, "completion_tokens": 1}}, "prompt_tokens must be"),
        ({"data": {"model": "m", "prompt_tokens": True, "completion_tokens": 1}}, f"{WHOLE}, not true"),
        ({"data": {"model": "m", "prompt_tokens": "x", "completion_tokens": 1}}, "prompt_tokens must be"),
        ({"type": "other"}, "input_tokens is missing"),
        ({"type": "x", "data": {"model": "m", "input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 0}},
         "2 cached tokens"),
        ({"time": "noon"}, "RFC 3339"), ({"time": "2026-10-15T12:00:00"}, "RFC 3339"), ({"time": 1795209030}, "RFC 3339"),
        ({"time": ""}, "RFC 3339"), ({"time": "1999-01-01T00:00:00Z"}, "time"), ({"subject": "a\0b"}, "NUL"),
        ({"id": "x" * 513}, "longer than 512"),
    ],
)  # fmt: skip
def test_an_event_that_cannot_be_billed_says_why(changed: dict[str, Any], says: str) -> None:
    assert says in refusal(events(cloud_event(**changed)))


def test_a_bad_event_costs_itself_only() -> None:
    translated = events(cloud_event(), b"{broken", 7, cloud_event(id="chatcmpl-2"), b'{"id":"\xff"}', b"[" * 5000)
    assert [index for index, _, _ in translated.records] == [0, 3]
    assert [rejected.index for rejected in translated.rejected] == [1, 2, 4, 5]


# Records whose sender reports no time


@pytest.mark.parametrize(("read", "given"), [(events, cloud_event(time=None)), (lago_events, lago_event())])
def test_without_a_time_the_arrival_counts_and_a_second_arrival_is_the_same_record(read: Any, given: Any) -> None:
    first, second = only(read(given)), only(read(given, now=NOW + timedelta(days=40)))
    assert (first.time, second.time) == (NOW, NOW + timedelta(days=40))
    assert (first.key, first.content) == (second.key, second.content)
    assert first.attributes == {"cache_counts": "unknown", "time": "arrival"}


def test_without_a_time_other_counts_are_still_a_conflict() -> None:
    changed = lago_event(properties={"model": "demo-chat", "prompt_tokens": 11, "completion_tokens": 20})
    assert only(lago_events(lago_event())).content != only(lago_events(changed)).content


def test_a_reported_time_is_part_of_the_content() -> None:
    first, second = (only(events(cloud_event(time=f"2026-10-15T12:00:0{second}Z"))) for second in (0, 1))
    assert first.content != second.content
    assert first.content != only(events(cloud_event(time=None))).content


# Lago


def test_an_event_of_a_lago_client() -> None:
    record = only(lago_events(lago_event(timestamp=1792036800)))
    assert (record.source, record.id, record.consumer, record.model) == ("lago", "t-1", "alice", "demo-chat")
    assert record.time == datetime(2026, 10, 15, 4, tzinfo=UTC)
    assert record.counts == (10, 0, 0, 20, 0)


@pytest.mark.parametrize("reported", ["1792036800.250", 1792036800.25, "2026-10-15T04:00:00.25Z"])
def test_a_timestamp_in_every_way_that_lago_clients_write_it(reported: object) -> None:
    assert only(lago_events(lago_event(timestamp=reported))).time == datetime(2026, 10, 15, 4, 0, 0, 250000, tzinfo=UTC)


def test_the_customer_consumes_where_no_subscription_is_named() -> None:
    given = lago_event(external_subscription_id=None, external_customer_id="customer-1")
    assert only(lago_events(given)).consumer == "customer-1"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"transaction_id": ""}, "transaction_id is missing"), ({"code": None}, "code is missing"),
        ({"external_subscription_id": ""}, "external_subscription_id is missing"), ({"properties": None}, "no data"),
        ({"code": "storage", "properties": {"gb": 10}}, "input_tokens is missing"),
        ({"timestamp": "noon"}, 'RFC 3339 instant, not "noon"'), ({"timestamp": True}, "timestamp must be"),
        ({"timestamp": 1e300}, "timestamp"), ({"timestamp": "nan"}, "timestamp"), ({"timestamp": 0}, "time"),
    ],
)  # fmt: skip
def test_a_lago_event_that_cannot_be_billed_says_why(changed: dict[str, Any], says: str) -> None:
    assert says in refusal(lago_events(lago_event(**changed)))


# LiteLLM


def test_a_success_has_the_counts_of_its_usage_object() -> None:
    record = only(payloads(payload()))
    assert record.counts == (100, 64, 0, 30, 12)
    assert (record.source, record.consumer, record.model, record.provider, record.status) == (
        "litellm", "team-1", "demo-chat", "openai", "success",
    )  # fmt: skip
    assert record.time == datetime(2026, 11, 20, 21, 10, 30, 350369, tzinfo=UTC)
    assert record.attributes == {"call_id": "call-1", "response_id": "chatcmpl-1"}


def test_without_a_usage_object_the_totals_count_and_the_cache_is_unknown() -> None:
    record = only(payloads(payload(metadata={"usage_object": None})))
    assert record.counts == (100, 0, 0, 30, 0)
    assert record.attributes == {"cache_counts": "unknown", "call_id": "call-1", "response_id": "chatcmpl-1"}


def test_a_rerank_has_nothing_but_a_total() -> None:
    given = payload(metadata={"usage_object": {}}, prompt_tokens=0, completion_tokens=0, total_tokens=56)
    assert only(payloads({**given, "call_type": "arerank"})).counts == (56, 0, 0, 0, 0)
    assert refusal(payloads(given)) == "OpenAI chat: total 56 is not input 0 + output 0"


def test_a_success_that_states_no_tokens_is_not_taken_for_one_without_any() -> None:
    given = payload(metadata={"usage_object": {}}, prompt_tokens=0, completion_tokens=0, total_tokens=0)
    assert refusal(payloads(given)) == "a success that states no token counts"
    record = only(payloads({**given, "call_type": "amoderation", "response_cost": 0}))
    assert (record.counts, (record.attributes or {})["usage_source"]) == ((0, 0, 0, 0, 0), "none")


@pytest.mark.parametrize("call_type", [
    "aimage_generation", "aspeech", "atranscription", "pass_through_endpoint", "allm_passthrough_route", "_arealtime",
    "call_mcp_tool", "arerank", "avector_store_search", "", None,
])  # fmt: skip
@pytest.mark.parametrize("usage", [
    None, {}, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0, "output_image_count": 4},
])  # fmt: skip
def test_a_success_of_another_kind_without_tokens_is_paid_by_the_call_with_what_the_gateway_charged(
    call_type: str | None, usage: dict[str, int] | None
) -> None:
    given = payload(call_type=call_type, metadata={"usage_object": usage}, response_cost=0.04,
                    prompt_tokens=0, completion_tokens=0, total_tokens=0)  # fmt: skip
    (rejected,) = payloads(given).rejected
    assert str(rejected.error) == "paid by the call: model demo-chat has no tokens"
    assert json.loads(rejected.raw)["payload"]["response_cost"] == 0.04


@pytest.mark.parametrize("call_type", ["aretrieve_batch", "aget_responses", "acreate_file", "alist_batches"])
def test_a_call_that_uses_nothing_is_paid_by_the_call_only_where_the_gateway_charged_it(call_type: str) -> None:
    given = payload(call_type=call_type, metadata={"usage_object": None}, prompt_tokens=0, completion_tokens=0,
                    total_tokens=0)  # fmt: skip
    assert only(payloads({**given, "response_cost": None})).counts == (0, 0, 0, 0, 0)
    assert "paid by the call" in refusal(payloads({**given, "response_cost": "0.5"}))


def test_a_usage_object_that_nobody_knows_is_kept_with_all_its_numbers() -> None:
    unknown = {"tokens": {"in": 30, "out": 4, "why": SECRET}, "sum": "34"}
    (rejected,) = payloads(payload(metadata={"usage_object": unknown})).rejected
    assert str(rejected.error) == "usage of no known API: sum, tokens.in, tokens.out"
    kept = json.loads(rejected.raw)["payload"]["metadata"]["usage_object"]
    assert kept == {"tokens": {"in": 30, "out": 4, "why": ""}, "sum": "34"}


@pytest.mark.parametrize("usage", [
    {"prompt_tokens": 100}, {"completion_tokens": 30}, {"prompt_tokens": 100, "total_tokens": 130},
    {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}}, {"output_tokens": 30, "total_tokens": 130},
])  # fmt: skip
def test_a_count_that_the_usage_object_leaves_out_is_that_of_the_totals_beside_it(usage: dict[str, Any]) -> None:
    """litellm#33688"""
    assert only(payloads(payload(metadata={"usage_object": usage}))).counts == (100, 0, 0, 30, 0)
    assert "not stated" in refusal(payloads(payload(metadata={"usage_object": {"prompt_tokens": 99}})))


def test_a_number_beside_the_totals_of_a_payload_that_may_be_usage_goes_to_quarantine() -> None:
    beside = {"cache_creation_input_tokens": 30, "response_time": 4.5, "cache_key": "12", "saved_cache_cost": 0.1}
    (rejected,) = payloads(payload(**beside)).rejected
    assert str(rejected.error) == "cache_creation_input_tokens 30 is not known"
    assert json.loads(rejected.raw)["payload"]["cache_creation_input_tokens"] == 30


def test_a_batch_that_is_fetched_again_is_the_same_record_whatever_its_call_id() -> None:
    """litellm#12084"""
    given = payload(call_type="aretrieve_batch", id="batch_1")
    first, again = (only(payloads({**given, "litellm_call_id": name, "startTime": at}))
                    for name, at in (("call-1", 1795209030.0), ("call-2", 1795209990.0)))  # fmt: skip
    assert (first.key, first.content) == (again.key, again.content)
    other = payload(call_type="aretrieve_batch", id="batch_1", prompt_tokens=101, total_tokens=131,
                    metadata={"usage_object": {"prompt_tokens": 101, "completion_tokens": 30}})  # fmt: skip
    assert only(payloads(other)).content != first.content


def test_a_usage_object_of_gemini_itself_is_read() -> None:
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 50, "thoughtsTokenCount": 30, "totalTokenCount": 180}
    assert only(payloads(payload(metadata={"usage_object": usage}))).counts == (100, 0, 0, 80, 30)


def test_a_failure_is_a_record_without_tokens() -> None:
    given = payload(status="failure", model_group="", model="", prompt_tokens=0, completion_tokens=0, total_tokens=0,
                    metadata={"usage_object": {}}, error_information={"error_code": "429"}, error_str=SECRET)  # fmt: skip
    record = only(payloads(given))
    assert record.counts == (0, 0, 0, 0, 0)
    assert (record.status, record.model) == ("failure", "(none)")
    assert record.attributes == {
        "cache_counts": "unknown", "usage_source": "none", "call_id": "call-1", "response_id": "chatcmpl-1",
        "error_code": "429",
    }  # fmt: skip


def test_an_answer_from_litellms_own_cache_used_no_tokens() -> None:
    """It repeats the counts of the first answer and costs nothing in LiteLLM: no model worked on it.

    At 2.0000 and 8.0000 for 1M tokens, 10,000 such answers of 100 + 30 tokens would be charged 2.00 + 2.40.
    """
    record = only(payloads(payload(id="chatcmpl-1_cache_hit1795209040.25", cache_hit=True)))
    assert record.counts == (0, 0, 0, 0, 0)
    assert (record.attributes or {})["usage_source"] == "gateway_cache"
    assert only(payloads(payload(cache_hit=False))).counts == (100, 64, 0, 30, 12)


@pytest.mark.parametrize(
    ("code", "usage", "classes", "source"),
    [
        ("400", {"prompt_tokens": 2900, "completion_tokens": 0, "total_tokens": 2900}, (0, 0, 0, 0, 0), "none"),
        ("408", {"prompt_tokens": 2900, "completion_tokens": 0, "total_tokens": 2900}, (0, 0, 0, 0, 0), "none"),
        ("503", {"prompt_tokens": 2900, "completion_tokens": 40, "total_tokens": 2940}, (2900, 0, 0, 40, 0),
         "gateway_estimate"),
        ("499", {"prompt_tokens": 2900, "completion_tokens": 0, "total_tokens": 2900}, (2900, 0, 0, 0, 0),
         "gateway_estimate"),
    ],
)  # fmt: skip
def test_what_litellm_estimates_of_a_failure_is_usage_only_where_something_was_answered(
    code: str, usage: dict[str, int], classes: tuple[int, int, int, int, int], source: str
) -> None:
    """Of what failed LiteLLM counts the prompt by itself, also where the provider refused it unread.

    At 2.0000 for 1M tokens, 1,000 refused requests of 2,900 tokens were charged 5.80.
    """
    given = payload(status="failure", error_information={"error_code": code}, metadata={"usage_object": usage}, **usage)
    record = only(payloads(given))
    assert record.counts == classes
    assert (record.status, (record.attributes or {})["usage_source"]) == ("failure", source)


def test_an_aborted_stream_is_marked_as_an_estimate_of_the_gateway() -> None:
    guessed = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}}
    given = payload(error_information={"error_code": "499"}, metadata={"usage_object": guessed})
    record = only(payloads(given))
    assert record.counts == (11, 0, 0, 3, 0)
    attributes = record.attributes or {}
    assert (attributes["usage_source"], attributes["cache_counts"]) == ("gateway_estimate", "unknown")


@pytest.mark.parametrize(
    "changed",
    [{"id": "chatcmpl-2"}, {"litellm_call_id": "call-2"}, {"status": "failure"}, {"startTime": 1795209030.350370},
     {"metadata": {"user_api_key_hash": "hash-2"}}],
)  # fmt: skip
def test_no_part_of_the_identity_alone_makes_two_requests_one(changed: dict[str, Any]) -> None:
    """A client chooses its call id, an upstream may repeat its response id, a fallback has the call id of the failure."""
    assert only(payloads(payload())).key != only(payloads(payload(**changed))).key


def test_a_callback_that_fires_twice_is_a_duplicate() -> None:
    first, second = only(payloads(payload())), only(payloads(payload(endTime=1795209099.0, response_time=69)))
    assert (first.key, first.content) == (second.key, second.content)


def test_the_order_of_what_names_the_consumer_is_configured() -> None:
    assert only(payloads(payload(metadata={"user_api_key_team_id": None}))).consumer == "hash-1"
    assert only(payloads(payload(), consumer=("alias", "hash"))).consumer == "alias-1"
    assert only(payloads(payload(), consumer=litellm.read_consumer(" end_user_id "))).consumer == "mallory"
    assert litellm.read_consumer("") == ("team_id", "hash")
    with pytest.raises(RecordError, match="user_email is none of"):
        litellm.read_consumer("team_id,user_email")
    nobody = payload(metadata={"user_api_key_team_id": None, "user_api_key_hash": ""})
    assert "no consumer" in refusal(payloads(nobody))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"id": None}, "id is missing"), ({"status": None}, "status is missing"), ({"startTime": None}, "startTime must be"),
        ({"startTime": 1e300}, "instant, not 1e300"), ({"model": None, "model_group": None}, "model is missing"),
        ({"metadata": {"usage_object": {"prompt_tokens": 1, "completion_tokens": 1,
                                        "prompt_tokens_details": {"cached_tokens": 2}}}}, "2 cached"),
    ],
)  # fmt: skip
def test_a_payload_that_cannot_be_billed_says_why(changed: dict[str, Any], says: str) -> None:
    assert says in refusal(payloads(payload(**changed)))


# Nothing but counts and identities is left


def test_no_content_is_left_of_any_record_good_or_bad() -> None:
    long = SECRET * 40
    data = {**cloud_event()["data"], "prompt": SECRET, "response": {"text": SECRET}}
    everything = [
        events(cloud_event(data=data, knownext=SECRET), cloud_event(data=data, id="", prompt=SECRET), SECRET,
               cloud_event(subject={"text": SECRET}), cloud_event(id=long), f'{{"id": "{SECRET}"'.encode()),
        lago_events(lago_event(properties={**data}), lago_event(code="", properties=data, note=SECRET), [SECRET]),
        payloads(payload(), payload(status=None), payload(error_str=SECRET, request_tags=[SECRET], startTime=None),
                 payload(metadata={"usage_object": {"prompt_tokens": SECRET, "other": SECRET}}, error_information=SECRET),
                 payload(model={"text": SECRET}, model_group=long), payload(error_information={"error_code": SECRET}),
                 [SECRET], f'{{"messages": "{SECRET}'.encode()),
    ]  # fmt: skip
    for translated in everything:
        assert translated.rejected
        for _, record, kept in translated.records:
            assert SECRET not in repr(record) + kept.decode()
        for rejected in translated.rejected:
            assert SECRET not in rejected.raw.decode() + str(rejected.error)


def test_a_record_that_cannot_be_read_is_kept_as_its_length_and_hash() -> None:
    kept = msgspec.json.decode(unreadable(b"{broken"))
    assert kept["unreadable"]["bytes"] == 7
    assert unreadable(b"{broken") == unreadable(b"{broken") != unreadable(b"{broker")
