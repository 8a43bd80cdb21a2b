"""Endpoints through which agents and gateways report usage. Shape only: the rules are in `billing.usage`."""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, ClassVar

import msgspec
from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework.exceptions import ParseError, PermissionDenied
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.api.admission import gate
from billing.api.authentication import has_scope
from billing.api.bodies import JSON_BODY, RECORD_BODIES, UNREADABLE, declared_bytes, envelope, raw_records, read_body
from billing.api.schema import INGEST_ANSWER, record_schema
from billing.api.token_reports import report_read
from billing.tenancy.actors import actor_of
from billing.usage import services
from billing.usage.services.watermarks import AgentNote
from metering.intervals import Interval
from metering.names import name_problem
from metering.record_checks import EARLIEST
from metering.records import (
    EfficiencySample,
    EngineReading,
    GpuAllocation,
    NodeCapacity,
    TokenUsage,
    decode_batch,
)

MOST_NOTES = 100
STATELESS_VERSION = "1"
"""Version of agents that do not report the loss of their state."""


class AnyBody(BaseParser):
    """Parser that leaves the body to the endpoint, which reads it once."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        return None


class UsageEndpoint(APIView):
    """Base of the usage endpoints: read, decode one by one, pass on, answer."""

    parser_classes = [AnyBody]
    permission_classes = [has_scope("usage:write")]
    door: ClassVar[str]

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as self.admission:  # frees the bytes of the body once the answer is made
            return super().dispatch(request, *args, **kwargs)

    def body(self, request: Request, accepted: Collection[str] = JSON_BODY) -> bytes:
        """Return the whole body, unpacked.  Raises what `read_body` does."""
        admitted = self.admission.enter_context(gate.admit(declared_bytes(request.META, settings.INGEST_MAX_BYTES)))
        return read_body(request._request, admitted, accepted)

    def reporter(self, request: Request) -> services.Reporter:
        """Return the reporter, with the limits of its token."""
        actor = actor_of(request)
        limit, estimates = settings.FUTURE_TOLERANCE_SECONDS, settings.ESTIMATES_FROM
        return services.Reporter(str(actor), self.door, actor.source, limit, estimates)

    def take(
        self,
        request: Request,
        raws: list[Any],
        kind: type[Any],
        ingest: Callable[..., services.IngestOutcome],
    ) -> Response:
        """Decode the records, pass them to `ingest`, and answer with the outcome of each."""
        batch: Any = decode_batch(kind, raws)
        records = [(index, record, bytes(raws[index])) for index, record in batch.records]
        outcome = ingest(
            records=records, rejected=batch.rejected, reporter=self.reporter(request), now=timezone.now()
        )
        return Response(outcome.answer())


class TokensEndpoint(UsageEndpoint):
    """Tokens of gateway requests."""

    door = "usage/tokens"

    @extend_schema(
        operation_id="report_tokens",
        description="A JSON array of TokenUsage, or one record a line. A bad record never fails its batch.",
        request={
            "application/json": {"type": "array", "items": record_schema(TokenUsage)},
            "application/x-ndjson": {"type": "string"},
        },
        responses={200: OpenApiResponse(INGEST_ANSWER, "durable")},
        examples=[OpenApiExample("accepted", {"accepted": 1, "duplicates": 0, "conflicts": 0, "rejected": []})],
    )
    def post(self, request: Request) -> Response:
        batch = report_read(self.body(request, RECORD_BODIES), self.reporter(request))
        return Response(services.batch_ingest(batch).answer())


class EfficiencyEndpoint(UsageEndpoint):
    """Efficiency samples of pods and workloads."""

    door = "usage/efficiency"

    @extend_schema(
        operation_id="report_efficiency",
        request={"application/json": {"type": "array", "items": record_schema(EfficiencySample)}},
        responses={200: OpenApiResponse(INGEST_ANSWER, "durable")},
    )
    def post(self, request: Request) -> Response:
        raws = raw_records(self.body(request, RECORD_BODIES))
        return self.take(request, raws, EfficiencySample, services.efficiency_ingest)


class Stretch(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """Time interval [from, until) of a cluster."""

    start: datetime
    until: datetime


class WatermarkBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of usage/watermarks."""

    agent: str
    source: str
    watermark: datetime


