"""Lines of gateways' logs as the gateways write them, and the records that they become."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from metering.logs.formats import translator
from metering.logs.mapping import Incomplete, LogRecord, read_mapping
from metering.records import RecordError, TokenUsage

SECRET = "the-prompt-nobody-may-read"


def reported(name: str, fields: dict[str, Any], **options: Any) -> list[LogRecord]:
    return translator(name, source="gw-1", **options)(fields, "derived")


def only(name: str, fields: dict[str, Any], **options: Any) -> TokenUsage:
    (record,) = reported(name, fields, **options)
    assert isinstance(record, TokenUsage)
    return record


def incomplete(name: str, fields: dict[str, Any]) -> Incomplete:
    (record,) = reported(name, fields)
    assert isinstance(record, Incomplete)
    return record


# Envoy AI Gateway


def envoy(**changed: Any) -> dict[str, Any]:
    return {
        "start_time": "2026-10-05T10:00:00.250Z", "x-request-id": "req-1", "consumer": "team-a", "response_code": 200,
        "gen_ai.request.model": "qwen3", "gen_ai.provider.name": "vllm-a", "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 64, "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.reasoning.output_tokens": 12, "user-agent": SECRET, **changed,
    }  # fmt: skip


def test_a_line_of_envoy_ai_gateway() -> None:
    record = only("envoy", envoy())
    assert (record.id, record.source, record.consumer, record.model, record.provider, record.status) == (
        "req-1:2026-10-05T10:00:00.250Z", "gw-1", "team-a", "qwen3", "vllm-a", "200",
    )  # fmt: skip
    assert record.counts == (100, 64, 0, 20, 12)
    assert record.time == datetime(2026, 10, 5, 10, 0, 0, 250000, tzinfo=UTC)
    assert record.attributes is None


def test_the_older_names_of_envoy_are_known_and_dashes_have_no_value() -> None:
    record = only("envoy", {
        "start_time": "2026-10-05T10:00:00.250Z", "request_id": "-", "x-user-id": "alice", "response_code": "200",
        "genai_model_name": "qwen3", "genai_tokens_input": "44", "genai_tokens_output": 12, "genai_backend_name": "-",
    })  # fmt: skip
    assert (record.id, record.consumer, record.provider) == ("derived", "alice", None)
    assert record.counts == (44, 0, 0, 12, 0)
    assert record.attributes == {"cache_counts": "unknown"}


def test_a_request_id_that_a_client_uses_twice_hides_no_request() -> None:
    first, second = only("envoy", envoy()), only("envoy", envoy(start_time="2026-10-05T10:00:00.251Z"))
    assert first.id != second.id


def test_a_line_about_no_model_gives_no_record() -> None:
    assert reported("envoy", {"start_time": "2026-10-05T10:00:00Z", "response_code": 200, "x-request-id": "r"}) == []


def test_a_failure_used_nothing_and_is_counted() -> None:
    line = envoy(**{"response_code": 503, "gen_ai.usage.input_tokens": None, "gen_ai.usage.output_tokens": None,
                    "gen_ai.usage.cache_read.input_tokens": None, "gen_ai.usage.reasoning.output_tokens": "-"})  # fmt: skip
    record = only("envoy", line)
    assert record.counts == (0, 0, 0, 0, 0)
    assert record.attributes == {"cache_counts": "unknown", "usage_source": "none"}


@pytest.mark.parametrize("code", [200, 0, 499])
def test_a_request_without_counts_that_did_not_fail_is_incomplete_not_zero(code: int) -> None:
    line = {**envoy(), "response_code": code}
    line = {name: value for name, value in line.items() if "usage" not in name}
    record = incomplete("envoy", line)
    assert record.reason == f"no token counts for model qwen3, status {code}"
    assert record.fields == {
        "id": "req-1:2026-10-05T10:00:00.250Z", "source": "gw-1", "time": "2026-10-05T10:00:00.250Z",
        "consumer": "team-a", "model": "qwen3", "provider": "vllm-a", "site": None, "status": str(code), "attributes": None,
    }  # fmt: skip


@pytest.mark.parametrize("code", [200, 0, 499])
def test_zeros_of_a_request_that_did_not_fail_are_no_counts(code: int) -> None:
    """A model reads at least one token: a gateway writes zeros where the stream ended without its usage."""
    line = envoy(response_code=code) | {name: 0 for name in envoy() if "usage" in name}
    record = incomplete("envoy", line)
    assert record.reason == f"no token counts for model qwen3, status {code}"
    assert record.record["attributes"]["usage"]["input_tokens"] == 0
    assert only("envoy", line | {"response_code": 503}).counts == (0, 0, 0, 0, 0), "a failure used nothing"


def test_a_row_of_consumption_without_tokens_is_incomplete_not_zero() -> None:
    """one-api and new-api write it where the provider did not say what was used; then they charged nothing either."""
    record = incomplete("new-api", row(prompt_tokens=0, completion_tokens=0, quota=0, other=""))
    assert record.reason == "no token counts for model gpt-4o, status not reported"


@pytest.mark.parametrize("name", ["one-api", "new-api"])
def test_a_request_that_was_paid_by_the_call_is_named_so_with_what_the_gateway_charged(name: str) -> None:
    by_call = row(model_name="mj_imagine", prompt_tokens=0, completion_tokens=0, quota="50000", other='{"model_price": 0.1}')
    record = incomplete(name, by_call)
    assert record.reason == "paid by the call: model mj_imagine has no tokens"
    assert (record.fields["consumer"], record.record["attributes"]["usage"]["quota"]) == ("alice", 50000)
    cached = incomplete(name, by_call | {"other": '{"cache_tokens": 64}'})
    assert "paid by the call" not in cached.reason, "its tokens cannot be read"


def test_output_that_is_not_reported_is_zero_only_if_the_total_says_so() -> None:
    line = envoy(**{"gen_ai.usage.output_tokens": None, "gen_ai.usage.reasoning.output_tokens": None})
    assert incomplete("envoy", line).reason == "counts by name: output is not stated"
    assert only("envoy", {**line, "gen_ai.usage.total_tokens": 100}).counts == (100, 64, 0, 0, 0)


def test_reasoning_by_its_older_name_is_read() -> None:
    line = {name: value for name, value in envoy().items() if "reasoning" not in name}
    assert only("envoy", {**line, "gen_ai.usage.reasoning_tokens": 12}).counts == (100, 64, 0, 20, 12)


def test_a_total_alone_is_no_rerank_unless_the_mapping_says_that_there_is_no_output() -> None:
    line = {name: value for name, value in envoy().items() if "usage" not in name} | {"gen_ai.usage.total_tokens": 56}
    assert incomplete("envoy", line).reason == "usage of no known API: total_tokens"
    assert only("envoy", line, mapping={"input_only": True}).counts == (56, 0, 0, 0, 0)


PER_LINE: list[tuple[str, dict[str, Any], str]] = [
    ("envoy", {"gen_ai.usage.new_cache.input_tokens": 40}, "gen_ai.usage.new_cache.input_tokens 40"),
    ("envoy", {"gen_ai": {"usage": {"new_cache": 40}}}, "gen_ai.usage.new_cache 40"),
    ("envoy", {"cached": "40"}, "cached 40"), ("envoy", {"extra": {"audio_tokens": 4}}, "extra.audio_tokens 4"),
    ("envoy", {"image_count": 2, "images_made": 3}, "images_made 3"), ("envoy", {"mcp_calls_made": 3}, "mcp_calls_made 3"),
]


@pytest.mark.parametrize(("name", "beside", "named"), PER_LINE)
def test_a_number_of_a_line_that_may_be_usage_and_has_an_unknown_name_goes_to_quarantine(
    name: str, beside: dict[str, Any], named: str
) -> None:
    record = incomplete(name, envoy(**beside))
    assert record.reason == f"{named} is not known"
    assert named.rsplit(" ", 1)[0] in record.record["attributes"]["usage"]
    declared = {"other_numbers": [named.rsplit(" ", 1)[0]]}
    assert only(name, envoy(**beside), mapping=declared).counts == (100, 64, 0, 20, 12), "unless the mapping names it"


def test_numbers_of_a_line_that_are_no_usage_change_nothing() -> None:
    beside = {"x-ratelimit-remaining-tokens": "900", "llm_first_token_duration": 80, "token_name": "20231", "bytes_sent": 4,
              "response": {"usage": {"cached": 5}}, "max_tokens": 4096, "upstream": {"id": 4}, "cache_ttl": 300}  # fmt: skip
    assert only("envoy", envoy(**beside)).counts == (100, 64, 0, 20, 12)


def test_what_was_written_to_the_cache_by_its_newer_name_is_read() -> None:
    """semantic-conventions-genai#440"""
    line = envoy(**{"gen_ai.usage.cache_write.input_tokens": 25})
    assert only("envoy", line).counts == (100, 64, 25, 20, 12)
    both = {**line, "gen_ai.usage.cache_creation.input_tokens": 24}
    assert incomplete("envoy", both).reason == "cache_creation_input_tokens: 24 and 25 contradict each other"
    assert only("envoy", {**line, "gen_ai.usage.cache_creation.input_tokens": 0}).counts == (100, 64, 25, 20, 12)


