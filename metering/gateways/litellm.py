"""Format of LiteLLM's StandardLoggingPayload, as its generic API logger sends it: successes, failures, aborted streams.

**Identity.** The client writes `litellm_call_id` into a header, and `id` repeats with some upstreams; a failed deployment
and its fallback share the call id. So the identity is a hash of key, call id, response id, status and start: a client can
neither hide a request behind another nor lose one, and a payload sent twice is a duplicate. A finished batch is reported
each time it is fetched, so its identity is its own id.

**Time.** `startTime`, as part of the identity. LiteLLM is known to fire a callback twice with two end times, which would
make a conflict of a duplicate.

**Consumer.** The first field of `consumer` that the payload has: by default the team, else the hash of the key. Not the
alias, which anybody with the admin page may change and two keys may share; not the end user, whom the client names in
the body of its request, and so could let others pay.

**Counts.** Those of `usage_object`, which states the cache; else the three totals. Counts that are not certain, and a
success that states none, are refused for quarantine. When a client hangs up (error code 499), a stream breaks, or a stream
has no usage (our callback sees that, the payload does not say it), LiteLLM counts itself: marked as `gateway_estimate`. Of a
failure without output it estimates the input, whether or not any model worked on it: that is no usage. An answer from
LiteLLM's own cache repeats the counts of the first one: no usage either. Both are records with zero tokens, so that they are
counted and known when they are sent again.

**Calls without tokens.** A success of another kind (pictures, speech, pass-through, realtime, MCP) that states no tokens is
paid by the call: it waits in quarantine with LiteLLM's charge. For a record with counts that charge is not ours.

**Tier, deployment, tags.** The tier that the answer states, else the one by which LiteLLM reckoned its cost, else one that
was requested by name; a finished batch has the tier `batch`. The deployment is LiteLLM's `model_id`. Only the tags that the
caller chooses are read.

Source: reference/METERING_FACTS.md, B2.1.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from metering.gateways.translation import MAX_KEPT_TEXT, Fields, UndatedUsage, from_epoch, required, scalars, text
from metering.messages import Message
from metering.names import name_problem
from metering.record_checks import RecordError
from metering.records import STANDARD_TIER, TokenUsage, canonical_tier, from_row, paid_by_call, shown
from metering.request_tags import TagChoice, chosen_tags
from metering.token_usage import (
    NOTHING,
    REPEATED,
    TokenClasses,
    numbers_of_usage,
    refuse_unread,
    token_classes,
    without_texts,
)
from metering.usage_parts import REFINEMENTS, TIERS, refined_tier, tier_word

GUESSED: Final = "suanpan_guessed"
"""Field that our callback adds to the payload of a stream in which the provider stated no counts."""
PAYLOAD: Final = (
    "id", "litellm_call_id", "call_type", "status", "stream", "startTime", "model", "model_group", "custom_llm_provider",
    "prompt_tokens", "completion_tokens", "total_tokens", "cache_hit", "response_cost", "spend",
    "service_tier", "deployment", GUESSED,
)  # fmt: skip
DETAILS: Final = ("service_tier", "deployment")
METADATA: Final = (
    "user_api_key_hash", "user_api_key_alias", "user_api_key_team_id", "user_api_key_team_alias", "user_api_key_user_id",
    "user_api_key_org_id", "user_api_key_project_id", "user_api_key_end_user_id",
)  # fmt: skip
INPUT_ONLY: Final = frozenset({"embedding", "aembedding", "rerank", "arerank"})
"""Calls that make no output: their total alone is input."""
COUNTED: Final = frozenset({
    "completion", "acompletion", "text_completion", "atext_completion", "embedding", "aembedding", "responses", "aresponses",
    "anthropic_messages", "generate_content", "agenerate_content", "generate_content_stream", "agenerate_content_stream",
})  # fmt: skip
"""Calls whose every success used tokens: for one that states none, the usage is unknown, not zero."""
WITHOUT_USAGE: Final = (
    "get_", "retrieve_", "list_", "cancel_", "delete_", "file_", "create_file", "create_batch", "moderation",
)  # fmt: skip
"""Prefixes of calls, without the `a` of asynchronous ones, that use nothing if the gateway charges nothing."""
CONSUMER: Final = ("team_id", "hash")
"""Default order of fields that name the consumer: the `user_api_key_*` fields, without that prefix."""

AMOUNT: Final = re.compile(r"[0-9]{1,20}(\.[0-9]{1,30})?(e-?[0-9]{1,2})?\Z")
BATCHES: Final = frozenset({"retrieve_batch", "aretrieve_batch"})
BATCH_TIER: Final = "batch"
TAGGED: Final = ("spend_logs_metadata", "requester_metadata", "user_api_key_auth_metadata")
"""Objects in the metadata of a payload that hold what client and administrator wrote into their own metadata."""

CLIENT_LEFT: Final = "499"
FAILURE: Final = "failure"
SUCCESS: Final = "success"
NO_MODEL: Final = "(none)"


def redacted(payload: Fields, *, source: str, tags: Sequence[TagChoice] = ()) -> Fields:
    """Return identity, consumer fields, counts, tier, deployment and chosen tags of a payload; drop prompts, responses,
    headers, error texts and all else.
    """
    flat = {name: value for name, value in payload.items() if not isinstance(value, Mapping | list)}
    kept = {**numbers_of_usage(flat, known=PAYLOAD), **scalars(payload, PAYLOAD)}
    metadata, errors = _mapping(payload, "metadata"), _mapping(payload, "error_information")
    kept["metadata"] = {**scalars(metadata, METADATA), "usage_object": without_texts(_mapping(metadata, "usage_object"))}
    code = str(errors.get("error_code") or "")
    kept["error_code"] = code if code.isascii() and code.isdigit() and len(code) == 3 else ""
    stated = {"service_tier": _tier(payload), "deployment": _deployment(payload)}
    kept = {name: value for name, value in kept.items() if name not in DETAILS}
    kept |= {name: value for name, value in stated.items() if value is not None}
    chosen = chosen_tags(
        tags, metadata=[metadata, *(metadata.get(name) for name in TAGGED)], request_tags=payload.get("request_tags")
    )
    found = {"source": source, "id": kept.get("id"), "time": _started(kept), "payload": kept}
    return {**found, "tags": chosen} if chosen else found


def usage(record: Fields, *, consumer: Sequence[str] = CONSUMER) -> TokenUsage:
    """Return the usage that a redacted payload reports.  Raises RecordError."""
    shape = UndatedUsage if record["payload"].get("call_type") in BATCHES else TokenUsage
    return counted_request(request(record, consumer=consumer), classes(record), shape)


def counted_request(fields: Fields, counted: TokenClasses, shape: type[TokenUsage] = TokenUsage) -> TokenUsage:
    """Return the record of a request and its counts.  Raises RecordError."""
    attributes = {**counted.remarks, **fields["attributes"]} or None
    has_tokens = bool(counted.input_tokens or counted.output_tokens)
    known = fields if has_tokens else {name: value for name, value in fields.items() if name not in DETAILS}
    return from_row(shape, {**counted.details, **known, **counted.counts, "attributes": attributes})


def request(record: Fields, *, consumer: Sequence[str] = CONSUMER) -> Fields:
    """Return all fields of a redacted payload's record but its counts.  Raises RecordError."""
    payload: Fields = record["payload"]
    status = required(payload, "status")
    if record["time"] is None:
        raise RecordError(Message(
            "startTime must be seconds since 1970 or an RFC 3339 instant, not %(value)s",
            value=shown(payload.get("startTime")),
        ), "startTime")
    return {
        "id": identity(payload), "source": record["source"], "time": record["time"],
        "consumer": _consumer(payload["metadata"], consumer), "model": _model(payload, status),
        "provider": text(payload, "custom_llm_provider"), "status": status, "attributes": _trace(payload),
        **{name: payload[name] for name in DETAILS if payload.get(name) is not None},
        **({"tags": record["tags"]} if record.get("tags") else {}),
    }  # fmt: skip


