"""Endpoints for gateways with a format of their own: CloudEvents, Lago, LiteLLM. Shape only.

`metering.gateways` decides on the meaning of a record, `billing.usage` on its fate. This module never forwards, stores
or logs a body as it came: records are reduced to the counted fields before anything else sees them.
"""

import re
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.bodies import RECORD_BODIES, UNREADABLE, envelope, object_parts, raw_records
from billing.api.event_schema import CLOUD_EVENT, LAGO_BATCH_ANSWER, LAGO_ECHO, LAGO_EVENT, LITELLM_PAYLOAD
from billing.api.problems import problem
from billing.api.schema import INGEST_ANSWER, PROBLEM
from billing.api.usage import UsageEndpoint
from billing.tenancy.actors import actor_of
from billing.usage.services import IngestOutcome, source_tag_rules, tokens_ingest
from metering.gateways import cloudevents, lago, litellm
from metering.gateways.translation import Translated, translate
from metering.raw_json import UnreadableJSONError
from metering.records import TokenUsage

BATCH = "application/cloudevents-batch+json"
OPENMETER = re.compile(r"\bopenmeter\b", re.IGNORECASE)
NODE = re.compile(r"\b(node|undici|deno|bun)\b", re.IGNORECASE)
LAGO = re.compile(r"\blago\b", re.IGNORECASE)
"""Names of clients in `User-Agent`. OpenMeter's Python client wants 204 for a batch. Its JavaScript client, which sends only
the name of its runtime, and Lago's clients look at nothing but the status: below 400 is success, whatever the answer says.
"""
EVENT_BODIES = frozenset({"application/cloudevents+json", BATCH, "application/json"})
Raws = list[msgspec.Raw | bytes]


class GatewayEndpoint(UsageEndpoint):
    """Base of endpoints whose records are translated first."""

    def source(self, request: Request, default: str) -> str:
        """Return the source of records whose format has none: the token's source, else the name of the format."""
        bound = actor_of(request).source
        return bound or default

    def hand_over(self, request: Request, translated: Translated, now: datetime) -> IngestOutcome:
        """Pass translated records to `billing.usage`."""
        return tokens_ingest(
            records=translated.records, rejected=translated.rejected, reporter=self.reporter(request), now=now
        )

    def lago_events(self, request: Request, raws: Raws, now: datetime) -> Translated:
        namings, source = settings.EVENT_NAMINGS, self.source(request, "lago")
        return translate(
            raws,
            partial(lago.redacted, source=source, namings=namings, tags=source_tag_rules().get(source, ())),
            partial(lago.usage, namings=namings, now=now),
        )