def test_an_answer_to_no_input_goes_to_quarantine() -> None:
    line = envoy(**{"gen_ai.usage.input_tokens": 0, "gen_ai.usage.cache_read.input_tokens": 0})
    assert incomplete("envoy", line).reason == "input 0 of an answer with output 20"


# Higress


def higress(**ai_log: Any) -> dict[str, Any]:
    return {"ai_log": json.dumps({"model": "m", "consumer": "dept-7", **ai_log}), "request_id": "abc",
            "response_code": "200", "start_time": "2026-10-05T10:00:00Z"}  # fmt: skip


def test_claude_in_a_log_of_higress_counts_its_cache_beside_the_input() -> None:
    details = {"cache_read_input_tokens": 1300, "cache_creation_input_tokens": 200}
    line = higress(input_token=21, output_token=50, total_token=1571, input_token_details=details)
    assert only("higress", line).counts == (1521, 1300, 200, 50, 0)


def test_gemini_in_a_log_of_higress_counts_tools_and_thoughts_beside_the_rest() -> None:
    line = higress(input_token="100", output_token="50", total_token="190",
                   input_token_details='{"cached_content_token_count": 60, "tool_use_prompt_token_count": 10}',
                   output_token_details='{"thoughts_token_count": 30}')  # fmt: skip
    assert only("higress", line).counts == (110, 60, 0, 80, 30)