class WatermarksEndpoint(UsageEndpoint):
    """Watermark: the instant up to which an agent has watched a source, with or without usage."""

    door = "usage/watermarks"

    @extend_schema(
        operation_id="report_watermark",
        description=(
            "`agent` has reported everything that it saw of `source` (a gateway, or a cluster) before `watermark`. An agent "
            "that once reported a watermark and then falls silent is a metering gap, which blocks the close."
        ),
        request={"application/json": record_schema(WatermarkBody)},
        responses={204: OpenApiResponse(None, "durable")},
    )
    def post(self, request: Request) -> Response:
        body, _ = envelope(WatermarkBody, self.body(request))
        _check_instant("watermark", body.watermark)
        bound = self.reporter(request).source
        if bound and body.source != bound:
            raise PermissionDenied(f"source {body.source!r}: this token may report for {bound!r} only")
        for field, value in (("agent", body.agent), ("source", body.source)):
            _checked_name(field, value)
        services.watermark_advance(agent=body.agent, cluster=body.source, watermark=body.watermark)
        return Response(status=HTTPStatus.NO_CONTENT)


class EngineCountersEndpoint(UsageEndpoint):
    """Counters of inference servers, for comparison with the gateways' records."""

    door = "usage/engine-counters"

    @extend_schema(
        operation_id="report_engine_counters",
        description=(
            "What replicas of inference servers (vLLM, SGLang) had counted: cumulative, as read. Never billed; the period "
            "report compares them with what gateways reported."
        ),
        request={"application/json": {"type": "array", "items": record_schema(EngineReading)}},
        responses={200: OpenApiResponse(INGEST_ANSWER, "durable")},
    )
    def post(self, request: Request) -> Response:
        raws = raw_records(self.body(request, RECORD_BODIES))
        return self.take(request, raws, EngineReading, services.engine_readings_ingest)


class AllocationEnvelope(msgspec.Struct, forbid_unknown_fields=True):
    """Body of usage/gpu-allocations.

    `unwatched`: intervals that the agent could not watch; `watched_since`: instant from which it knows everything else,
    because the first list of its state was complete then (sent with a watermark; a restarted agent leaves a gap since
    the last one); `filled`: intervals for which these allocations, and those sent before, are everything that could be
    reconstructed later; `scans`: agreement of lists of the cluster with what the agent had watched. All are about
    `agent.cluster`.
    """

    allocations: list[msgspec.Raw]
    agent: dict[str, Any] | None = None
    watermark: datetime | None = None
    watched_since: datetime | None = None
    unwatched: list[Stretch] = []
    filled: list[Stretch] = []
    scans: list[services.Scan] = []


class CapacityEnvelope(msgspec.Struct, forbid_unknown_fields=True):
    """Body of usage/capacity."""

    nodes: list[msgspec.Raw]
    agent: dict[str, Any] | None = None


class AllocationsEndpoint(UsageEndpoint):
    """Allocations of GPUs, with the watermark of the agent."""

    door = "usage/gpu-allocations"

    @extend_schema(
        operation_id="report_gpu_allocations",
        request={"application/json": record_schema(AllocationEnvelope, allocations=GpuAllocation)},
        responses={200: OpenApiResponse(INGEST_ANSWER, "durable")},
    )
    def post(self, request: Request) -> Response:
        body, raws = envelope(AllocationEnvelope, self.body(request), "allocations")
        unwatched, filled = _stretches("unwatched", body.unwatched), _stretches("filled", body.filled)
        for scan in body.scans:
            _check_instant("scans.at", scan.at)
        name, clusters = self._agent(request, body, raws)
        answer = self.take(request, raws, GpuAllocation, services.allocations_ingest)
        if body.watermark is not None:  # after the records are durable: a watermark never runs ahead of them
            stateless = (body.agent or {}).get("version") == STATELESS_VERSION
            watched = services.Watched(body.watched_since, tuple(unwatched), stateless)
            for cluster in sorted(clusters):
                services.watermark_advance(
                    agent=name, cluster=cluster, watermark=body.watermark, watched=watched, now=timezone.now()
                )
        for cluster in sorted(clusters):
            if body.watermark is None:
                services.watch_notes_add(agent=name, cluster=cluster, kind="unwatched", stretches=unwatched)
            services.watch_notes_add(agent=name, cluster=cluster, kind="filled", stretches=filled)
            services.cluster_scans_add(agent=name, cluster=cluster, scans=body.scans)
            for kind, notes in _agent_notes(body.agent).items():
                services.agent_notes_add(agent=name, cluster=cluster, kind=kind, notes=notes, now=timezone.now())
            if ignored := _no_accelerators(body.agent):
                services.no_accelerators_note(
                    agent=name, cluster=cluster, resources=ignored, actor=actor_of(request), now=timezone.now()
                )
        return answer

    def _agent(
        self, request: Request, body: AllocationEnvelope, raws: Sequence[bytes | msgspec.Raw]
    ) -> tuple[str, set[str]]:
        """Return the agent's name and the clusters of its watermark.  Raises ParseError or PermissionDenied."""
        if body.watermark is None and not (body.unwatched or body.filled or body.scans):
            return "", set()
        if body.watermark is not None:
            _check_instant("watermark", body.watermark)
        if body.watched_since is not None:
            _check_instant("watched_since", body.watched_since)
        agent = body.agent or {}
        name = _checked_name("agent.name", agent.get("name") or agent.get("id") or str(request.user))
        bound = actor_of(request).source
        if not agent.get("cluster"):
            # an agent that names no cluster reports for those of its records
            clusters = _clusters(raws)
            return name, clusters & {bound} if bound else clusters
        cluster = _checked_name("agent.cluster", agent["cluster"])
        if bound and cluster != bound:
            raise PermissionDenied(f"agent.cluster {cluster!r}: this token may report for {bound!r} only")
        return name, {cluster}