def read_consumer(configured: str) -> tuple[str, ...]:
    """Parse the order of fields that name the consumer, comma separated.  Raises RecordError for an unknown name.

    >>> read_consumer("team_id, alias")
    ('team_id', 'alias')
    """
    names = tuple(name.strip() for name in configured.split(",") if name.strip()) or CONSUMER
    known = [name.removeprefix("user_api_key_") for name in METADATA]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise RecordError(Message(
            "consumer of LiteLLM: %(names)s is none of %(known)s", names=", ".join(unknown), known=", ".join(known)
        ))
    return names


def identity(payload: Fields) -> str:
    """Return the id of the record of a redacted payload.  Raises RecordError."""
    if payload.get("call_type") in BATCHES and payload.get("total_tokens"):
        return blake2b(msgspec.json.encode(("batch", required(payload, "id"))), digest_size=16).hexdigest()
    parts = (
        payload["metadata"].get("user_api_key_hash"), payload.get("litellm_call_id"), required(payload, "id"),
        payload.get("status"), payload.get("startTime"),
    )  # fmt: skip
    return blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


def _consumer(metadata: Fields, order: Sequence[str]) -> str:
    for name in order:
        found = text(metadata, f"user_api_key_{name}")
        if found is not None:
            return found
    raise RecordError(Message("no consumer: the payload has none of %(names)s", names=", ".join(order)), "metadata")


def _model(payload: Fields, status: str) -> str:
    """Return the model's name that users call and prices are for; NO_MODEL for a failure before there was a model."""
    found = text(payload, "model_group") or text(payload, "model")
    if found is None and status == FAILURE:
        return NO_MODEL
    if found is None:
        raise RecordError(Message("model is missing or empty"), "model")
    return found