def test_a_log_of_higress_that_leaves_out_the_details_of_its_total_goes_to_quarantine() -> None:
    for total in (1571, 180):
        record = incomplete("higress", higress(input_token=21, output_token=50, total_token=total))
        assert record.reason == f"counts by name: total {total} is not input 21 + output 50"


def test_a_line_of_higress_holds_json_in_a_text() -> None:
    ai_log = {"model": "qwen-turbo", "input_token": "10", "output_token": "69", "consumer": "dept-7", "cached_tokens": "4",
              "reasoning_tokens": "31", "llm_service_duration": "1955", "question": SECRET}  # fmt: skip
    record = only("higress", {"ai_log": json.dumps(ai_log), "request_id": "abc", "response_code": "200",
                              "start_time": "2026-10-05T18:00:00.250+08:00"})  # fmt: skip
    assert (record.consumer, record.model, record.counts) == ("dept-7", "qwen-turbo", (10, 4, 0, 69, 31))
    assert record.time == datetime(2026, 10, 5, 10, 0, 0, 250000, tzinfo=UTC)


def test_details_of_higress_are_json_in_a_text_in_a_text() -> None:
    ai_log = {"model": "q", "input_token": "10", "output_token": "9", "input_token_details": '{"cached_tokens": 8}'}
    record = only("higress", {"ai_log": json.dumps(ai_log), "x-mse-consumer": "c", "start_time": "2026-10-05T10:00:00Z"})
    assert record.counts == (10, 8, 0, 9, 0)