class EventsEndpoint(GatewayEndpoint):
    """CloudEvents, one or many; also the single event of a Lago client, which posts to the same path."""

    door = "events"

    @extend_schema(
        operation_id="report_events",
        description=(
            "One CloudEvent (structured, or binary with `ce-*` headers and the data as body) or a batch of them; or "
            '`{"event": {...}}` of a Lago client. `subject` is the consumer. Data fields are named as in TokenUsage, or '
            "as configured for the type; a number of another name that may be usage puts the event into quarantine, all "
            "other data is discarded on arrival. The same (source, id) again is a duplicate."
        ),
        request={
            "application/cloudevents+json": CLOUD_EVENT,
            BATCH: {"type": "array", "items": CLOUD_EVENT},
            "application/json": {"oneOf": [CLOUD_EVENT, {"type": "array", "items": CLOUD_EVENT}, LAGO_EVENT]},
        },
        responses={
            200: OpenApiResponse({"oneOf": [INGEST_ANSWER, LAGO_ECHO]}, "durable: a batch, or the event of a Lago client"),
            204: OpenApiResponse(None, "durable: a single CloudEvent, new or known already; a batch of OpenMeter's client"),
            400: OpenApiResponse(PROBLEM, "a single CloudEvent that is not valid; it is in quarantine. OpenMeter's clients, "
                                          "which look at the status alone, get it for a batch with such a one"),
            409: OpenApiResponse(PROBLEM, "source and id were reported before with other content; the first one stays"),
            422: OpenApiResponse(PROBLEM, "the event of a Lago client is not valid; it is in quarantine"),
        },
    )
    def post(self, request: Request) -> HttpResponse:
        body, now = self.body(request, EVENT_BODIES), timezone.now()
        if not (request.content_type or "").startswith("application/cloudevents"):
            if cloudevents.is_binary(request.headers):
                return self._single(request, cloudevents.of_binary(request.headers, body), now)
            event = _lago_event(body)
            if event is not None:
                return self._lago(request, event, now)
        if body.lstrip().startswith(b"["):
            return self._batch(request, raw_records(body), now)
        if (request.content_type or "").startswith(BATCH):
            raise ParseError("the body of a batch must be a JSON array of events")
        if not body.strip():
            raise ParseError("the body is empty: send a CloudEvent, or a JSON array of them")
        return self._single(request, body, now)

    def _take(self, request: Request, raws: Raws, now: datetime) -> IngestOutcome:
        namings = settings.EVENT_NAMINGS
        translated = translate(
            raws,
            partial(cloudevents.redacted, namings=namings, tags=source_tag_rules()),
            partial(cloudevents.usage, namings=namings, now=now),
        )
        return self.hand_over(request, translated, now)

    def _batch(self, request: Request, raws: Raws, now: datetime) -> HttpResponse:
        """The usual answer; to a client that reads none of it a status that says whether all was taken."""
        outcome, client = self._take(request, raws, now), request.headers.get("User-Agent", "")
        if outcome.refusals and (OPENMETER.search(client) or NODE.search(client)):
            is_conflict = all(refusal.reason == "conflict" for refusal in outcome.refusals)
            status = HTTPStatus.CONFLICT if is_conflict else HTTPStatus.BAD_REQUEST
            return problem(status, status.phrase, _not_taken(outcome, len(raws)), **outcome.answer())
        if OPENMETER.search(client):
            return Response(status=HTTPStatus.NO_CONTENT)
        return Response(outcome.answer())

    def _single(self, request: Request, raw: bytes, now: datetime) -> HttpResponse:
        refusals = self._take(request, [raw], now).refusals
        if not refusals:
            return Response(status=HTTPStatus.NO_CONTENT)
        status = HTTPStatus.CONFLICT if refusals[0].reason == "conflict" else HTTPStatus.BAD_REQUEST
        return problem(status, status.phrase, str(refusals[0].error), key=refusals[0].key)

    def _lago(self, request: Request, raw: bytes, now: datetime) -> HttpResponse:
        translated = self.lago_events(request, [raw], now)
        outcome = self.hand_over(request, translated, now)
        if outcome.refusals:
            error = str(outcome.refusals[0].error)
            return _lago_problem(error, _lago_details(outcome.refusals[0].reason, error))
        return Response({"event": _lago_echo(translated.records[0], now)})


class EventsBatchEndpoint(GatewayEndpoint):
    """Batch of a Lago client."""

    door = "events/batch"

    @extend_schema(
        operation_id="report_lago_events",
        description=(
            "Batch of a Lago client. A bad event never fails its batch: `events` echoes those that are in the ledger, "
            "`rejected` names the others. The subscription is the consumer; without `timestamp` the time of arrival counts."
        ),
        request={
            "application/json": {
                "type": "object", "required": ["events"],
                "properties": {"events": {"type": "array", "items": LAGO_EVENT["properties"]["event"]}},
            }
        },
        responses={
            200: OpenApiResponse(LAGO_BATCH_ANSWER, "durable"),
            422: OpenApiResponse(PROBLEM, "to a client of Lago's: some were not taken, all others are durable"),
        },
    )  # fmt: skip
    def post(self, request: Request) -> HttpResponse:
        _, raws = envelope(_LagoBatch, self.body(request), "events")
        now = timezone.now()
        translated = self.lago_events(request, raws, now)
        outcome = self.hand_over(request, translated, now)
        refused = {refusal.index for refusal in outcome.refusals}
        taken = [_lago_echo(item, now) for item in translated.records if item[0] not in refused]
        answer = {**outcome.answer(), "events": taken}
        if outcome.refusals and LAGO.search(request.headers.get("User-Agent", "")):
            details = {str(refusal.index): _lago_details(refusal.reason, str(refusal.error)) for refusal in outcome.refusals}
            return _lago_problem(_not_taken(outcome, len(raws)), details, **answer)
        return Response(answer)


