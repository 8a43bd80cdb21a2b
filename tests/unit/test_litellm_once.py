"""One call of a client is one record, whatever LiteLLM reports of it, in whatever order and under whatever ids.

What LiteLLM reports here is what its proxy 1.106.2 reported in `python -m tests.acceptance`.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metering.gateways import litellm_callback
from metering.gateways.litellm_callback import CallbackOutbox, Hooks, Settings
from metering.gateways.outbox import FILE, open_outbox, pack
from metering.records import TokenUsage, decode_batch
from metering.request_tags import read_choices
from metering.spool import Spool
from tests.gateway_records import SECRET, kept, payload

CHAT = {"prompt_tokens": 110, "completion_tokens": 13, "total_tokens": 123,
        "prompt_tokens_details": {"cached_tokens": 10}, "completion_tokens_details": {"reasoning_tokens": 4}}  # fmt: skip
RESPONSES = {"input_tokens": 110, "output_tokens": 13, "total_tokens": 123,
             "input_tokens_details": {"cached_tokens": 10}, "output_tokens_details": {"reasoning_tokens": 4}}  # fmt: skip
MESSAGES = {"input_tokens": 100, "output_tokens": 13, "cache_read_input_tokens": 10}
"""The same counts as three APIs report them; Anthropic's leaves the cache out of its input and has no reasoning."""


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[CallbackOutbox]:
    made = CallbackOutbox(Settings(tmp_path, source="gw-1", sender="none"))
    yield made
    made.close()


@pytest.fixture
def hooks(outbox: CallbackOutbox) -> Hooks:
    made = Hooks()
    made.outbox = lambda: outbox
    return made


def begun(hooks: Hooks, call_type: str = "acompletion", **more: Any) -> dict[str, Any]:
    """A request whose client wrote `call-1` into the header, after the hook before its call."""
    details = {"litellm_call_id": "call-1", "call_type": call_type, "model": "chat", "custom_llm_provider": "deepseek",
               "start_time": datetime(2026, 10, 15, 4, tzinfo=UTC)}  # fmt: skip
    metadata = {"user_api_key": "hash-1", "user_api_key_team_id": "team-1", "model_group": "demo-chat"}
    logging_object = SimpleNamespace(model_call_details=details)
    data = {"model": "demo-chat", "metadata": {**metadata, "note": SECRET}, "messages": [SECRET],
            "litellm_logging_obj": logging_object, **more}  # fmt: skip
    asyncio.run(hooks.async_pre_call_hook(user_api_key_dict=None, cache=None, data=data, call_type=call_type))
    return data


def answer(hooks: Hooks, data: dict[str, Any], response: Any) -> None:
    asyncio.run(hooks.async_post_call_success_hook(data=data, user_api_key_dict=None, response=response))


def log(hooks: Hooks, data: dict[str, Any], usage: Any, result: Any = None, **changed: Any) -> None:
    """LiteLLM's log of a success, with the details of its logging object."""
    details = data["litellm_logging_obj"].model_call_details
    totals = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": (usage or {}).get("total_tokens", 0)}
    reported = payload(**{"call_type": details["call_type"], "metadata": {"usage_object": usage}, **totals, **changed})
    kwargs = details | {"standard_logging_object": reported}
    asyncio.run(hooks.async_logging_hook(kwargs=kwargs, result=result, call_type=str(details["call_type"])))
    details.update(kwargs)  # LiteLLM hands over the details themselves


def counts(record: dict[str, Any]) -> tuple[int, int, int, int, int]:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
             "reasoning_output_tokens")  # fmt: skip
    given, read, written, produced, reasoning = (int(record.get(name, 0)) for name in names)
    return given, read, written, produced, reasoning