def test_a_count_of_higress_of_unknown_name_goes_to_quarantine_and_parts_of_its_details_do_not() -> None:
    counts = {"input_token": 100, "output_token": 20, "total_token": 120}
    details = {"input_token_details": json.dumps({"cached_tokens": 64, "audio_tokens": 10, "text_tokens": 26})}
    assert only("higress", higress(**counts, **details)).counts == (100, 64, 0, 20, 0)
    unknown = higress(**counts, input_token_details={"cached_tokens": 64, "cache_ephemeral": 30})
    assert incomplete("higress", unknown).reason == "ai_log.input_token_details.cache_ephemeral 30 is not known"
    assert incomplete("higress", higress(**counts, tokens_cached=30)).reason == "ai_log.tokens_cached 30 is not known"


def test_a_line_of_higress_without_a_model_call_gives_no_record() -> None:
    for ai_log in ("-", '{"cache_status": "hit"}'):
        assert reported("higress", {"ai_log": ai_log, "start_time": "2026-10-05T10:00:00Z", "response_code": "200"}) == []


# Kong


def kong(**changed: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35, "time_per_token": 12.5, "cost": 0.001}
    meta = {"plugin_id": "p", "provider_name": "openai", "request_model": "gpt-4o", "response_model": "gpt-4o-2024",
            "llm_latency": 300}  # fmt: skip
    return {
        "request": {"id": "k-1", "headers": {"authorization": SECRET}}, "response": {"status": 200},
        "started_at": 1791194400250, "consumer": {"username": "nlp", "id": "u-1"},
        "ai": {"proxy": {"usage": usage, "meta": meta, "payload": {"request": SECRET}}}, **changed,
    }  # fmt: skip


def test_a_line_of_kong() -> None:
    record = only("kong", kong())
    assert (record.id, record.consumer, record.model, record.provider) == ("k-1:1791194400250", "nlp", "gpt-4o", "openai")
    assert record.counts == (30, 0, 0, 5, 0)
    assert record.time == datetime(2026, 10, 5, 10, 0, 0, 250000, tzinfo=UTC)


def test_each_plugin_of_kong_that_called_a_model_is_a_record() -> None:
    line = kong()
    line["ai"]["request-transformer"] = {"usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
                                         "meta": {"request_model": "small"}}  # fmt: skip
    first, second = reported("kong", line)
    assert isinstance(first, TokenUsage)
    assert isinstance(second, TokenUsage)
    assert (first.id, first.model, second.id, second.model, second.output_tokens) == (
        "k-1:1791194400250", "gpt-4o", "k-1:1791194400250:request-transformer", "small", 3,
    )  # fmt: skip
    assert reported("kong", kong(ai={})) == []


@pytest.mark.parametrize(
    ("usage", "classes"),
    [
        ({"prompt_token": 28, "completion_token": 20, "total_tokens": 48, "cost": 0.0038, "time_per_token": 133},
         (28, 0, 0, 20, 0)),
        ({"prompt_tokens": 28, "completion_tokens": 20, "total_tokens": 48, "prompt_tokens_details": {"cached_tokens": 16}},
         (28, 16, 0, 20, 0)),
    ],
)  # fmt: skip
def test_kong_of_every_version(usage: dict[str, Any], classes: tuple[int, int, int, int, int]) -> None:
    assert only("kong", kong(ai={"proxy": {"usage": usage, "meta": {"request_model": "m"}}})).counts == classes


