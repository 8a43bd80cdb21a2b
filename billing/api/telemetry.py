"""OTLP over HTTP: the calls of models among the spans and log records that OpenTelemetry exports. Shape only.

Addresses, bodies and answers are those of the protocol, so that an exporter needs an endpoint and a token.
Source: https://opentelemetry.io/docs/specs/otlp/#otlphttp.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from billing.api.bodies import JSON_BODY, bounded
from billing.api.events import GatewayEndpoint
from billing.api.schema import PROBLEM
from billing.usage.services import source_tag_rules
from metering.gateways import otlp
from metering.gateways.translation import translate

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
BODIES: Final = JSON_BODY | {PROTOBUF}
SOURCE: Final = "opentelemetry"
"""Source of calls whose token is bound to none."""
ANSWER: Final = {
    "type": "object",
    "properties": {
        "partialSuccess": {
            "type": "object",
            "properties": {
                "rejectedSpans": {"type": "string"}, "rejectedLogRecords": {"type": "string"},
                "errorMessage": {"type": "string"},
            },
        }
    },
}  # fmt: skip
EXPORT: Final = {"type": "object", "description": "an export request of OTLP, as its specification describes it"}


class ExportEndpoint(GatewayEndpoint):
    """Base of the OTLP endpoints: takes the calls of models, ignores all else, answers in the format of the request."""

    calls: ClassVar[Callable[..., list[bytes]]]
    answer: ClassVar[Callable[..., Any]]
    rejected: ClassVar[str]

    def post(self, request: Request) -> HttpResponse:
        body = self.body(request, BODIES)
        form = (request.content_type or "").partition(";")[0].strip().lower()
        consumers, source = settings.OTLP_CONSUMERS, self.source(request, SOURCE)
        tags = source_tag_rules().get(source, ())
        try:
            calls = type(self).calls(body, json=form == JSON, source=source, consumers=consumers, tags=tags)
        except otlp.UnreadableExportError as error:
            raise ParseError(str(error)) from error
        translated = translate(bounded(calls), lambda fields: fields, partial(otlp.usage, consumers=consumers))
        outcome = self.hand_over(request, translated, timezone.now())
        answer = type(self).answer()
        if outcome.refusals:
            setattr(answer.partial_success, self.rejected, len(outcome.refusals))
            answer.partial_success.error_message = str(outcome.refusals[0].error)
        content = MessageToJson(answer).encode() if form == JSON else answer.SerializeToString()
        return HttpResponse(content, content_type=JSON if form == JSON else PROTOBUF)


def described(operation: str, text: str) -> Callable[[Any], Any]:
    """Return the OpenAPI description of an export endpoint, as a decorator."""
    return extend_schema(
        operation_id=operation,
        description=text,
        request={JSON: EXPORT, PROTOBUF: {"type": "string", "format": "binary"}},
        responses={
            200: OpenApiResponse(ANSWER, "durable; counts what is refused or in quarantine, with the first error"),
            400: OpenApiResponse(PROBLEM, "the body is no export request"),
        },
    )


@extend_schema_view(post=described(
    "export_traces",
    "OTLP/HTTP. Spans that are calls of models are recorded under trace and span id, all others are passed over. "
    "The consumer is the first attribute of OTLP_CONSUMERS that span or resource has.",
))  # fmt: skip
class TracesEndpoint(ExportEndpoint):
    """Spans."""

    door = "v1/traces"
    calls = staticmethod(otlp.calls_of_traces)
    answer = ExportTraceServiceResponse
    rejected = "rejected_spans"


@extend_schema_view(post=described(
    "export_logs",
    "OTLP/HTTP. Log records that state the usage of a call of a model are recorded under their trace and span id, "
    "all others are passed over; a call that is exported as span and as log record is recorded once.",
))  # fmt: skip
class LogsEndpoint(ExportEndpoint):
    """Log records."""

    door = "v1/logs"
    calls = staticmethod(otlp.calls_of_logs)
    answer = ExportLogsServiceResponse
    rejected = "rejected_log_records"