@pytest.mark.parametrize("first", ["answer", "log"])
@pytest.mark.parametrize(
    ("call_type", "response"),
    [
        ("aresponses", SimpleNamespace(id="resp_bGl0ZWxsbTpjd", usage=RESPONSES)),
        ("anthropic_messages", {"id": "msg_11", "usage": MESSAGES}),
        ("atext_completion", SimpleNamespace(id="cmpl-1", usage=CHAT)),
        ("acompletion", SimpleNamespace(id="resp_11", usage=CHAT)),
    ],
)
def test_a_call_that_was_bridged_is_one_record_with_all_counts(
    tmp_path: Path, hooks: Hooks, call_type: str, response: Any, first: str
) -> None:
    data = begun(hooks, call_type)
    if first == "answer":
        answer(hooks, data, response)
    log(hooks, data, CHAT, id="chatcmpl-10", startTime=1795389812.177047)
    if first == "log":
        answer(hooks, data, response)
    (record,) = kept(tmp_path)
    assert counts(record) == (110, 10, 0, 13, 4)
    assert (record["attributes"]["call_id"], "cache_counts" in record["attributes"]) == ("call-1", False)


def test_an_answer_is_written_before_it_is_sent_and_once(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks)
    answer(hooks, data, SimpleNamespace(id="chatcmpl-1", usage=SimpleNamespace(model_dump=lambda: CHAT)))
    (record,) = kept(tmp_path)
    assert {name: record[name] for name in ("source", "consumer", "model", "provider", "status", "time")} == {
        "source": "gw-1", "consumer": "team-1", "model": "demo-chat", "provider": "deepseek", "status": "success",
        "time": "2026-10-15T04:00:00Z",
    }  # fmt: skip
    assert counts(record) == (110, 10, 0, 13, 4)
    assert record["attributes"] == {"call_id": "call-1", "response_id": "chatcmpl-1"}
    log(hooks, data, CHAT)
    assert [again["id"] for again in kept(tmp_path)] == [record["id"]]


def test_calls_with_one_call_id_one_response_id_and_one_start_are_as_many_records(tmp_path: Path, hooks: Hooks) -> None:
    for _ in range(3):
        data = begun(hooks)
        answer(hooks, data, SimpleNamespace(id="chatcmpl-1", usage=CHAT))
        log(hooks, data, CHAT)
    assert len({record["id"] for record in kept(tmp_path)}) == 3
    assert len(kept(tmp_path)) == 3


def test_a_parameter_of_the_request_cannot_name_the_call(tmp_path: Path, hooks: Hooks) -> None:
    """LiteLLM adds parameters that it does not know to the details that its log hands over."""
    for _ in range(2):
        data = begun(hooks)
        data["litellm_logging_obj"].model_call_details["suanpan_call"] = {"id": "mine", "models": ["a", "b"]}
        log(hooks, data, CHAT)
    records = kept(tmp_path)
    assert [record["id"] == "mine" for record in records] == [False, False]


def test_a_route_without_a_hook_before_the_call_is_one_record_for_each_call(tmp_path: Path, hooks: Hooks) -> None:
    for _ in range(2):
        data = {"litellm_logging_obj": SimpleNamespace(model_call_details={"call_type": "arerank"})}
        log(hooks, data, {"total_tokens": 56}, id="rerank-1")
        log(hooks, data, {"total_tokens": 56}, id="rerank-2", startTime=1795389812.2)
    assert [counts(record) for record in kept(tmp_path)] == [(56, 0, 0, 0, 0)] * 2


@pytest.mark.parametrize(
    "meta",
    [
        {"billed_units": {"total_tokens": 101}, "tokens": {"input_tokens": 101}},  # vLLM
        {"billed_units": {"total_tokens": 101}, "tokens": {}},  # Jina
        {"billed_units": None, "tokens": {"input_tokens": 101, "output_tokens": 0}},  # Voyage
    ],
)
def test_a_rerank_has_the_tokens_of_its_answer_which_the_log_leaves_out(
    tmp_path: Path, hooks: Hooks, meta: dict[str, Any]
) -> None:
    data = {"litellm_logging_obj": SimpleNamespace(model_call_details={"call_type": "arerank"})}
    log(hooks, data, None, result=SimpleNamespace(id="rerank-1", meta=meta), id="rerank-1")
    assert [counts(record) for record in kept(tmp_path)] == [(101, 0, 0, 0, 0)]


