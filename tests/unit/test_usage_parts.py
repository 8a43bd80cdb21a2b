"""Tier, finer counts, searches and tool calls, as each API, gateway and log states them."""

import json
from functools import partial
from typing import Any

import pytest

from metering.gateways import cloudevents, lago, litellm
from metering.gateways.naming import read_namings
from metering.gateways.translation import translate
from metering.logs.formats import translator
from metering.record_checks import RecordError
from metering.records import DETAILS, TokenUsage
from metering.request_tags import read_choices
from metering.token_usage import token_classes, without_texts
from tests.factories import AFTER
from tests.gateway_records import SECRET, cloud_event, lago_event, payload

CHAT = {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130}
ANTHROPIC = {"input_tokens": 70, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 5}
CHOICES = read_choices("product=request_tags,customer=metadata.client,team")


def details(record: TokenUsage) -> dict[str, Any]:
    return {name: value for name, value in zip(DETAILS, record.details, strict=True) if value is not None}


@pytest.mark.parametrize(("usage", "stated"), [
    ({**CHAT, "prompt_tokens_details": {"audio_tokens": 40, "image_tokens": 7, "cached_tokens": 50},
      "completion_tokens_details": {"audio_tokens": 12, "reasoning_tokens": 5}},
     {"audio_input_tokens": 40, "image_input_tokens": 7, "audio_output_tokens": 12}),
    ({**CHAT, "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": 0, "web_search_requests": 0}}, {}),
    ({"input_tokens": 100, "output_tokens": 30, "total_tokens": 130,  # Realtime: 60 of audio, 20 of it read from the cache
      "input_token_details": {"cached_tokens": 30, "audio_tokens": 60, "text_tokens": 40,
                              "cached_tokens_details": {"audio_tokens": 20, "text_tokens": 10}},
      "output_token_details": {"audio_tokens": 25, "text_tokens": 5}},
     {"audio_input_tokens": 40, "audio_output_tokens": 25}),
    ({"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 30, "output_tokens": 5,
      "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}, "service_tier": "priority",
      "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1}},
     {"service_tier": "priority", "cache_creation_1h_input_tokens": 20, "searches": 2, "tool_calls": 1}),
    ({**CHAT, "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_tokens": 30, "web_search_requests": 2,
                                        "cache_creation_token_details": {"ephemeral_5m_input_tokens": 10,
                                                                         "ephemeral_1h_input_tokens": 20}},
      "server_tool_use": {"web_search_requests": 2}}, {"cache_creation_1h_input_tokens": 20, "searches": 2}),
    ({"promptTokenCount": 100, "candidatesTokenCount": 30, "totalTokenCount": 130, "trafficType": "ON_DEMAND_PRIORITY",
      "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 50}, {"modality": "AUDIO", "tokenCount": 50}],
      "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 10}], "cachedContentTokenCount": 10,
      "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 30}]},
     {"service_tier": "on_demand_priority", "audio_input_tokens": 40, "image_output_tokens": 30}),
    ({"inputTokens": 10, "outputTokens": 5, "totalTokens": 45, "cacheReadInputTokens": 0, "cacheWriteInputTokens": 30,
      "cacheDetails": [{"ttl": "1h", "inputTokens": 20}, {"ttl": "5m", "inputTokens": 10}]},
     {"cache_creation_1h_input_tokens": 20}),
    ({**CHAT, "num_search_queries": 3, "service_tier": "default"}, {"service_tier": "standard", "searches": 3}),
    ({**CHAT, "num_server_side_tools_used": 4,
      "server_side_tool_usage_details": {"web_search_calls": 2, "x_search_calls": 1, "code_interpreter_calls": 1}},
     {"searches": 3, "tool_calls": 1}),
    ({**CHAT, "num_server_side_tools_used": 4}, {"tool_calls": 4}),
    ({**CHAT, "service_tier": SECRET + " and more"}, {"service_tier": "(other)"}),
    ({**ANTHROPIC, "speed": "fast"}, {"service_tier": "fast"}),
    ({**ANTHROPIC, "speed": "standard", "inference_geo": "us"}, {"service_tier": "geo-us"}),
    ({**ANTHROPIC, "service_tier": "standard", "inference_geo": "global"}, {"service_tier": "standard"}),
    ({**ANTHROPIC, "speed": "standard", "inference_geo": "not_available"}, {}),
    ({**ANTHROPIC, "service_tier": "standard", "speed": "fast", "inference_geo": "us"}, {"service_tier": "fast-geo-us"}),
    ({**ANTHROPIC, "service_tier": "priority", "inference_geo": "eu"}, {"service_tier": "priority-geo-eu"}),
    ({**ANTHROPIC, "speed": SECRET + " and more"}, {"service_tier": "(other)"}),
    ({**ANTHROPIC, "speed": None, "inference_geo": None}, {}),
])  # fmt: skip
def test_a_usage_object_states_tier_and_parts(usage: dict[str, Any], stated: dict[str, Any]) -> None:
    record = litellm.usage(litellm.redacted(payload(metadata={"usage_object": usage}), source="s"))
    assert details(record) == stated
    kept = without_texts(usage)
    assert SECRET not in json.dumps(kept)
    if stated.get("service_tier") != "(other)":
        assert token_classes(kept).details == token_classes(usage).details, "as quarantine keeps it"