def test_the_embeddings_of_kongs_rag_injector_are_a_call_of_their_own() -> None:
    line = kong()
    line["ai"]["proxy"]["rag-inject"] = {"injected": True, "fetch_latency": 154, "embeddings_tokens": 62,
                                         "embeddings_provider": "openai", "embeddings_model": "embed-small"}  # fmt: skip
    first, second = reported("kong", line)
    assert isinstance(first, TokenUsage)
    assert isinstance(second, TokenUsage)
    assert (first.id, first.model, first.counts) == ("k-1:1791194400250", "gpt-4o", (30, 0, 0, 5, 0))
    assert (second.id, second.model, second.provider, second.consumer, second.counts) == (
        "k-1:1791194400250:proxy:rag-inject", "embed-small", "openai", "nlp", (62, 0, 0, 0, 0),
    )  # fmt: skip


def test_a_line_of_kong_with_a_total_only_goes_to_quarantine() -> None:
    record = incomplete("kong", kong(ai={"proxy": {"usage": {"total_tokens": 48}, "meta": {"request_model": "m"}}}))
    assert (record.reason, record.usage) == ("usage of no known API: total_tokens", {"total_tokens": 48})


# APISIX


def test_a_line_of_apisix() -> None:
    summary = {"request_model": "qwen3", "model": "qwen3-32b", "prompt_tokens": 10, "completion_tokens": 4,
               "total_tokens": 114, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 10,
               "duration": 20}  # fmt: skip
    record = only("apisix", {
        "llm_summary": summary, "start_time": 1791194400250, "consumer": {"username": "cv"}, "response": {"status": 200},
        "request": {"headers": {"x-request-id": "a-1"}}, "llm_request": {"messages": SECRET},
    })  # fmt: skip
    assert (record.id, record.consumer, record.model) == ("a-1:1791194400250", "cv", "qwen3")
    assert record.counts == (110, 90, 10, 4, 0), "the total proves that prompt_tokens leaves the cached ones out"


def test_cached_tokens_that_fit_no_total_go_to_quarantine_with_all_that_is_known() -> None:
    summary = {"model": "m", "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 50, "cache_read_input_tokens": 9}
    record = incomplete("apisix", {"llm_summary": summary, "start_time": 1791194400250, "consumer_name": "cv"})
    assert record.reason == "counts by name: total 50 is not input 10 + output 4"
    assert record.record == {
        "id": "derived", "source": "gw-1", "time": "2026-10-05T10:00:00.250000+00:00", "consumer": "cv", "model": "m",
        "provider": None, "site": None, "status": None,
        "attributes": {
            "usage_refused": "counts by name: total 50 is not input 10 + output 4",
            "usage": {"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": 9,
                      "cache_creation_input_tokens": None, "reasoning_output_tokens": None,
                      "tool_use_input_tokens": None, "total_tokens": 50},
        },
    }  # fmt: skip


def kong_cache(status: str) -> dict[str, Any]:
    return kong(ai={"proxy": {**kong()["ai"]["proxy"], "cache": {"cache_status": status, "fetch_latency": 12}}})


def apisix_cache(status: str) -> dict[str, Any]:
    summary = {"request_model": "qwen3", "model": "", "prompt_tokens": "0", "completion_tokens": "0"}
    return {"llm_summary": summary, "start_time": 1791194400250, "consumer_name": "cv",
            "response": {"status": 200, "headers": {"x-ai-cache-status": status}}}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("kong", kong_cache("Hit")), ("apisix", apisix_cache("HIT-L1")), ("apisix", apisix_cache("HIT-L2")),
        ("higress", higress(model="from-cache", input_token=0, output_token=0, total_token=0, cache_status="hit")),
    ],
)  # fmt: skip
def test_an_answer_from_the_gateways_own_cache_used_no_tokens(name: str, line: dict[str, Any]) -> None:
    """Kong repeats the counts of the first answer, the others write zeros, which were taken for lost counts."""
    record = only(name, line)
    assert (record.counts, record.attributes) == ((0, 0, 0, 0, 0), {"usage_source": "gateway_cache"})