def test_a_rerank_is_written_before_it_is_sent_and_once(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks, "arerank")
    del data["litellm_logging_obj"].model_call_details["suanpan_call"]  # its route calls no hook before the call
    ready = SimpleNamespace(id="rerank-1", meta={"billed_units": {"total_tokens": 101}, "tokens": {}})
    asyncio.run(hooks.async_post_call_success_deployment_hook(request_data=data, response=ready, call_type="arerank"))
    (record,) = kept(tmp_path)
    assert (record["consumer"], record["model"], counts(record)) == ("team-1", "demo-chat", (101, 0, 0, 0, 0))
    log(hooks, data, None, result=ready, id="rerank-1")
    assert [again["id"] for again in kept(tmp_path)] == [record["id"]]


def test_two_reports_that_contradict_each_other_are_both_sent_under_one_id(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks, "aresponses")
    answer(hooks, data, SimpleNamespace(id="resp_1", usage=RESPONSES))
    log(hooks, data, {**CHAT, "completion_tokens": 14, "total_tokens": 124}, id="chatcmpl-1")
    first, second = kept(tmp_path)
    assert (first["id"], counts(first)) == (second["id"], (110, 10, 0, 13, 4))
    assert counts(second) == (110, 10, 0, 14, 4)
    log(hooks, data, {**CHAT, "completion_tokens": 14, "total_tokens": 124}, id="chatcmpl-1")
    assert len(kept(tmp_path)) == 2, "the same contradiction again is no third"


WITHOUT_CACHE = {**CHAT, "prompt_tokens_details": None}
WITHOUT_REASONING = {**CHAT, "completion_tokens_details": None}


@pytest.mark.parametrize(
    ("first", "later", "sent"),
    [
        (CHAT, CHAT, 0), (WITHOUT_REASONING, CHAT, 0), (CHAT, WITHOUT_CACHE, 0), (WITHOUT_CACHE, CHAT, 1),
        (CHAT, {**CHAT, "prompt_tokens": 111, "total_tokens": 124}, 1),
    ],
)  # fmt: skip
def test_what_comes_after_the_first_is_on_its_way_is_sent_only_if_it_changes_the_price(
    tmp_path: Path, hooks: Hooks, first: dict[str, Any], later: dict[str, Any], sent: int
) -> None:
    data = begun(hooks)
    answer(hooks, data, SimpleNamespace(id="chatcmpl-1", usage=first))
    connection = open_outbox(tmp_path / FILE)
    assert pack(connection, Spool(connection), now=time.time(), settle_s=0) == 1
    connection.close()
    log(hooks, data, later)
    assert len(kept(tmp_path)) == sent


def test_a_request_to_several_models_is_as_many_records_as_answers(tmp_path: Path, hooks: Hooks) -> None:
    """`model: "a,b"`: LiteLLM answers with both, and logs one."""
    data = begun(hooks, model="big, small,broken")
    data["model"] = None  # LiteLLM takes it out of the request
    log(hooks, data, CHAT)
    answers = [SimpleNamespace(id="1", usage=CHAT), SimpleNamespace(id="1", usage=CHAT), ValueError("broken")]
    answer(hooks, data, answers)
    records = kept(tmp_path)
    assert [(record["model"], counts(record)) for record in records] == [
        ("big", (110, 10, 0, 13, 4)), ("small", (110, 10, 0, 13, 4)),
    ]  # fmt: skip
    assert len({record["id"] for record in records}) == 2


def test_of_several_models_for_the_fastest_answer_one_is_recorded(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks, model="big,small", fastest_response=True)
    log(hooks, data, CHAT)
    answer(hooks, data, SimpleNamespace(id="1", usage=CHAT))
    assert [counts(record) for record in kept(tmp_path)] == [(110, 10, 0, 13, 4)]


@pytest.mark.parametrize(
    ("call_type", "response"),
    [
        ("acompletion", SimpleNamespace(id="chatcmpl-1", usage=CHAT, _hidden_params={"cache_hit": True})),
        ("aresponses", SimpleNamespace(id="resp_1", usage=RESPONSES, _hidden_params=SimpleNamespace(cache_hit=True))),
        ("anthropic_messages", {"id": "msg_11", "usage": MESSAGES}),  # it has no mark, its logging object has
    ],
)
def test_an_answer_from_litellms_own_cache_is_one_record_without_tokens(
    tmp_path: Path, hooks: Hooks, call_type: str, response: Any
) -> None:
    data = begun(hooks, call_type)
    data["litellm_logging_obj"].caching_details = {"cache_hit": True}
    answer(hooks, data, response)
    log(hooks, data, CHAT, id="chatcmpl-1_cache_hit1795389812.25", cache_hit=True)
    (record,) = kept(tmp_path)
    assert (counts(record), record["attributes"]["usage_source"]) == ((0, 0, 0, 0, 0), "gateway_cache")


