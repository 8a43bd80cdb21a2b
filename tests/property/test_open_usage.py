"""Events and lines of logs hold other things beside usage: a count that is renamed, moved or nested is never left out."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from metering.gateways import cloudevents, lago, litellm
from metering.gateways.naming import DEFAULT
from metering.gateways.translation import translate
from metering.logs.formats import translator
from metering.records import TokenUsage
from tests.gateway_records import cloud_event, lago_event, payload

COUNTS = {"input_tokens": 1000, "cache_read_input_tokens": 600, "cache_creation_input_tokens": 50, "output_tokens": 100,
          "reasoning_output_tokens": 40, "total_tokens": 1100}  # fmt: skip
DATA = {"model": "m", **COUNTS}
ENVOY = {
    "start_time": "2026-10-05T10:00:00Z", "x-request-id": "r", "consumer": "a", "response_code": 200,
    "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 1000, "gen_ai.usage.cache_read.input_tokens": 600,
    "gen_ai.usage.cache_creation.input_tokens": 50, "gen_ai.usage.output_tokens": 100,
    "gen_ai.usage.reasoning.output_tokens": 40, "gen_ai.usage.total_tokens": 1100,
}  # fmt: skip
SPEND = {
    "request_id": "r", "call_type": "acompletion", "api_key": "h", "spend": 0.5, "startTime": "2026-10-05T10:00:00Z",
    "model": "m", "model_group": "m", "team_id": "t", "status": "success", "prompt_tokens": 1000, "completion_tokens": 100,
    "total_tokens": 1100,
}  # fmt: skip
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100,
         "prompt_tokens_details": {"cached_tokens": 600, "cache_creation_tokens": 50},
         "completion_tokens_details": {"reasoning_tokens": 40}}  # fmt: skip
NOW = datetime(2026, 11, 21, tzinfo=UTC)
Counts = tuple[int, ...] | None


def gateway(kind: Any, event: dict[str, Any], **redaction: Any) -> Counts:
    options = {"namings": DEFAULT}
    read = translate(
        [json.dumps(event).encode()], lambda fields: kind.redacted(fields, **options, **redaction),
        lambda fields: kind.usage(fields, **options, now=NOW),
    ).records  # fmt: skip
    return read[0][1].counts if read else None


def of_litellm(event: dict[str, Any]) -> Counts:
    read = translate(
        [json.dumps(event).encode()], lambda fields: litellm.redacted(fields, source="l"), litellm.usage
    ).records
    return read[0][1].counts if read else None


def of_log(name: str, line: dict[str, Any]) -> Counts:
    (record,) = translator(name, source="gw")(line, "derived")
    return record.counts if isinstance(record, TokenUsage) else None


WAYS: dict[str, tuple[dict[str, Any], Any]] = {
    "CloudEvents": (DATA, lambda data: gateway(cloudevents, cloud_event(type="chat", data=data))),
    "Lago": (DATA, lambda data: gateway(lago, lago_event(code="chat", properties=data), source="l")),
    "LiteLLM": (USAGE, lambda usage: of_litellm(payload(
        metadata={"usage_object": usage}, prompt_tokens=None, completion_tokens=None, total_tokens=None
    ))),
    "spend logs": (USAGE, lambda usage: of_log("litellm-spend", {**SPEND, "metadata": json.dumps({"usage_object": usage})})),
    "Envoy": (ENVOY, lambda line: of_log("envoy", line)),
    "Higress": (
        {"input_token": 1000, "output_token": 100, "total_token": 1100,
         "input_token_details": {"cached_tokens": 600, "cache_write_tokens": 50},
         "output_token_details": {"reasoning_tokens": 40}},
        lambda log: of_log("higress", {"ai_log": json.dumps({"model": "m", "consumer": "c", **log}), "request_id": "r",
                                       "response_code": "200", "start_time": "2026-10-05T10:00:00Z"}),
    ),
    "new-api": (
        {"prompt_tokens": 1000, "completion_tokens": 100, "other": {"cache_tokens": 600, "cache_creation_tokens": 50}},
        lambda row: of_log("new-api", {"id": 1, "created_at": 1791194400, "type": 2, "username": "a", "model_name": "m",
                                       "quota": 5, **row}),
    ),
}  # fmt: skip
"""Each way in with a real object of counts, and what it makes of it: the five counts, None for quarantine."""
NAMES = st.sampled_from([
    "cached_tokens_2", "tokens_cached", "cache.read", "audio_in", "imageTokens", "tool_calls_made", "tier_2_tokens",
    "new usage",
])  # fmt: skip


def places(value: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, item in value.items():
        if isinstance(item, dict):
            found += places(item, (*path, name))
        elif isinstance(item, int) and name not in ("response_code",):
            found.append((*path, name))
    return found


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A way in, and its object of which one count was renamed, moved, nested, or to which one was added."""
    way = draw(st.sampled_from(sorted(WAYS)))
    usage = copy.deepcopy(WAYS[way][0])
    *above, name = draw(st.sampled_from(places(usage)))
    inner = usage
    for step in above:
        inner = inner[step]
    how = draw(st.sampled_from(["renamed", "moved", "nested", "added"]))
    if how == "added":
        inner[draw(NAMES)] = draw(st.integers(1, 100) | st.sampled_from([0.5, "7", -3]))
        return way, usage
    value = inner.pop(name)
    if how == "renamed":
        inner[draw(NAMES)] = value
    elif how == "moved":
        usage[draw(NAMES)] = {name: value}
    else:
        inner[name] = draw(st.sampled_from([{"value": value}, [value], {name: value}]))
    return way, usage


@given(changed())
def test_a_count_that_is_renamed_moved_nested_or_added_leaves_the_record_or_sends_it_to_quarantine(
    given_: tuple[str, dict[str, Any]],
) -> None:
    way, usage = given_
    whole, read = WAYS[way]
    before = read(whole)
    assert before is not None
    assert read(usage) in (before, None)


def test_each_way_in_reads_its_own_object() -> None:
    reasoning = {"new-api": 0}
    assert {way: read(whole) for way, (whole, read) in WAYS.items()} == {
        way: (1000, 600, 50, 100, reasoning.get(way, 40)) for way in WAYS
    }