def classes(record: Fields) -> TokenClasses:
    """Return the classes of the usage object, or of the totals if it counts nothing; NOTHING for some failures.

    Raises RecordError if the counts are not certain.
    """
    payload: Fields = record["payload"]
    if payload.get("cache_hit") in (True, "True"):  # the table of spend logs has it as a text
        return REPEATED
    refuse_unread({name: value for name, value in payload.items() if name != "metadata"}, known=PAYLOAD)
    input_only = payload.get("call_type") in INPUT_ONLY
    totals = {name: payload.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    for stated in (_completed(payload["metadata"]["usage_object"], totals, input_only), totals):
        counted = token_classes(stated, input_only=input_only)
        if counted.input_tokens or counted.output_tokens:
            return _of_status(counted, payload)
    if payload.get("status") != SUCCESS or (not spend(payload) and _is_without_usage(payload.get("call_type"))):
        return NOTHING
    if payload.get("call_type") in COUNTED:
        raise RecordError(Message("a success that states no token counts"), "usage_object")
    raise RecordError(paid_by_call(text(payload, "model_group") or text(payload, "model")), "usage_object")


def stated(record: Fields) -> Fields:
    """Return what quarantine keeps of the usage in a redacted payload: its usage object and the gateway's charge."""
    payload: Fields = record["payload"]
    charged = spend(payload)
    return {**payload["metadata"]["usage_object"], **({"spend": charged} if charged else {})}


def spend(payload: Fields) -> str | None:
    """Return LiteLLM's charge for a request, in its own currency, as it wrote it; None if it charged nothing."""
    for name in ("spend", "response_cost"):
        value = str(payload.get(name))
        if AMOUNT.match(value) and float(value):
            return value
    return None


def _tier(payload: Mapping[str, Any]) -> str | None:
    """Return the service tier of an answer; the requested one only if no field states the given one.

    A request for the standard tier, under any of its names, leaves the choice to the provider. Speed and place of inference
    refine the tier, wherever that is stated.
    """
    given, asked = _mapping(_mapping(payload, "metadata"), "usage_object"), _mapping(payload, "model_parameters")
    stated = tier_word(payload.get("service_tier")) or tier_word(_mapping(payload, "response").get("service_tier"))
    stated = stated or next((word for name in TIERS if (word := tier_word(given.get(name)))), None)
    stated = stated or tier_word(_mapping(payload, "cost_breakdown").get("service_tier"))
    if stated is None and payload.get("call_type") in BATCHES:
        stated = BATCH_TIER
    wanted = tier_word(asked.get("service_tier"))
    stated = stated or (wanted if wanted and canonical_tier(wanted) != STANDARD_TIER else None)
    refinements = {name: given.get(name) or asked.get(name) for name, *_ in REFINEMENTS}
    return refined_tier(stated, {name: [value] for name, value in refinements.items()})


def _deployment(payload: Mapping[str, Any]) -> str | None:
    """Return LiteLLM's id of the deployment that answered."""
    for value in (payload.get("deployment"), payload.get("model_id"), _mapping(payload, "hidden_params").get("model_id")):
        if isinstance(value, str) and 0 < len(value) <= MAX_KEPT_TEXT and name_problem(value) is None:
            return value
    return None


def _is_without_usage(call_type: object) -> bool:
    return str(call_type).removeprefix("a").startswith(WITHOUT_USAGE)


def _completed(usage: Fields, totals: Fields, input_only: bool) -> Fields:
    """Return the usage object, completed from the totals where it lacks input or output and agrees with them."""
    if input_only or None in totals.values():
        return usage
    for given, produced in (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")):
        if (usage.get(given) is None) != (usage.get(produced) is None):
            whole = {**usage, **{name: totals[total] for name, total in ((given, "prompt_tokens"),
                     (produced, "completion_tokens")) if usage.get(name) is None}}  # fmt: skip
            try:
                counted = token_classes(whole)
            except RecordError:
                return usage
            agrees = (counted.input_tokens, counted.output_tokens) == (totals["prompt_tokens"], totals["completion_tokens"])
            return whole if agrees else usage
    return usage


def _of_status(counted: TokenClasses, payload: Fields) -> TokenClasses:
    """Return the counts by how the call ended: as they are, as an estimate, or NOTHING."""
    if payload["error_code"] == CLIENT_LEFT or payload.get(GUESSED) is True:
        return counted.as_estimate()
    if payload.get("status") != FAILURE:
        return counted
    return counted.as_estimate() if counted.output_tokens else NOTHING


def _trace(payload: Fields) -> dict[str, str]:
    """Return attributes that lead from a line of the ledger back to the request, for a dispute."""
    batch = payload.get("call_type") in BATCHES  # each time it is fetched it is another call, and the same usage
    found = {
        "call_id": None if batch else text(payload, "litellm_call_id"), "response_id": text(payload, "id"),
        "error_code": payload["error_code"] or None,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def _started(payload: Fields) -> str | None:
    started = payload.get("startTime")
    if isinstance(started, str):
        return started
    if isinstance(started, bool) or not isinstance(started, int | float):
        return None
    try:
        return from_epoch(started, "startTime")
    except RecordError:
        return None


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = fields.get(name)
    return found if isinstance(found, Mapping) else {}