def test_an_answer_that_the_cache_did_not_have_used_its_tokens() -> None:
    assert {only("kong", kong_cache(status)).counts for status in ("Miss", "Bypass", "Refresh")} == {(30, 0, 0, 5, 0)}


# one-api and new-api


def row(**changed: Any) -> dict[str, Any]:
    return {
        "id": 17, "user_id": 3, "created_at": 1791194400, "type": 2, "content": SECRET, "username": "alice",
        "token_name": "k", "model_name": "gpt-4o", "quota": 5, "prompt_tokens": 100, "completion_tokens": 20,
        "channel_id": 4, "other": '{"cache_tokens": 64, "model_ratio": 1.25}', **changed,
    }  # fmt: skip


def test_a_row_of_new_api() -> None:
    record = only("new-api", row())
    assert (record.id, record.consumer, record.model, record.attributes) == (
        "17:1791194400", "alice", "gpt-4o", {"channel": "4"},
    )  # fmt: skip
    assert record.counts == (100, 64, 0, 20, 0)


def test_claude_in_new_api_counts_its_cache_beside_the_prompt() -> None:
    other = '{"claude": true, "cache_tokens": 80, "cache_creation_tokens": 10}'
    assert only("new-api", row(prompt_tokens=10, other=other)).counts == (100, 80, 10, 20, 0)


def test_what_claude_cached_by_lifetime_alone_is_in_the_total_that_new_api_makes_of_it() -> None:
    other = {"usage_semantic": "anthropic", "cache_tokens": 0, "cache_creation_tokens": 0, "cache_creation_tokens_5m": 148,
             "cache_creation_tokens_1h": 100, "cache_write_tokens": 248}  # fmt: skip
    assert only("new-api", row(prompt_tokens=50, other=json.dumps(other))).counts == (298, 0, 248, 20, 0)


def test_what_new_api_counted_by_itself_is_a_guess_of_the_gateway() -> None:
    other = {"cache_tokens": 0, "admin_info": {"local_count_tokens": True, "use_channel": ["4"]}}
    record = only("new-api", row(other=json.dumps(other)))
    assert record.counts == (100, 0, 0, 20, 0)
    assert record.attributes == {"cache_counts": "unknown", "usage_source": "gateway_estimate", "channel": "4"}
    other["admin_info"] = {"local_count_tokens": False}
    assert only("new-api", row(other=json.dumps(other))).attributes == {"channel": "4"}


def test_other_types_of_rows_bill_nothing_and_a_refund_of_tokens_is_for_a_person() -> None:
    assert [reported("one-api", row(type=kind)) for kind in (1, "3", 4, 5)] == [[], [], [], []]
    assert reported("new-api", row(type=6, prompt_tokens=0, completion_tokens=0)) == []
    with pytest.raises(RecordError, match="refund"):
        reported("new-api", row(type=6))
    with pytest.raises(RecordError, match="no row of the table `logs`"):
        reported("new-api", {"success": True})


def test_who_pays_can_be_chosen() -> None:
    assert only("new-api", row(), consumer="token_name").consumer == "k"


# LiteLLM


def spend(**changed: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130,
             "prompt_tokens_details": {"cached_tokens": 64},
             "completion_tokens_details": {"reasoning_tokens": 12}}  # fmt: skip
    return {
        "request_id": "chatcmpl-1", "call_type": "acompletion", "api_key": "hash-1", "spend": 0.5, "total_tokens": 130,
        "prompt_tokens": 100, "completion_tokens": 30, "startTime": "2026-10-05 10:00:00.25", "model": "openai/x",
        "model_group": "demo", "custom_llm_provider": "openai", "team_id": "nlp", "status": "success",
        "metadata": json.dumps({"usage_object": usage}), "messages": SECRET, **changed,
    }  # fmt: skip


