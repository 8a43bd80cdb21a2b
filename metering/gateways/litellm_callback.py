"""Callback for the LiteLLM proxy that loses nothing: `callbacks: [metering.gateways.litellm_callback.reporter]`.

LiteLLM calls its callbacks for a request after it was answered, from a queue in memory, which is lost when the proxy ends.
This callback writes before the answer is complete:

    not streamed   when the answer is ready and before it is sent, from the usage object that the client gets
    streamed       after the last chunk and before the stream is closed, for LiteLLM assembles the usage only then
    failed, cut    when LiteLLM reports it; nothing was answered that could be lost
    other routes   (images, audio, pass-through, batches) when LiteLLM reports it, just after the answer

LiteLLM does not report requests that it passes through to vLLM (`/vllm/...`) by a model of its configuration: their usage is
read from the answer itself, before it is sent, and from a stream when it has ended.

Each call gets an id of ours before it begins, which is the id of its record: LiteLLM reports one answer up to twice, under
two response ids where it bridges one API to another, and the client writes LiteLLM's own call id into a header. A client
that repeats call ids can neither hide a call nor double it. If the two reports differ, the outbox decides.

A stream without a usage chunk has only LiteLLM's estimate: its record says `usage_source: gateway_estimate`. An answer that
only repeats an earlier one (`GET /v1/responses/ID`) is no record; a finished batch is one record, however often it is
fetched. An answer from LiteLLM's own cache is a record without tokens. Usage that LiteLLM counted itself because the client
had left or the stream broke is marked as an estimate.

Settings, all from the environment: SUANPAN_ENDPOINT, SUANPAN_TOKEN_FILE (or SUANPAN_TOKEN), SUANPAN_OUTBOX (a folder on a
disk that survives the container), SUANPAN_SOURCE (default: litellm), SUANPAN_CONSUMER (default: team_id,hash),
SUANPAN_SENDER (`thread`, or `none` where `python -m metering outbox` sends), SUANPAN_TAGS (`product=request_tags,
customer=metadata.customer`: the tags that are kept; no other leaves the proxy or is written). Beside LiteLLM's own packages
this needs msgspec alone.
"""

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from metering.gateways import litellm
from metering.gateways.outbox import Outbox, Sender
from metering.record_checks import RecordError
from metering.records import USAGE_REFUSED
from metering.request_tags import Choice, read_choices
from metering.token_usage import json_object, numbers_of_usage

log = logging.getLogger(__name__)
MARK: Final = "suanpan_call"
CHAT: Final = frozenset({"completion", "acompletion"})
TEXT_COMPLETION: Final = frozenset({"text_completion", "atext_completion"})
EMBEDDING: Final = frozenset({"embedding", "aembedding"})
REPEATING: Final = ("get_", "retrieve_", "list_", "cancel_", "delete_", "file_")
"""Prefixes of call types, without the `a` of asynchronous ones, that fetch the result of an earlier call."""
PASSED_THROUGH: Final = frozenset({"llm_passthrough_route", "allm_passthrough_route"})
"""Call types sent to a model of the configuration by its own API, which LiteLLM does not report."""
PASSED_ON: Final = "pass_through_endpoint"
ROUTES: Final = {
    "completions": "acompletion", "messages": "anthropic_messages", "responses": "aresponses", "embeddings": "aembedding",
    "rerank": "arerank", "score": "arerank", "pooling": "aembedding",
}  # fmt: skip
"""Call types by the last step of an address of a model server."""
STREAM_WAIT_S: Final = 5.0
PRINTED: Final = "cannot parse chunks to standard response object. Chunks="
"""Words that LiteLLM writes before the events of a stream that it passed on."""
INSIDE: Final = ("completion_stream", "litellm_custom_stream_wrapper", "_async_generator")
"""Names under which LiteLLM's wrappers of a stream keep the one inside."""
MAX_WRAPPERS: Final = 32
MAX_MARKS: Final = 100_000