def test_of_embeddings_that_were_cached_in_part_the_others_are_charged(tmp_path: Path, hooks: Hooks) -> None:
    """The answer adds 60 cached tokens to the 40 that a model read; LiteLLM's log has the 40."""
    data = begun(hooks, "aembedding")
    both = SimpleNamespace(id=None, usage={"prompt_tokens": 100, "total_tokens": 100}, _hidden_params={"cache_hit": True})
    answer(hooks, data, both)
    log(hooks, data, {"prompt_tokens": 40, "completion_tokens": 0, "total_tokens": 40}, cache_hit=False)
    assert [counts(record) for record in kept(tmp_path)] == [(40, 0, 0, 0, 0)]


def test_of_several_models_the_one_that_was_cached_is_not_charged(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks, model="big,small")
    data["litellm_logging_obj"].caching_details = {"cache_hit": True}  # they share it
    cached = SimpleNamespace(id="1", usage=CHAT, _hidden_params={"cache_hit": True})
    answer(hooks, data, [cached, SimpleNamespace(id="2", usage=CHAT, _hidden_params={})])
    assert [(record["model"], counts(record)) for record in kept(tmp_path)] == [
        ("big", (0, 0, 0, 0, 0)), ("small", (110, 10, 0, 13, 4)),
    ]  # fmt: skip


def test_fetching_a_response_again_is_no_usage(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks, "aget_responses")
    answer(hooks, data, SimpleNamespace(id="resp_1", usage=RESPONSES))
    log(hooks, data, None, id="resp_1")
    assert kept(tmp_path) == []


def test_a_finished_batch_is_one_record_however_often_it_is_fetched(tmp_path: Path, hooks: Hooks) -> None:
    batch = SimpleNamespace(id="batch_7", model="qwen", completed_at=1795380100, created_at=1795380000, usage=RESPONSES)
    bodies = set()
    for started in (1795390276.2, 1795390277.5):
        data = begun(hooks, "aretrieve_batch")
        answer(hooks, data, batch)
        log(hooks, data, CHAT, result=batch, id="batch_7", model="", model_group="", startTime=started)
        bodies |= {json.dumps(record) for record in kept(tmp_path)}
    data = begun(hooks, "aretrieve_batch")
    log(hooks, data, None, result=SimpleNamespace(id="batch_8", model="qwen"), id="batch_8", model="", model_group="")
    (record,) = kept(tmp_path)
    assert bodies == {json.dumps(record)}
    assert (record["model"], record["time"], counts(record)) == ("qwen", "2026-11-22T20:41:40Z", (110, 10, 0, 13, 4))


def test_a_streamed_text_completion_asks_for_its_usage(hooks: Hooks) -> None:
    """LiteLLM asks by itself for that of chats; of text completions it reports zeros."""
    plain = begun(hooks, "atext_completion")
    streamed = begun(hooks, "atext_completion", stream=True, stream_options={"include_usage": False, "other": 1})
    assert ("stream_options" in plain, streamed["stream_options"]) == (False, {"include_usage": True, "other": 1})
    assert "stream_options" not in begun(hooks, "acompletion", stream=True)


@pytest.mark.parametrize("call_type", ["acompletion", "atext_completion", "aresponses", "anthropic_messages", "aembedding"])
def test_an_answer_of_a_language_model_without_tokens_goes_to_quarantine(
    tmp_path: Path, hooks: Hooks, call_type: str
) -> None:
    data = begun(hooks, call_type)
    log(hooks, data, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})
    (record,) = kept(tmp_path)
    assert ("input_tokens" in record, record["payload"]["call_type"]) == (False, call_type)


