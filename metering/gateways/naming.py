"""Names of the fields in an event's data, by the type of a CloudEvent or the code of a Lago event.

A type without a naming is read by the contract's own names, so a sender that uses them needs no configuration.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from metering.gateways.translation import Fields, failed, scalars, text, whole
from metering.messages import Message
from metering.record_checks import RecordError
from metering.records import DETAIL_COUNTS, DETAIL_TEXTS
from metering.request_tags import TagChoice, chosen_tags
from metering.token_usage import TokenClasses, classes_by_name, numbers_of_usage, refuse_unread


class Naming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of fields in the data of one type of event; None where the sender has no such field.

    `other_numbers`: paths of numbers whose names speak of usage but that are parts of these counts, or none.
    """

    model: str = "model"
    input_tokens: str = "input_tokens"
    output_tokens: str = "output_tokens"
    cache_read_input_tokens: str | None = "cache_read_input_tokens"
    cache_creation_input_tokens: str | None = "cache_creation_input_tokens"
    reasoning_output_tokens: str | None = "reasoning_output_tokens"
    total_tokens: str | None = "total_tokens"
    site: str | None = "site"
    provider: str | None = "provider"
    status: str | None = "status"
    service_tier: str | None = "service_tier"
    deployment: str | None = "deployment"
    hardware: str | None = "hardware"
    cache_creation_1h_input_tokens: str | None = "cache_creation_1h_input_tokens"
    audio_input_tokens: str | None = "audio_input_tokens"
    image_input_tokens: str | None = "image_input_tokens"
    audio_output_tokens: str | None = "audio_output_tokens"
    image_output_tokens: str | None = "image_output_tokens"
    searches: str | None = "searches"
    tool_calls: str | None = "tool_calls"
    other_numbers: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names that are read; no other field of the data survives."""
        return tuple(name for name in msgspec.structs.astuple(self) if isinstance(name, str))


LITELLM: Final = Naming(
    input_tokens="prompt_tokens", output_tokens="completion_tokens", cache_read_input_tokens=None,
    cache_creation_input_tokens=None, reasoning_output_tokens=None, site=None, provider=None, status=None,
)  # fmt: skip
"""Naming of LiteLLM's `openmeter` and `lago` callbacks: two counts, their total, no cache, a cost that is not ours."""

TOKENS: Final = "tokens"
"""Field of OpenMeter's first example, which sends an event for each class of a request."""
DEFAULT: Final[Mapping[str, Naming]] = MappingProxyType({"litellm_tokens": LITELLM})
NATIVE: Final = Naming()


def read_namings(configured: str) -> Mapping[str, Naming]:
    """Return the default namings, overridden by those of a JSON object {type: {field: name}}.  Raises RecordError.

    >>> read_namings('{"chat": {"input_tokens": "in", "output_tokens": "out"}}')["chat"].input_tokens
    'in'
    """
    try:
        return {**DEFAULT, **msgspec.json.decode(configured or "{}", type=dict[str, Naming])}
    except msgspec.DecodeError as error:
        raise RecordError(Message("namings of events: %(error)s", error=error)) from error


def naming_of(kind: object, namings: Mapping[str, Naming]) -> Naming:
    """Return the naming of a type of event."""
    return namings.get(kind, NATIVE) if isinstance(kind, str) else NATIVE


def known_data(given: object, naming: Naming) -> Fields | None:
    """Return the data, reduced to the fields that are read and numbers that may be usage; None if it is no object."""
    return named_and_numbers(given, naming.fields, naming.other_numbers) if isinstance(given, Mapping) else None


def named_and_numbers(given: Mapping[str, Any], names: Sequence[str], others: Sequence[str] = ()) -> Fields:
    """Return the named fields without long texts, and all numbers but `others` that may be usage, by their paths."""
    return {**numbers_of_usage(given, known=(*names, *others), left_out=("tags",)), **scalars(given, names)}


def tags_of_data(given: object, beside: Mapping[str, Any], choices: Sequence[TagChoice]) -> Fields:
    """Return the chosen tags from `tags`, `metadata` and `request_tags` of an event's data; `beside`: its other fields."""
    data = given if isinstance(given, Mapping) else {}
    own = data.get("tags")
    tags = {**beside, **own} if isinstance(own, Mapping) else beside
    return chosen_tags(choices, tags=tags, metadata=[data.get("metadata")], request_tags=data.get("request_tags"))


def data_usage(given: Fields | None, naming: Naming) -> Fields:
    """Return the fields of `TokenUsage` in the data of an event.

    Raises RecordError if model or counts are missing, or if a number that may be usage has a name that is not read.
    """
    if given is None:
        raise RecordError(Message("the event has no data: an object with model and token counts is expected"), "data")
    if TOKENS in given and given.keys().isdisjoint({naming.input_tokens, naming.output_tokens}):
        raise RecordError(Message(
            "tokens: one event is one request with all its counts, in %(input)s and %(output)s",
            input=naming.input_tokens, output=naming.output_tokens,
        ), TOKENS)
    classes = _classes(given, naming)
    for name in filter(None, (getattr(naming, name) for name in DETAIL_TEXTS)):
        if isinstance(given.get(name), int | float):
            raise RecordError(Message("%(name)s %(n)s is not known", name=name, n=given[name]), name)
    called = {name: getattr(naming, name) for name in ("site", "provider", "status", *DETAIL_TEXTS)}
    optional = {name: text(given, field) if field else None for name, field in called.items()}
    model = text(given, naming.model)
    if model is None:
        raise RecordError(Message("%(model)s is missing or empty", model=naming.model), naming.model)
    if not (classes.input_tokens or classes.output_tokens or failed(optional["status"])):
        raise RecordError(Message("a success that states no token counts"), naming.input_tokens)
    refuse_unread(given, known=naming.fields)
    finer = {name: whole(given, field) for name in DETAIL_COUNTS if (field := getattr(naming, name))}
    return {"model": model, **classes.counts, **optional, **finer, "attributes": classes.remarks or None}


def _classes(given: Fields, naming: Naming) -> TokenClasses:
    """Return the classes of the named counts; a total that the event states must be their sum.  Raises RecordError."""
    counts: dict[str, int | None] = {
        "input_tokens": _needed(given, naming.input_tokens), "output_tokens": _needed(given, naming.output_tokens)
    }  # fmt: skip
    for name in ("cache_read_input_tokens", "cache_creation_input_tokens", "reasoning_output_tokens", "total_tokens"):
        called = getattr(naming, name)
        counts[name] = whole(given, called) if called else None
    return classes_by_name(counts)


def _needed(given: Mapping[str, Any], name: str) -> int:
    count = whole(given, name)
    if count is None:
        raise RecordError(Message("%(name)s is missing: a missing count is not zero", name=name), name)
    return count
