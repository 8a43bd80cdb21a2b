"""Logs of gateways as their plugins post them: Kong's http-log and APISIX's http-logger. Shape only.

A line is read by the format of the log reader (`metering.logs.formats`), so that it is the same record whichever way it
comes. Only the fields that the format names leave this module; a line that cannot be read is kept as its length and hash.
"""

from hashlib import blake2b
from typing import ClassVar, Final

import msgspec
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.bodies import RECORD_BODIES, bounded
from billing.api.events import GatewayEndpoint, Raws, payloads
from billing.api.schema import INGEST_ANSWER
from metering.gateways.translation import Translated, unreadable
from metering.logs.formats import Translate, translator
from metering.logs.mapping import Incomplete
from metering.messages import Message
from metering.raw_json import tolerant
from metering.record_checks import RecordError
from metering.records import Rejected, TokenUsage, decode_batch, record_error

BODIES: Final = RECORD_BODIES | {"text/plain"}
"""APISIX sends lines (`concat_method: new_line`) as text/plain."""
UNREADABLE_LINE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, RecordError)


class AccessLogEndpoint(GatewayEndpoint):
    """Base of the endpoints that take the log of one gateway. `form`: its format, and the source of tokens bound to none."""

    form: ClassVar[str]

    def post(self, request: Request) -> Response:
        """Take the model calls among the lines; lines that called no model are passed over."""
        lines = payloads(self.body(request, BODIES))
        translated = _translated(lines, translator(self.form, source=self.source(request, self.form)))
        return Response(self.hand_over(request, translated, timezone.now()).answer())


def _translated(lines: Raws, translate: Translate) -> Translated:
    """Translate line by line; `index` of a record is its line, of which one may have several calls."""
    found: list[tuple[int, bytes]] = []
    rejected: list[Rejected] = []
    for index, line in enumerate(lines):
        raw = bytes(line)
        try:
            fields = tolerant(raw)
            if not isinstance(fields, dict):
                raise RecordError(Message("a record must be a JSON object"))
            for item in translate(fields, _name(fields)):
                found.append((index, msgspec.json.encode(item.record if isinstance(item, Incomplete) else item)))
        except UNREADABLE_LINE as error:
            rejected.append(Rejected(index, unreadable(raw), record_error(error)))
    raws = bounded([raw for _, raw in found])
    batch = decode_batch(TokenUsage, raws)
    records = [(found[place][0], record, raws[place]) for place, record in batch.records]
    refused = [Rejected(found[item.index][0], item.raw, item.error) for item in batch.rejected]
    return Translated(records, rejected + refused)


def _name(fields: dict[str, object]) -> str:
    """Return the id of a line without one: a digest of all that it says, the same at each sending."""
    return f"line-{blake2b(msgspec.json.encode(fields, order='sorted'), digest_size=16).hexdigest()}"


def _described(operation: str, plugin: str) -> object:
    return extend_schema(
        operation_id=operation,
        description=(
            f"What {plugin} posts: one log entry, an array of them, or one a line. Calls of models are recorded under the id"
            " and start time of their request, all other entries are passed over. Prompts, answers and headers are discarded"
            " on arrival."
        ),
        request={"application/json": OpenApiTypes.OBJECT, "text/plain": {"type": "string"}},
        responses={200: OpenApiResponse(INGEST_ANSWER, "durable")},
    )


@extend_schema_view(post=_described("report_kong", "Kong's plugin http-log"))
class KongEndpoint(AccessLogEndpoint):
    """Entries of Kong's http-log; each AI plugin that called a model is a record."""

    door = "usage/kong"
    form = "kong"


@extend_schema_view(post=_described("report_apisix", "APISIX's plugin http-logger"))
class ApisixEndpoint(AccessLogEndpoint):
    """Entries of APISIX's http-logger with the summary of ai-proxy."""

    door = "usage/apisix"
    form = "apisix"