class LitellmEndpoint(GatewayEndpoint):
    """Records of LiteLLM's generic API logger: successes and failures."""

    door = "usage/litellm"

    @extend_schema(
        operation_id="report_litellm",
        description=(
            "StandardLoggingPayloads of LiteLLM's generic API logger in any of its log formats: a JSON array, one a "
            "line, or a single one. Prompts, responses and everything else that is not counted are discarded on arrival, "
            "never stored or logged. A failure without tokens is counted and bills nothing."
        ),
        request={
            "application/json": {
                "oneOf": [{"type": "array", "items": LITELLM_PAYLOAD}, LITELLM_PAYLOAD],
            },
            "application/x-ndjson": {"type": "string"},
        },
        responses={200: OpenApiResponse(INGEST_ANSWER, "durable")},
    )
    def post(self, request: Request) -> Response:
        raws, source = payloads(self.body(request, RECORD_BODIES)), self.source(request, "litellm")
        translated = translate(
            raws,
            partial(litellm.redacted, source=source, tags=source_tag_rules().get(source, ())),
            partial(litellm.usage, consumer=settings.LITELLM_CONSUMER),
        )
        return Response(self.hand_over(request, translated, timezone.now()).answer())


class _LagoBatch(msgspec.Struct):
    events: list[msgspec.Raw]


def _lago_event(body: bytes) -> bytes | None:
    """Return the event in the envelope of a Lago client, None for a CloudEvent, which may have an extension `event`."""
    try:
        members = dict(object_parts(body))
    except (*UNREADABLE, UnreadableJSONError):
        return None
    is_cloud_event = bytes(members.get("specversion", b"null")) != b"null"
    return None if is_cloud_event or "event" not in members else bytes(members["event"])


def _lago_echo(item: tuple[int, TokenUsage, bytes], now: datetime) -> dict[str, Any]:
    """Return the event in Lago's answer; `lago_id` is the key of the record in the ledger, the same at each sending."""
    _, record, redacted = item
    event = msgspec.json.decode(redacted)
    return {
        "lago_id": str(UUID(bytes=record.key)), "transaction_id": record.id, "lago_customer_id": None,
        "lago_subscription_id": None, "external_subscription_id": event.get("external_subscription_id"),
        "code": event.get("code"), "timestamp": record.time, "properties": event.get("properties"), "created_at": now,
    }  # fmt: skip


def _not_taken(outcome: IngestOutcome, number: int) -> str:
    """Say how many events of a batch were not taken, and why the first was not."""
    first = outcome.refusals[0]
    return f"{len(outcome.refusals)} of {number} events were not taken, all others were; event {first.index}: {first.error}"


def _lago_details(reason: str, error: str) -> dict[str, list[str]]:
    """Return Lago's details of a refusal, by which its clients recognise a transaction that was used before."""
    return {"transaction_id": ["value_already_exist"]} if reason == "conflict" else {"event": [error]}


def _lago_problem(error: str, details: dict[str, Any], **more: Any) -> HttpResponse:
    """Build our error with the members of Lago's beside ours."""
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    lago = {"error": status.phrase, "code": "validation_errors", "error_details": details}
    return problem(status, status.phrase, error, **lago, **more)


def payloads(body: bytes) -> Raws:
    """Return the records of a body, whose one record may also be printed over several lines."""
    text = body.strip()
    if text.startswith(b"{"):
        try:
            object_parts(text)
            return [text]
        except (*UNREADABLE, UnreadableJSONError):
            pass  # several, one a line
    return raw_records(body)