def test_a_row_of_litellm_spend_logs() -> None:
    record = only("litellm-spend", spend())
    assert (record.id, record.consumer, record.model, record.counts) == ("chatcmpl-1", "nlp", "demo", (100, 64, 0, 30, 12))
    assert record.time == datetime(2026, 10, 5, 10, 0, 0, 250000, tzinfo=UTC)


def test_spend_whose_usage_cannot_be_read_goes_to_quarantine_whole() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 150, "note": SECRET}
    record = incomplete("litellm-spend", spend(metadata={"usage_object": usage}))
    assert record.reason == "OpenAI chat: total 150 is not input 100 + output 30"
    assert record.record == {
        "id": "chatcmpl-1", "source": "gw-1", "time": "2026-10-05 10:00:00.25Z", "consumer": "nlp", "model": "demo",
        "provider": "openai", "status": "success",
        "attributes": {"response_id": "chatcmpl-1", "usage_refused": record.reason,
                       "usage": {**usage, "note": "", "spend": "0.5"}},
    }  # fmt: skip


def test_spend_of_a_picture_is_paid_by_the_call_with_what_litellm_charged() -> None:
    nothing = {"prompt_tokens": "0", "completion_tokens": "0", "total_tokens": "0", "metadata": "{}"}
    picture = spend(call_type="aimage_generation", model_group="dall-e-3", spend="0.04", **nothing)
    record = incomplete("litellm-spend", picture)
    assert (record.reason, record.is_paid_by_call) == ("paid by the call: model dall-e-3 has no tokens", True)
    assert record.record["attributes"]["usage"]["spend"] == "0.04"
    assert not incomplete("litellm-spend", spend(**nothing)).is_paid_by_call, "a chat whose counts are lost"


def test_a_column_of_spend_that_may_be_usage_and_has_an_unknown_name_goes_to_quarantine() -> None:
    record = incomplete("litellm-spend", spend(cache_read_input_tokens="64"))
    assert record.reason == "cache_read_input_tokens 64 is not known"


def test_a_row_of_an_export_is_all_text() -> None:
    given = spend(total_tokens="130", prompt_tokens="100", completion_tokens="30", metadata="{}", team_id="")
    record = only("litellm-spend", given)
    assert (record.consumer, record.counts, record.attributes) == (
        "hash-1", (100, 0, 0, 30, 0), {"cache_counts": "unknown", "response_id": "chatcmpl-1"},
    )  # fmt: skip


def test_spend_of_a_client_that_hung_up_is_marked_as_a_guess() -> None:
    metadata = {"error_information": {"error_code": "499"}}
    record = only("litellm-spend", spend(metadata=metadata))
    assert record.attributes is not None
    assert record.attributes["usage_source"] == "gateway_estimate"


def test_spend_from_the_cache_of_litellm_used_no_tokens() -> None:
    record = only("litellm-spend", spend(request_id="chatcmpl-1_cache_hit1791194401.5", cache_hit="True", spend=0.0))
    assert record.counts == (0, 0, 0, 0, 0)
    assert only("litellm-spend", spend(cache_hit="None")).counts == (100, 64, 0, 30, 12)


def test_spend_of_a_request_that_was_refused_is_not_the_prompt_that_litellm_estimates() -> None:
    """Such a row has the tokens of its prompt by LiteLLM's own count, and a spend of 0."""
    metadata = {"status": "failure", "usage_object": {}, "error_information": {"error_code": "400"}}
    refused = spend(status="failure", prompt_tokens=2900, completion_tokens=0, total_tokens=2900, metadata=metadata)
    record = only("litellm-spend", refused)
    assert (record.status, record.counts) == ("failure", (0, 0, 0, 0, 0))


# Plain JSON by a mapping of one's own