def _agent_notes(agent: dict[str, Any] | None) -> dict[str, dict[str, str | AgentNote]]:
    """Return what an agent could not meter, by kind; values of another form are ignored."""
    fields = {"problem": "problems", "unknown": "unknown_resources"}
    found = {kind: (agent or {}).get(field) for kind, field in fields.items()}
    return {
        kind: {str(subject): _note(note) for subject, note in list(notes.items())[:MOST_NOTES]}
        for kind, notes in found.items()
        if isinstance(notes, dict)
    }


def _note(given: Any) -> str | AgentNote:
    try:
        note = msgspec.convert(given, AgentNote)
    except msgspec.ValidationError:
        return str(given)
    known = all(at.tzinfo and at >= EARLIEST for at in (note.since, note.until)) and note.since <= note.until
    return note if known else note.text


def _no_accelerators(agent: dict[str, Any] | None) -> list[str]:
    """Return resources that are no accelerators, by the agent's configuration; values of another form are ignored."""
    names = (agent or {}).get("no_accelerators")
    listed = names[:MOST_NOTES] if isinstance(names, list) else []
    return [name for name in listed if isinstance(name, str) and name_problem(name) is None]


def _check_instant(field: str, instant: datetime) -> None:
    """Raise ParseError for an instant without offset, too early, or in the future.

    A watermark only moves forward: one of the future would hide for ever that its agent has fallen silent.
    """
    if instant.tzinfo is None:
        raise ParseError(f"{field} {instant.isoformat()} has no offset")
    latest = timezone.now() + timedelta(seconds=settings.FUTURE_TOLERANCE_SECONDS)
    if not EARLIEST <= instant <= latest:
        raise ParseError(f"{field} {instant.isoformat()} is not between {EARLIEST.year} and now")


def _stretches(field: str, given: list[Stretch]) -> list[Interval]:
    for stretch in given:
        _check_instant(f"{field}.from", stretch.start)
        _check_instant(f"{field}.until", stretch.until)
        if stretch.until < stretch.start:
            raise ParseError(f"{field}.until {stretch.until.isoformat()} is before from {stretch.start.isoformat()}")
    return [Interval(stretch.start, stretch.until) for stretch in given]


def _checked_name(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise ParseError(f"{field} {str(value)[:40]} must be a text")
    problem = name_problem(value)
    if problem is not None:
        raise ParseError(f"{field} {value[:40]!r} {problem}")
    return value


class CapacityEndpoint(UsageEndpoint):
    """Capacity of nodes."""

    door = "usage/capacity"

    @extend_schema(
        operation_id="report_capacity",
        request={"application/json": record_schema(CapacityEnvelope, nodes=NodeCapacity)},
        responses={200: OpenApiResponse(INGEST_ANSWER, "durable")},
    )
    def post(self, request: Request) -> Response:
        _, raws = envelope(CapacityEnvelope, self.body(request), "nodes")
        return self.take(request, raws, NodeCapacity, services.capacity_ingest)


def _clusters(raws: Sequence[bytes | msgspec.Raw]) -> set[str]:
    found = set()
    for raw in raws:
        try:
            fields = msgspec.json.decode(raw)
        except UNREADABLE:
            continue  # the record itself was refused with its reason
        cluster = fields.get("cluster") if isinstance(fields, dict) else None
        if isinstance(cluster, str) and name_problem(cluster) is None:
            found.add(cluster)
    return found