def test_parts_that_fit_no_count_are_unknown_and_no_reason_to_refuse_tokens() -> None:
    usage = {**CHAT, "prompt_tokens_details": {"audio_tokens": 60, "cached_tokens": 64}}
    found = token_classes(usage)
    assert (found.details, found.remarks) == ({}, {"part_counts": "unknown"})


def test_two_names_of_a_count_that_disagree_are_refused() -> None:
    with pytest.raises(RecordError, match=r"web_search_requests 3 and server_tool_use.web_search_requests 2 contradict"):
        token_classes({**CHAT, "web_search_requests": 3, "server_tool_use": {"web_search_requests": 2}})


@pytest.mark.parametrize(("changed", "tier"), [
    ({"response": {"service_tier": "Flex"}, "model_parameters": {"service_tier": "auto"}}, "flex"),
    ({"response": {"service_tier": "default"}, "model_parameters": {"service_tier": "priority"}}, "standard"),
    ({"response": SECRET, "cost_breakdown": {"service_tier": "priority"}}, "priority"),
    ({"model_parameters": {"service_tier": "flex"}}, "flex"),
    ({"model_parameters": {"service_tier": "auto"}}, None),
    ({"model_parameters": {"service_tier": ["flex"]}, "service_tier": 3}, None),
    ({"call_type": "aretrieve_batch"}, "batch"),
    ({"model_parameters": {"speed": "fast", "service_tier": "auto"}}, "fast"),
    ({"response": {"service_tier": "priority"}, "model_parameters": {"inference_geo": "us"}}, "priority-geo-us"),
    ({"model_parameters": {"speed": "standard", "inference_geo": "global"}}, None),
    ({"status": "failure", "model_parameters": {"service_tier": "flex"}, "metadata": {"usage_object": {}},
      "prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}, None),
    ({"cache_hit": True, "response": {"service_tier": "flex"}}, None),
])  # fmt: skip
def test_what_was_given_goes_before_what_was_asked_for(changed: dict[str, Any], tier: str | None) -> None:
    """A request that used nothing is of no tier."""
    redacted = litellm.redacted(payload(model_id="east-2", **changed), source="s")
    record = litellm.usage(redacted)
    assert (record.details[0], SECRET in json.dumps(redacted)) == (tier, False)
    assert record.deployment == ("east-2" if record.counts[0] else None)


def test_litellm_states_chosen_tags_only() -> None:
    given = payload(
        request_tags=["product:chat-bot", f"user:{SECRET}", SECRET, 7, "User-Agent: curl"],
        metadata={"requester_metadata": {"client": "acme", "note": SECRET}, "spend_logs_metadata": {"team": SECRET}},
    )
    redacted = litellm.redacted(given, source="s", tags=CHOICES)
    assert redacted["tags"] == {"product": "chat-bot", "customer": "acme"}
    assert (litellm.usage(redacted).tags, SECRET in json.dumps(redacted)) == (redacted["tags"], False)
    assert "tags" not in litellm.redacted(given, source="s")
    beyond = payload(request_tags=["product:" + "x" * 513], metadata={"requester_metadata": {"client": {"a": SECRET}}})
    assert litellm.redacted(beyond, source="s", tags=CHOICES)["tags"] == {"product": True, "customer": True}
    assert litellm.redacted(beyond, source="s", tags=read_choices("c=metadata.client.a"))["tags"] == {"c": SECRET}


STATED = {
    "service_tier": "Flex", "deployment": "east-2", "hardware": "H800", "cache_creation_1h_input_tokens": 4,
    "audio_input_tokens": 3, "image_input_tokens": 2, "audio_output_tokens": 1, "image_output_tokens": 5, "searches": 6,
    "tool_calls": 7,
}  # fmt: skip
DATA = {
    "model": "m", "input_tokens": 100, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 5, "output_tokens": 20
}  # fmt: skip


def test_events_state_them_by_the_names_of_a_record() -> None:
    data = {**DATA, **STATED, "tags": {"team": "nlp", "user": SECRET}, "metadata": {"client": "acme", "x": SECRET},
            "request_tags": ["product:chat", SECRET]}  # fmt: skip
    namings, tags = read_namings('{"named": {"service_tier": "tier", "searches": "found"}}'), {"litellm-proxy": CHOICES}
    for kind, event, more in (
        (cloudevents, cloud_event(type="t", data=data), {"tags": tags}),
        (lago, lago_event(code="t", properties=data), {"tags": CHOICES, "source": "s"}),
    ):
        cut, read_as = partial(kind.redacted, namings=namings, **more), partial(kind.usage, namings=namings, now=AFTER)
        found = translate([json.dumps(event).encode()], cut, read_as)
        ((_, record, kept),) = found.records
        assert details(record) == {**STATED, "service_tier": "flex"}
        assert record.tags == {"team": "nlp", "customer": "acme", "product": "chat"}
        assert SECRET.encode() not in kept
    named = cloud_event(type="named", data={**DATA, "tier": "batch", "found": 2}, team="nlp", user=SECRET)
    redacted = cloudevents.redacted(named, namings=namings, tags=tags)
    record = cloudevents.usage(redacted, namings=namings, now=AFTER)
    assert (details(record), record.tags) == ({"service_tier": "batch", "searches": 2}, {"team": "nlp"})
    assert SECRET not in json.dumps(redacted)


@pytest.mark.parametrize("changed", [{"service_tier": 3}, {"searches": -1}, {"searches": 1.5}, {"audio_input_tokens": 86}])
def test_an_event_whose_optional_field_is_none_is_refused(changed: dict[str, Any]) -> None:
    event = cloudevents.redacted(cloud_event(type="t", data={**DATA, **changed}), namings={})
    with pytest.raises(RecordError):
        cloudevents.usage(event, namings={}, now=AFTER)


def read(name: str, fields: dict[str, Any], **options: Any) -> TokenUsage:
    (record,) = translator(name, source="gw", **options)(fields, "derived")
    assert isinstance(record, TokenUsage)
    return record


def test_speed_and_place_refine_the_tier_that_a_line_states_beside_its_usage_object() -> None:
    line = {"id": "r", "time": "2026-10-05T10:00:00Z", "user": "a", "model": "m", "tier": "priority",
            "usage": {**ANTHROPIC, "speed": "fast", "inference_geo": "us"}}  # fmt: skip
    mapping = {"id": ["id"], "time": "time", "consumer": "user", "model": "model", "usage": "usage", "service_tier": "tier"}
    assert details(read("json", line, mapping=mapping))["service_tier"] == "priority-fast-geo-us"
    assert details(read("json", line | {"tier": None}, mapping=mapping))["service_tier"] == "fast-geo-us"


def test_logs_state_them() -> None:
    envoy = {
        "start_time": "2026-10-05T10:00:00Z", "x-request-id": "r", "consumer": "a", "response_code": 200, "x-user": SECRET,
        "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20, "x-product": "chat",
        "gen_ai.usage.details.input_audio_tokens": 40, "gen_ai.usage.details.output_audio_tokens": 9,
        "gen_ai.openai.response.service_tier": "priority", "deployment": "east-2", "hardware": "H800",
    }  # fmt: skip
    record = read("envoy", envoy, tags="product=x-product,team=x-team")
    assert details(record) == {
        "service_tier": "priority", "deployment": "east-2", "hardware": "H800", "audio_input_tokens": 40,
        "audio_output_tokens": 9,
    }  # fmt: skip
    assert record.tags == {"product": "chat"}
    assert details(read("envoy", {**envoy, "deployment": {"name": "x"}, "hardware": 8}))["service_tier"] == "priority"
    mapping = {"time": "ts", "consumer": "who", "model": "model", "usage": "usage", "hardware": "gpu", "searches": "web",
               "tags": {"product": "p | q"}}  # fmt: skip
    line = {"ts": 1759658400, "who": "a", "model": "m", "gpu": "H20", "web": 2, "q": "chat", "r": SECRET,
            "usage": {**CHAT, "service_tier": "flex"}}  # fmt: skip
    record = read("json", line, mapping=mapping)
    assert details(record) == {"service_tier": "flex", "hardware": "H20", "searches": 2}
    assert record.tags == {"product": "chat"}
    kong = {"request": {"id": "r"}, "started_at": 1759658400000, "consumer": {"username": "a"}, "response": {"status": 200},
            "ai": {"proxy": {"meta": {"request_model": "m"}, "usage": {**CHAT, "num_search_queries": 1}}}}  # fmt: skip
    assert details(read("kong", kong)) == {"searches": 1}
    higress = {"request_id": "r", "start_time": "2026-10-05T10:00:00Z", "response_code": 200, "ai_log": json.dumps({
        "consumer": "a", "model": "m", "input_token": 100, "output_token": 20,
        "input_token_details": {"audio_tokens": 30, "cached_tokens": 0}, "output_token_details": {"image_tokens": 8},
    })}  # fmt: skip
    assert details(read("higress", higress)) == {"audio_input_tokens": 30, "image_output_tokens": 8}


def test_tables_state_them() -> None:
    other = {"cache_tokens": 10, "audio_input": 30, "text_input": 60, "audio_output": 4, "web_search_call_count": 2,
             "file_search_call_count": 1, "service_tier": "flex"}  # fmt: skip
    row = {"id": 7, "created_at": 1759658400, "type": 2, "username": "a", "model_name": "m", "prompt_tokens": 100,
           "completion_tokens": 20, "quota": 5, "group": "vip", "other": json.dumps(other)}  # fmt: skip
    record = read("new-api", row, tags="group=group")
    assert (details(record), record.tags) == (
        {"service_tier": "flex", "audio_input_tokens": 30, "audio_output_tokens": 4, "searches": 2, "tool_calls": 1},
        {"group": "vip"},
    )
    metadata = {"usage_object": {**CHAT, "prompt_tokens_details": {"image_tokens": 11}}, "note": SECRET,
                "cost_breakdown": {"service_tier": "flex"}, "spend_logs_metadata": {"client": "c"}}  # fmt: skip
    spend = {"request_id": "r", "call_type": "acompletion", "api_key": "k", "spend": 0.5, **CHAT, "model": "m",
             "startTime": "2026-10-05 10:00:00", "team_id": "nlp", "status": "success", "model_id": "east-2",
             "metadata": json.dumps(metadata), "request_tags": json.dumps(["product:chat", SECRET])}  # fmt: skip
    record = read("litellm-spend", spend, tags="product=request_tags,client=metadata.client")
    assert details(record) == {"service_tier": "flex", "deployment": "east-2", "image_input_tokens": 11}
    assert record.tags == {"product": "chat", "client": "c"}
    assert read("litellm-spend", spend).tags is None


@pytest.mark.parametrize("configured", ["a b=request_tags", "a=everything", "a=metadata.", "=request_tags", "a,a"])
def test_a_choice_of_tags_that_cannot_be_is_refused(configured: str) -> None:
    with pytest.raises(RecordError, match="tags: "):
        read_choices(configured)