MAPPING = {
    "id": ["rid"], "time": "ts", "time_unit": "ms", "consumer": "who.team | who.user", "model": "llm.model",
    "usage": "llm.usage", "attributes": {"trace": "trace_id"}, "status": "code",
}  # fmt: skip
USED = {"prompt_tokens": 1, "completion_tokens": 0}


def test_a_usage_object_anywhere_in_a_line_of_ones_own() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 10, "output_tokens": 5}
    line = {"rid": "1", "ts": 1791194400250, "who": {"user": "u"}, "llm": {"model": "claude", "usage": usage},
            "trace_id": "t-9", "code": 200, "prompt": SECRET}  # fmt: skip
    record = only("json", line, mapping=MAPPING)
    assert (record.id, record.consumer, record.counts, record.attributes) == (
        "1",
        "u",
        (100, 80, 10, 5, 0),
        {"trace": "t-9"},
    )


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        ({"prompt_tokens": -1}, "prompt_tokens must be a whole number"),
        ({"tokens": {"in": 3, "out": 4}}, "usage of no known API: tokens.in, tokens.out"),
        ({"other": 0}, "no token counts for model claude, status 200"),
        ("12 tokens", "usage must be an object"),
        ({"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 9}, "total 9 is not input 5 + output 1"),
    ],
)
def test_a_usage_object_that_cannot_be_read_is_sent_without_counts_and_without_its_texts(usage: Any, reason: str) -> None:
    if isinstance(usage, dict):
        usage = {**usage, "prompt": SECRET}
    line = {"rid": "1", "ts": 1791194400250, "who": {"user": "u"}, "llm": {"model": "claude", "usage": usage}, "code": 200}
    (record,) = reported("json", line, mapping=MAPPING)
    assert isinstance(record, Incomplete)
    assert reason in record.reason
    assert SECRET not in json.dumps(record.record)
    assert (record.record["id"], record.record["attributes"]["usage_refused"]) == ("1", record.reason)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"usage": ""}, "mapping: needs `usage`, or both"),
        ({"modle": "x"}, "mapping: Object contains unknown field `modle`"),
        ({"time_unit": "min"}, "mapping: Invalid enum value 'min'"),
        ({"zone": "Asia/Shangai"}, "zone 'Asia/Shangai' is not a known time zone"),
    ],
)
def test_a_wrong_mapping_is_refused_by_name(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message.replace("(", "\\(")):
        read_mapping({**MAPPING, **changed})


def test_a_format_of_ones_own_needs_a_mapping_and_a_known_one_can_be_changed() -> None:
    with pytest.raises(RecordError, match="format json needs --mapping FILE"):
        translator("json", source="s")
    assert only("envoy", envoy(dept="cv"), mapping={"consumer": "dept"}).consumer == "cv"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ts": None}, "time is missing: none of ts"),
        ({"ts": 10**18}, "is no time in ms since 1970"),
        ({"ts": "2026-10-05 10:00:00"}, "expected an RFC 3339 instant with an offset"),
        ({"who": {}}, "consumer is missing: none of who.team | who.user"),
        ({"llm": {"model": "m" * 600, "usage": {"prompt_tokens": 1}}}, "model is longer than 512 characters"),
    ],
)
def test_what_is_wrong_with_a_line_is_named(changed: dict[str, Any], message: str) -> None:
    line = {"rid": "1", "ts": 1791194400250, "who": {"user": "u"}, "llm": {"model": "m", "usage": USED}}
    with pytest.raises(RecordError) as error:
        reported("json", {**line, **changed}, mapping=MAPPING)
    assert message in str(error.value)


def test_a_zone_makes_an_instant_of_a_local_time() -> None:
    line = {"ts": "2026-10-05 18:00:00", "who": {"user": "u"}, "llm": {"model": "m", "usage": USED}}
    record = only("json", line, mapping={**MAPPING, "zone": "Asia/Shanghai"})
    assert record.time == datetime(2026, 10, 5, 10, tzinfo=UTC)