class Stream:
    """Usage that the chunks of one stream state; if they state none, LiteLLM's count is an estimate.

    LiteLLM takes the provider's usage out of the chunks that it passes on, and adds a last one with its own count if the
    client asked for one. Its wrappers keep the provider's chunks (`chunks`); if none does, the chunks that were passed on
    count.
    """

    def __init__(self) -> None:
        self._wrappers: list[Any] | None = None
        self._stated = False

    def __deepcopy__(self, memo: object) -> "Stream":
        """Return the object itself: LiteLLM copies the details of a call for its log."""
        return self

    def begin(self, response: Any) -> None:
        """Remember the wrappers of the provider's stream."""
        self._wrappers = list(_wrappers(response))

    def see(self, chunk: Any) -> None:
        """Note if a chunk that is passed on states usage."""
        self._stated = self._stated or _states_usage(chunk)

    @property
    def is_guess(self) -> bool:
        """Return True if the stream was read and its provider stated no usage."""
        if self._wrappers is None:
            return False
        sent = [chunk for wrapper in self._wrappers for chunk in wrapper.chunks]
        return not (any(map(_states_usage, sent)) if sent else self._stated)


class Call(msgspec.Struct, frozen=True):
    """Call of a client. LiteLLM keeps it among details that a request can add to, but JSON cannot make this type."""

    id: str
    models: tuple[str, ...] = ()
    """Models of a client that asked several at once and gets all their answers."""
    stream: Stream = msgspec.field(default_factory=Stream)

    def record_id(self, payload: Mapping[str, Any]) -> str:
        """Return the id of the call's record; each failed attempt and each further answer is a record of its own."""
        if payload.get("status") != "success":
            return _digest(self.id, payload.get("id"), payload.get("status"), payload.get("startTime"))
        place = payload.get("place")
        return self.id if place is None else _digest(self.id, place)


class Settings(msgspec.Struct, frozen=True):
    """Settings from the environment."""

    folder: Path
    source: str = "litellm"
    consumer: tuple[str, ...] = litellm.CONSUMER
    endpoint: str = ""
    token: str = ""
    token_file: str = ""
    sender: str = "thread"
    tags: tuple[Choice, ...] = ()

    def read_token(self) -> str:
        """Read the bearer token anew each time, so that a renewed one needs no restart."""
        return Path(self.token_file).read_text(encoding="utf-8").strip() if self.token_file else self.token


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read settings from an environment.  Raises RecordError that names the variable and what to do."""
    folder = environment.get("SUANPAN_OUTBOX", "")
    if not folder:
        raise RecordError("SUANPAN_OUTBOX is not set: name a folder on a disk that outlives the proxy")
    settings = Settings(
        Path(folder), environment.get("SUANPAN_SOURCE") or "litellm",
        litellm.read_consumer(environment.get("SUANPAN_CONSUMER", "")), environment.get("SUANPAN_ENDPOINT", ""),
        environment.get("SUANPAN_TOKEN", ""), environment.get("SUANPAN_TOKEN_FILE", ""),
        environment.get("SUANPAN_SENDER") or "thread", read_choices(environment.get("SUANPAN_TAGS", "")),
    )  # fmt: skip
    if settings.sender not in ("thread", "none"):
        raise RecordError(f"SUANPAN_SENDER {settings.sender!r} is neither thread nor none")
    if settings.sender == "thread" and not (settings.endpoint and (settings.token or settings.token_file)):
        raise RecordError("SUANPAN_ENDPOINT and SUANPAN_TOKEN_FILE say where to send to; or set SUANPAN_SENDER=none")
    return settings


class CallbackOutbox:
    """Writer of LiteLLM's payloads into the outbox, without knowledge of hooks. One for each process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._outbox = Outbox(settings.folder)
        self._written: dict[str, asyncio.Event] = {}
        self._stop = threading.Event()
        if settings.sender == "thread":
            sender = Sender(
                settings.folder, endpoint=settings.endpoint, token=settings.read_token, source=settings.source
            )
            threading.Thread(target=sender.run, args=(self._stop,), name="outbox-sender", daemon=True).start()

    async def write(self, payload: Mapping[str, Any], call: Call | None) -> None:
        """Keep the record of a payload; durable when this returns. A failed disk is logged, not raised into the answer."""
        key, body = self.record(payload, call)
        try:
            await asyncio.wrap_future(self._outbox.put(key, body))
        except sqlite3.Error as error:
            log.critical("outbox %s: %s; NOT kept: %s", self._settings.folder, error, body.decode())
            return
        if call is not None and call.id in self._written:
            self._written[call.id].set()

    def record(self, payload: Mapping[str, Any], call: Call | None) -> tuple[str, bytes]:
        """Return key and record of a payload; one that cannot be understood is kept redacted, for quarantine."""
        guessed = {litellm.GUESSED: call is not None and call.stream.is_guess}
        redacted = litellm.redacted({**payload, **guessed}, source=self._settings.source, tags=self._settings.tags)
        try:
            record = litellm.usage(redacted, consumer=self._settings.consumer)
        except RecordError as error:
            log.error("a request cannot be counted: %s", error)
            refused = {USAGE_REFUSED: str(error)[:512], "usage": litellm.stated(redacted)}
            kept = msgspec.json.encode({**redacted, "attributes": refused})
            return call.record_id(payload) if call else blake2b(kept, digest_size=16).hexdigest(), kept
        key = call.record_id(payload) if call else record.id
        return key, msgspec.json.encode(msgspec.structs.replace(record, id=key))

    def expect(self, call_id: str) -> asyncio.Event:
        """Return the event that is set when a record of this call is durable."""
        # Events of streams that were never closed; a stream that still waits for one gives up after STREAM_WAIT_S.
        if len(self._written) >= MAX_MARKS:
            self._written.clear()
        return self._written.setdefault(call_id, asyncio.Event())

    def forget(self, call_id: str) -> None:
        """Forget the event of a call that no stream waits for any more."""
        self._written.pop(call_id, None)

    def close(self) -> None:
        """Stop sending; waiting records stay in the outbox."""
        self._stop.set()
        self._outbox.close()