def test_a_picture_without_tokens_is_one_record_that_is_paid_by_the_call(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks, "aimage_generation")
    nothing = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    answer(hooks, data, SimpleNamespace(usage=nothing))
    log(hooks, data, nothing, response_cost=0.04)
    (record,) = kept(tmp_path)
    assert record["attributes"] == {"usage_refused": "paid by the call: model demo-chat has no tokens",
                                    "usage": {**nothing, "spend": "0.04"}}  # fmt: skip


def test_a_failed_attempt_and_its_fallback_are_two_records(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks)
    details = data["litellm_logging_obj"].model_call_details
    failure = payload(status="failure", id="call-1", prompt_tokens=0, completion_tokens=0, total_tokens=0,
                      metadata={"usage_object": None})  # fmt: skip
    kwargs = {**details, "standard_logging_object": failure}
    asyncio.run(hooks.async_log_failure_event(kwargs=kwargs, response_obj=None, start_time=None, end_time=None))
    answer(hooks, data, SimpleNamespace(id="chatcmpl-1", usage=CHAT))
    assert [(record["status"], record["output_tokens"]) for record in kept(tmp_path)] == [("failure", 0), ("success", 13)]


async def chunks(*given: Any) -> AsyncIterator[Any]:
    for chunk in given or ("one", "two"):
        yield chunk


async def streamed(hooks: Hooks, data: dict[str, Any], response: Any = None) -> list[Any]:
    """What a client gets of a stream."""
    stream = hooks.async_post_call_streaming_iterator_hook(
        user_api_key_dict=None, response=response or chunks(), request_data=data
    )
    return [chunk async for chunk in stream]


class Wrapper:
    """LiteLLM's wrapper of a stream: it keeps the chunks, hands them on without their usage, and may count by itself."""

    def __init__(self, *given: Any, last: Any = None) -> None:
        self.chunks: list[Any] = []
        self.given, self.last = iter(given), [last] if last else []

    def __aiter__(self) -> "Wrapper":
        return self

    async def __anext__(self) -> Any:
        for chunk in self.given:
            self.chunks.append(chunk)
            return SimpleNamespace(choices=chunk.choices)
        if self.last:
            return self.last.pop()
        raise StopAsyncIteration


async def routed(wrapper: Wrapper) -> AsyncIterator[Any]:
    """What LiteLLM's router makes of it."""
    async for chunk in wrapper:
        yield chunk


TEXT = SimpleNamespace(choices=["x"], usage=None)
LAST = SimpleNamespace(choices=[], usage=CHAT)
SSE = b'event: message_delta\ndata: {"type": "message_delta", "usage": {"output_tokens": 13}}\n\n'
PROVIDER, GUESS = None, "gateway_estimate"


@pytest.mark.parametrize(
    ("response", "source"),
    [
        (lambda: chunks(TEXT, TEXT), GUESS), (lambda: chunks(TEXT, LAST), PROVIDER),
        (lambda: chunks({"choices": []}, {"choices": [], "usage": CHAT}), PROVIDER),
        (lambda: chunks(b'data: {"type": "ping"}\n\n'), GUESS), (lambda: chunks(b"data: [DONE]", SSE), PROVIDER),
        (lambda: chunks(SimpleNamespace(type="response.completed", response=SimpleNamespace(usage=RESPONSES))), PROVIDER),
        (lambda: Wrapper(TEXT, LAST), PROVIDER), (lambda: Wrapper(TEXT, last=LAST), GUESS),
        (lambda: Wrapper(TEXT, LAST, last=LAST), PROVIDER),
        (lambda: routed(Wrapper(TEXT, LAST)), PROVIDER), (lambda: routed(Wrapper(TEXT, last=LAST)), GUESS),
    ],
)  # fmt: skip
def test_a_stream_without_usage_is_a_guess_of_the_gateway(
    tmp_path: Path, hooks: Hooks, response: Any, source: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """litellm#35290: 720 characters of Chinese became 760 output tokens that nobody had counted."""
    monkeypatch.setattr(litellm_callback, "STREAM_WAIT_S", 0.01)
    data = begun(hooks, stream=True)
    asyncio.run(streamed(hooks, data, response()))
    log(hooks, data, CHAT)
    (record,) = kept(tmp_path)
    assert (record.get("attributes") or {}).get("usage_source") == source
    assert counts(record) == (110, 10, 0, 13, 4)


def test_an_answer_that_was_not_streamed_is_no_guess(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks)
    answer(hooks, data, SimpleNamespace(id="chatcmpl-1", usage=CHAT))
    log(hooks, data, CHAT)
    (record,) = kept(tmp_path)
    assert "usage_source" not in record["attributes"]


def test_a_stream_ends_for_its_client_when_its_usage_is_written(tmp_path: Path, hooks: Hooks) -> None:
    data = begun(hooks)
    kwargs = {**data["litellm_logging_obj"].model_call_details, "standard_logging_object": payload()}
    seen: list[int] = []

    async def printed() -> None:
        await asyncio.sleep(0.05)
        seen.append(len(kept(tmp_path)))
        await hooks.async_logging_hook(kwargs=kwargs, result=None, call_type="acompletion")

    async def both() -> None:
        tell = asyncio.create_task(printed())
        assert await streamed(hooks, data) == ["one", "two"]
        seen.append(len(kept(tmp_path)))
        await tell

    asyncio.run(both())
    assert seen == [0, 1]


@pytest.mark.parametrize(
    ("cache_hit", "classes"), [(None, (110, 10, 0, 13, 4)), (False, (110, 10, 0, 13, 4)), (True, (0, 0, 0, 0, 0))]
)
def test_a_stream_whose_count_guardrails_put_off_is_written_as_assembled(
    tmp_path: Path, hooks: Hooks, cache_hit: bool | None, classes: tuple[int, ...]
) -> None:
    data = begun(hooks)
    data["litellm_logging_obj"]._deferred_stream_complete_args = (SimpleNamespace(id="chatcmpl-1", usage=CHAT), cache_hit)
    assert asyncio.run(streamed(hooks, data)) == ["one", "two"]
    assert [counts(record) for record in kept(tmp_path)] == [classes]


def test_a_stream_of_which_nothing_is_reported_ends_all_the_same(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(litellm_callback, "STREAM_WAIT_S", 0.01)
    assert asyncio.run(streamed(hooks, begun(hooks))) == ["one", "two"]
    assert "LiteLLM reported no usage of a stream" in caplog.text


def test_a_stream_that_its_client_cut_is_an_estimate(tmp_path: Path, hooks: Hooks) -> None:
    log(hooks, begun(hooks), CHAT, error_information={"error_code": "499"})
    (record,) = kept(tmp_path)
    assert record["attributes"]["usage_source"] == "gateway_estimate"


def test_a_request_that_cannot_be_counted_goes_to_the_platform_without_its_prompt(tmp_path: Path, hooks: Hooks) -> None:
    nobody = {"user_api_key_hash": None, "user_api_key_team_id": None}
    log(hooks, begun(hooks), CHAT, metadata=nobody)
    (record,) = kept(tmp_path)
    assert (record["source"], "consumer" in record) == ("gw-1", False)
    assert SECRET not in json.dumps(record)


def test_usage_that_nobody_knows_goes_to_the_platform_with_its_numbers_and_the_reason(tmp_path: Path, hooks: Hooks) -> None:
    log(hooks, begun(hooks), {"tokens": {"in": 30, "out": 4, "why": SECRET}})
    (record,) = kept(tmp_path)
    assert record["payload"]["metadata"]["usage_object"] == {"tokens": {"in": 30, "out": 4, "why": ""}}
    assert record["attributes"] == {
        "usage_refused": "usage of no known API: tokens.in, tokens.out",
        "usage": {"tokens": {"in": 30, "out": 4, "why": ""}, "spend": "0.5"},
    }
    (rejected,) = decode_batch(TokenUsage, [json.dumps(record).encode()]).rejected
    assert "usage of no known API: tokens.in, tokens.out" in str(rejected.error)


def test_a_full_disk_is_reported_with_the_record_and_breaks_no_answer(
    outbox: CallbackOutbox, hooks: Hooks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(batch: Any) -> None:
        for _, _, done in batch:
            done.set_exception(sqlite3.OperationalError("database or disk is full"))

    monkeypatch.setattr(outbox._outbox, "_commit", full)
    answer(hooks, begun(hooks), SimpleNamespace(id="chatcmpl-1", usage=CHAT))
    assert "database or disk is full; NOT kept" in caplog.text
    assert '"output_tokens":13' in caplog.text


OLD = """
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, body BLOB NOT NULL, put_at REAL NOT NULL,
    packed INTEGER NOT NULL DEFAULT 0
);
INSERT INTO outbox (key, body, put_at, packed) VALUES ('sent', '', 1, 1), ('waits', '{"id":"waits"}', 1, 0);
"""


def test_an_outbox_of_an_older_callback_is_sent_under_its_own_ids(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / FILE)
    old.executescript(OLD)
    old.close()
    connection = open_outbox(tmp_path / FILE)
    spool = Spool(connection)
    assert pack(connection, spool, now=time.time()) == 1
    parcel = spool.oldest()
    assert parcel is not None
    assert json.loads(parcel.body) == [{"id": "waits"}]
    connection.close()


# Tier, deployment, tags


def test_tier_deployment_and_chosen_tags_are_written_before_the_answer(tmp_path: Path) -> None:
    """Two reports of one call complete each other; what nobody chose is in no file, and none is in the log."""
    chosen = read_choices("product=request_tags,client")
    outbox = CallbackOutbox(Settings(tmp_path, source="gw-1", sender="none", tags=chosen))
    hooks = Hooks()
    hooks.outbox = lambda: outbox
    data = begun(hooks)
    data["metadata"] |= {"tags": ["product:chat", f"user:{SECRET}"], "requester_metadata": {"x": SECRET}}
    answered = SimpleNamespace(
        id="chatcmpl-1", usage=CHAT, service_tier="flex", _hidden_params={"model_id": "east-2"}, choices=[SECRET]
    )
    answer(hooks, data, answered)
    searched = {**CHAT, "server_tool_use": {"web_search_requests": 2}}
    log(hooks, data, searched, request_tags=["product:chat", f"user:{SECRET}"], model_id="east-2", response={"x": SECRET})
    outbox.close()
    (record,) = kept(tmp_path)
    assert (record["service_tier"], record["deployment"], record["searches"]) == ("flex", "east-2", 2)
    assert record["tags"] == {"product": "chat"}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_two_tiers_of_one_call_are_a_conflict(hooks: Hooks, tmp_path: Path) -> None:
    data = begun(hooks)
    answer(hooks, data, SimpleNamespace(id="chatcmpl-1", usage=CHAT, service_tier="flex"))
    log(hooks, data, CHAT, response={"service_tier": "priority"})
    assert [record["service_tier"] for record in kept(tmp_path)] == ["flex", "priority"]


# What is passed through to vLLM


def passed(hooks: Hooks, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """A request that LiteLLM passes through to a model of its configuration, after its hook before the call."""
    details = {"litellm_call_id": "call-1", "call_type": "allm_passthrough_route", "model": "chat",
               "custom_llm_provider": "hosted_vllm", "start_time": datetime(2026, 10, 15, 4, tzinfo=UTC)}  # fmt: skip
    logging_object = SimpleNamespace(model_call_details=details, async_flush_passthrough_collected_chunks=flushed)
    metadata = {"user_api_key_hash": "hash-1", "user_api_key_team_id": "team-1", "model_group": "vllm"}
    data = {"endpoint": path, "json": body, "model": "hosted_vllm/chat", "litellm_metadata": metadata,
            "model_info": {"id": "east-2"}, "litellm_logging_obj": logging_object}  # fmt: skip
    asyncio.run(hooks.async_pre_call_deployment_hook(kwargs=data, call_type=PASSED))
    return data


async def flushed(collector: Any) -> None:
    """LiteLLM's own end of a stream."""
    collector.ended = True


PASSED = SimpleNamespace(value="allm_passthrough_route")
ASKED = {"model": "chat", "messages": [{"content": SECRET}], "metadata": {"tags": ["product:chat", SECRET], "x": SECRET}}
COUNTED = {"input_tokens": 110, "cache_read_input_tokens": 10, "output_tokens": 13, "reasoning_output_tokens": 4}


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_passed_through_to_vllm_is_gathered(stream: bool, tmp_path: Path) -> None:
    outbox = CallbackOutbox(Settings(tmp_path, source="gw-1", sender="none", tags=read_choices("product=request_tags")))
    hooks = Hooks()
    hooks.outbox = lambda: outbox
    data = passed(hooks, "v1/chat/completions", ASKED | ({"stream": True} if stream else {}))
    answered = {"id": "chatcmpl-1", "usage": CHAT, "choices": [{"message": {"content": SECRET}}]}
    if stream:
        assert data["json"]["stream_options"] == {"include_usage": True}
        begun = {"id": "chatcmpl-1", "choices": [{"delta": {"content": SECRET}}], "usage": None}
        events = [begun, {"id": "chatcmpl-1", "choices": [], "usage": CHAT}]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        collector = SimpleNamespace(_raw_bytes=[text[:50].encode(), text[50:].encode()])
        asyncio.run(data["litellm_logging_obj"].async_flush_passthrough_collected_chunks(collector=collector))
        assert collector.ended
    else:
        asyncio.run(hooks.async_post_call_success_deployment_hook(
            request_data=data, response=SimpleNamespace(json=lambda: answered), call_type=PASSED
        ))  # fmt: skip
    outbox.close()
    (record,) = kept(tmp_path)
    assert {name: record[name] for name in COUNTED} == COUNTED
    assert (record["consumer"], record["model"], record["deployment"]) == ("team-1", "vllm", "east-2")
    assert record["tags"] == {"product": "chat"}
    assert SECRET not in json.dumps(record)


@pytest.mark.parametrize(("path", "stream", "refused"), [
    ("v1/chat/completions", False, "a success that states no token counts"),
    ("v1/completions", True, "a success that states no token counts"),
    ("tokenize", False, "paid by the call: model vllm has no tokens"),
])  # fmt: skip
def test_what_is_passed_through_without_usage_goes_to_quarantine(
    hooks: Hooks, tmp_path: Path, path: str, stream: bool, refused: str
) -> None:
    data = passed(hooks, path, ASKED | ({"stream": True} if stream else {}))
    if stream:
        asyncio.run(data["litellm_logging_obj"].async_flush_passthrough_collected_chunks(collector=SimpleNamespace()))
    else:
        answered = SimpleNamespace(json=lambda: {"count": 3})
        asyncio.run(hooks.async_post_call_success_deployment_hook(request_data=data, response=answered, call_type=PASSED))
    (record,) = kept(tmp_path)
    assert (record["attributes"]["usage_refused"], SECRET in json.dumps(record)) == (refused, False)


PRINTED = "cannot parse chunks to standard response object. Chunks="


@pytest.mark.parametrize("stream", [False, True])
def test_what_litellm_passes_on_without_understanding_it_is_read(hooks: Hooks, tmp_path: Path, stream: bool) -> None:
    """Its payload has no tokens; the answer is beside it, that of a stream as Python prints its lines."""
    chunks = [f"data: {json.dumps({'id': 'c', 'usage': usage, 'choices': [SECRET]})}" for usage in (None, CHAT)]
    response_body = {"id": "c", "usage": CHAT, "choices": [SECRET]}
    beside = {"url": "http://vllm:8000/v1/chat/completions?x=1", "request_body": {"model": "qwen", "messages": [SECRET]}}
    reported = payload(call_type="pass_through_endpoint", model="unknown", model_group=None, prompt_tokens=0,
                       completion_tokens=0, total_tokens=0, metadata={"usage_object": None})  # fmt: skip
    kwargs = {"standard_logging_object": reported,
              "passthrough_logging_payload": beside if stream else beside | {"response_body": response_body}}  # fmt: skip
    result = {"response": f"{PRINTED}{[*chunks, 'data: [DONE]']}"} if stream else {"response": "..."}
    asyncio.run(hooks.async_logging_hook(kwargs=kwargs, result=result, call_type="pass_through_endpoint"))
    (record,) = kept(tmp_path)
    assert {name: record[name] for name in COUNTED} == COUNTED
    assert (record["model"], record["consumer"], SECRET in json.dumps(record)) == ("qwen", "team-1", False)