class Hooks:
    """Methods that LiteLLM calls."""

    outbox: Callable[[], CallbackOutbox]

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str) -> None:
        """Name the call, whatever its client says, and request the usage of a streamed text completion.

        LiteLLM reports zeros for those if no usage is requested; for all other streams it requests usage by itself.
        """
        details = call_details(data)
        if details is not None:
            details[MARK] = Call(str(uuid4()), _models(data) if call_type in CHAT else ())
        if call_type in TEXT_COMPLETION and data.get("stream"):
            data["stream_options"] = {**(data.get("stream_options") or {}), "include_usage": True}

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> None:
        """Write a complete answer down before it goes out."""
        details = call_details(data) or {}
        call = named_call(details)
        if call is None or _repeats(details.get("call_type")):
            return  # a route that names no call, or nothing new: LiteLLM's log decides
        for place, answer in enumerate(_flat(response)):
            usage, cached = _usage(answer), _is_cached(answer, data, call)
            if usage is None or cached is None or not numbers_of_usage(usage):
                continue
            payload = answer_payload(data, details, answer, usage) | {"cache_hit": cached}
            if call.models:
                # With several conversations, the answers repeat the models in order.
                payload |= {"place": place, "model_group": call.models[place % len(call.models)]}
            await self.outbox().write(payload, call)

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """Write down a rerank, or an answer that was passed through: routes without a hook before the answer."""
        details, usage = call_details(request_data), _rerank_usage(response)
        if details is not None and _kind(call_type) in PASSED_THROUGH and named_call(details) is None:
            call = details[MARK] = Call(str(uuid4()))
            await self.outbox().write(passed_payload(request_data, details, _answered(response)), call)
            return
        if details is None or usage is None or named_call(details) is not None:
            return
        call = details[MARK] = Call(str(uuid4()))
        await self.outbox().write(answer_payload(request_data, details, response, usage), call)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """Make a stream that is passed through state its usage, and read that when it has ended."""
        body, details = kwargs.get("json"), call_details(kwargs)
        if _kind(call_type) not in PASSED_THROUGH or details is None or not (isinstance(body, dict) and body.get("stream")):
            return
        logging_object: Any = kwargs["litellm_logging_obj"]
        if _call_type(kwargs) in CHAT:
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        ended, request = logging_object.async_flush_passthrough_collected_chunks, dict(kwargs)

        async def flush(collector: Any) -> None:
            call = details[MARK] = Call(str(uuid4()))
            text = b"".join(getattr(collector, "_raw_bytes", ())).decode(errors="replace")
            await self.outbox().write(passed_payload(request, details, stated_in(text)), call)
            await ended(collector=collector)

        logging_object.async_flush_passthrough_collected_chunks = flush

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: AsyncIterator[Any], request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Pass the chunks on; after the last, hold the end of the stream until its usage is written down."""
        call = named_call(call_details(request_data) or {})
        if call is None:
            async for chunk in response:
                yield chunk
            return
        outbox = self.outbox()
        written = outbox.expect(call.id)
        call.stream.begin(response)
        try:
            async for chunk in response:
                call.stream.see(chunk)
                yield chunk
            await self._await_stream(outbox, written, request_data, call)
        finally:
            outbox.forget(call.id)

    async def async_logging_hook(self, kwargs: dict[str, Any], result: Any, call_type: str) -> tuple[dict[str, Any], Any]:
        """Write down a success that LiteLLM reports, before any slower callback learns of it."""
        payload = kwargs.get("standard_logging_object")
        if isinstance(payload, Mapping):
            await self._log_success(kwargs, payload, result)
        return kwargs, result

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Write down a failed attempt that LiteLLM reports."""
        payload = kwargs.get("standard_logging_object")
        if isinstance(payload, Mapping):
            await self.outbox().write(payload, named_call(kwargs))

    async def _log_success(self, kwargs: dict[str, Any], payload: Mapping[str, Any], result: Any) -> None:
        call_type = payload.get("call_type")
        if call_type in litellm.BATCHES:
            if payload.get("total_tokens"):
                await self.outbox().write(batch_payload(payload, result), None)
            return
        call = named_call(kwargs)
        if _repeats(call_type) or (call is not None and call.models):
            return
        if call is None:  # a route that has no hook before the call; a second report of it brings the same details
            call = kwargs[MARK] = Call(str(uuid4()))
        if call_type == PASSED_ON:
            payload = passed_on_payload(kwargs, payload, result)
        await self.outbox().write(rerank_payload(payload, result), call)

    async def _await_stream(self, outbox: CallbackOutbox, written: asyncio.Event, data: dict[str, Any], call: Call) -> None:
        """Wait for LiteLLM's own count; if guardrails defer it until the stream is closed, take the assembled answer."""
        logging_object = data.get("litellm_logging_obj")
        given = getattr(logging_object, "_deferred_stream_complete_args", None)
        assembled = given if isinstance(given, tuple) else ()
        response = assembled[0] if assembled else None
        usage = _usage(response)
        if usage is not None:
            cached = {"cache_hit": assembled[1:2] == (True,)}
            await outbox.write(answer_payload(data, call_details(data) or {}, response, usage) | cached, call)
            return
        try:
            await asyncio.wait_for(written.wait(), STREAM_WAIT_S)
        except TimeoutError:
            log.error("LiteLLM reported no usage of a stream within %s s; it is written when it does", STREAM_WAIT_S)


def answer_payload(
    data: Mapping[str, Any], details: Mapping[str, Any], response: Any, usage: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of LiteLLM's later payload of an answer, from what is known before it is sent."""
    params = details.get("litellm_params") or {}
    metadata = params.get("litellm_metadata") or params.get("metadata") or {}
    metadata = {**(data.get("metadata") or {}), **(data.get("litellm_metadata") or {}), **metadata}
    started, asked = details.get("start_time"), details.get("optional_params") or {}
    call_id = details.get("litellm_call_id") or data.get("litellm_call_id")
    return {
        "id": _field(response, "id") or call_id, "litellm_call_id": call_id, "call_type": details.get("call_type"),
        "status": "success", "stream": bool(data.get("stream")), "model": details.get("model") or data.get("model"),
        "startTime": started.timestamp() if isinstance(started, datetime) else None,
        "model_group": metadata.get("model_group") or data.get("model"),
        "custom_llm_provider": details.get("custom_llm_provider"),
        "model_id": _field(_field(response, "_hidden_params") or {}, "model_id"),
        "response": {"service_tier": _field(response, "service_tier")},
        "model_parameters": {name: asked.get(name) for name in ("service_tier", "speed", "inference_geo")},
        "request_tags": metadata.get("tags"),
        "metadata": {**metadata, "user_api_key_hash": metadata.get("user_api_key_hash") or metadata.get("user_api_key"),
                     "usage_object": usage},
    }  # fmt: skip


def passed_payload(data: Mapping[str, Any], details: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a call that was passed through to a configured model; `answer`: the server's answer."""
    payload, body = answer_payload(data, details, answer, _usage_of(answer)), data.get("json")
    asked = body.get("metadata") if isinstance(body, Mapping) else None
    return {
        **payload, "call_type": _call_type(data), "model_id": _field(data.get("model_info") or {}, "id"),
        "request_tags": payload["request_tags"] or _field(asked or {}, "tags"),
        "metadata": {"requester_metadata": asked, **payload["metadata"]},
    }  # fmt: skip


def passed_on_payload(kwargs: Mapping[str, Any], payload: Mapping[str, Any], result: Any) -> Mapping[str, Any]:
    """Return LiteLLM's payload of a request that it passed on unread, with the model and usage in it."""
    passed = kwargs.get("passthrough_logging_payload") or {}
    given = _field(passed, "response_body")
    answer: Mapping[str, Any] = given if isinstance(given, Mapping) else stated_in(str(_field(result, "response") or ""))
    usage, metadata = _usage_of(answer), payload.get("metadata") or {}
    if payload.get("total_tokens") or metadata.get("usage_object") or not usage:
        return payload
    named = _field(_field(passed, "request_body") or {}, "model")
    model = {"model": named, "model_group": named} if isinstance(named, str) else {}
    call_type = ROUTES.get(str(_field(passed, "url") or "").partition("?")[0].rstrip("/").rpartition("/")[2], PASSED_ON)
    return {**payload, **model, "call_type": call_type, "metadata": {**metadata, "usage_object": usage}}


def stated_in(text: str) -> dict[str, Any]:
    """Return the last event of a stream that states usage, with the id that its events have; empty if none does.

    The events are lines, or items of a list that Python printed.
    """
    if text.startswith(PRINTED):
        lines = [line.strip("'\" ") for line in text[len(PRINTED):].strip("[]").split("', '")]
    else:
        lines = text.splitlines()
    found: dict[str, Any] = {}
    for line in lines:
        event = json_object(line.removeprefix("data:").strip())
        if isinstance(event, dict):
            inner = event.get("response")
            whole = inner if isinstance(inner, dict) else event
            if _usage_of(whole):
                found = whole
    return found


def batch_payload(payload: Mapping[str, Any], batch: Any) -> dict[str, Any]:
    """Return LiteLLM's payload of a finished batch, dated when it finished: every fetch gives the same record."""
    finished = _field(batch, "completed_at") or _field(batch, "created_at") or payload.get("startTime")
    return {**payload, "startTime": finished, "model": payload.get("model") or _field(batch, "model")}


def rerank_payload(payload: Mapping[str, Any], result: Any) -> Mapping[str, Any]:
    """Return LiteLLM's payload with the tokens of a rerank, which LiteLLM leaves out of it."""
    usage = _rerank_usage(result)
    if payload.get("total_tokens") or usage is None:
        return payload
    return {**payload, "metadata": {**(payload.get("metadata") or {}), "usage_object": usage}}


def _rerank_usage(response: Any) -> dict[str, Any] | None:
    """Return the tokens of a rerank, or None; search units are no tokens."""
    meta = _field(response, "meta") or {}
    tokens, billed = _field(meta, "tokens") or {}, _field(meta, "billed_units") or {}
    given = _field(tokens, "input_tokens") or _field(billed, "total_tokens")
    return {"prompt_tokens": given, "completion_tokens": _field(tokens, "output_tokens") or 0} if given else None


def _is_cached(response: Any, data: Mapping[str, Any], call: Call) -> bool | None:
    """Return True if LiteLLM's own cache had the answer; None if it had some of several embeddings.

    Such an answer adds cached counts to new ones: only LiteLLM's log counts what a model worked on. An answer of Anthropic's
    API has no mark of its own, and several models share one logging object.
    """
    marked = _field(_field(response, "_hidden_params") or {}, "cache_hit") is True
    details = getattr(data.get("litellm_logging_obj"), "caching_details", None) or {}
    whole = _field(details, "cache_hit") is True and not call.models
    embedding = (call_details(data) or {}).get("call_type") in EMBEDDING
    return None if marked and embedding and not whole else marked or whole


def _wrappers(response: Any) -> Iterator[Any]:
    """Yield the objects behind a stream that keep its chunks, also behind generators of LiteLLM's router."""
    waiting, seen = [response], set[int]()
    while waiting and len(seen) < MAX_WRAPPERS:
        item = waiting.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(getattr(item, "chunks", None), list):
            yield item
        frame = getattr(item, "ag_frame", None)
        waiting += [getattr(item, name, None) for name in INSIDE]
        waiting += [value for value in (frame.f_locals.values() if frame else ()) if hasattr(value, "__aiter__")]


def _states_usage(chunk: Any) -> bool:
    """Return True if a chunk states usage: an object of LiteLLM, an event, or the text of one as it is sent."""
    if isinstance(chunk, bytes | str):
        text = chunk.decode(errors="replace") if isinstance(chunk, bytes) else chunk
        found = (json_object(line.removeprefix("data:").strip()) for line in text.splitlines())
        return any(_states_usage(event) for event in found if isinstance(event, dict))
    places = (chunk, _field(chunk, "response"), _field(chunk, "message"))
    stated = [_usage(place) for place in places if place is not None]
    stated += [_field(chunk, name) for name in ("usageMetadata", "usage_metadata")]
    return any(isinstance(usage, dict) and numbers_of_usage(usage) for usage in stated)


def _usage_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usage that an answer of a model server states."""
    return next((usage for name in ("usage", "usageMetadata") if isinstance(usage := answer.get(name), dict)), {})


def _answered(response: Any) -> dict[str, Any]:
    """Return the JSON object in an answer of httpx."""
    try:
        answer = response.json()
    except (ValueError, AttributeError, RuntimeError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _call_type(data: Mapping[str, Any]) -> str:
    """Return the call type of a request that is passed through, by its address; the pass-through type if that is unknown."""
    return ROUTES.get(str(data.get("endpoint") or "").rstrip("/").rpartition("/")[2], "allm_passthrough_route")


def _kind(call_type: Any) -> str:
    return str(getattr(call_type, "value", call_type))


def named_call(details: Mapping[str, Any]) -> Call | None:
    """Return the call that these details of LiteLLM's belong to; None before its hook, and on routes that have none."""
    call = details.get(MARK)
    return call if isinstance(call, Call) else None


def _models(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the models of a request that several answer: `model: "a,b"`."""
    model = data.get("model")
    several = isinstance(model, str) and "," in model and not data.get("fastest_response")
    return tuple(name.strip() for name in str(model).split(",")) if several else ()


def _repeats(call_type: object) -> bool:
    return str(call_type).removeprefix("a").startswith(REPEATING)


def _flat(response: Any) -> list[Any]:
    """Return the answers: one, or one of each model, or one of each model to each of several conversations."""
    return [answer for part in response for answer in _flat(part)] if isinstance(response, list) else [response]


def _digest(*parts: Any) -> str:
    return blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


def call_details(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the details of a request's call that LiteLLM's logging object keeps; None without such an object."""
    details = getattr(data.get("litellm_logging_obj"), "model_call_details", None)
    return details if isinstance(details, dict) else None


def _usage(response: Any) -> dict[str, Any] | None:
    usage = _field(response, "usage")
    if hasattr(usage, "model_dump"):
        usage = usage.model_dump()
    return usage if isinstance(usage, dict) and usage else None


def _field(response: Any, name: str) -> Any:
    return response.get(name) if isinstance(response, Mapping) else getattr(response, name, None)


class _PerProcess:
    """Outbox of the present process: a worker that was forked begins its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._outbox = CallbackOutbox(settings)
        self._process = os.getpid()

    def __call__(self) -> CallbackOutbox:
        if os.getpid() != self._process:
            self._outbox, self._process = CallbackOutbox(self._settings), os.getpid()
        return self._outbox


def make_reporter(environment: Mapping[str, str]) -> Any:
    """Return an instance of LiteLLM's CustomLogger with our hooks.  Raises RecordError.

    LiteLLM looks for hooks in the class itself, not in its bases, so they are put there.
    """
    from litellm.integrations.custom_logger import CustomLogger  # only a proxy has it

    names = [name for name in vars(Hooks) if not name.startswith("__")]
    reporter: Any = type("SuanpanReporter", (CustomLogger,), {name: vars(Hooks)[name] for name in names})()
    reporter.outbox = _PerProcess(read_settings(environment))
    return reporter


def __getattr__(name: str) -> Any:
    """Make `reporter` once, when LiteLLM's configuration asks for it."""
    if name != "reporter":
        raise AttributeError(name)
    globals()["reporter"] = made = make_reporter(os.environ)
    return made
