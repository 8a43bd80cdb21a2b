"""Model Context Protocol over streamable HTTP: assistants ask what anything cost. Read-only.

A tool is a reading endpoint of the API: the answer of a call is the body of that endpoint, asked with the same token, so
that no figure, right or error exists twice. There are no sessions and no streams: each answer is one JSON object, as the
protocol allows a server that never speaks by itself.
Source: https://modelcontextprotocol.io/specification/2025-06-18/basic/transports.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import resolve
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.api.authentication import ApiTokenAuthentication
from billing.api.explore import PARAMETERS as EXPLORE
from billing.api.parameters import MONTH, TEAM
from billing.api.summary import UsageSummary
from billing.api.usage import AnyBody
from billing.tenancy.selectors import NoSetupError, billing_setup
from metering import __version__

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Versions of the protocol, the newest first; a client that asks for another one is offered the newest."""
MOST_BODY: Final = 65_536
INSTRUCTIONS: Final = (
    "Figures of Suanpan, internal billing for AI compute: what teams use, what it costs, budgets, prices, and whether a "
    "month can be closed. Amounts and quantities are exact decimal strings: quote them digit by digit, do not add rounded "
    "ones. Name the currency and the address in `Source`; where an answer has `data_through` or `missing`, say how far the "
    "data goes."
)
OF_A_BODY: Final = ("CONTENT_LENGTH", "CONTENT_TYPE", "HTTP_ACCEPT", "HTTP_CONTENT_ENCODING")
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
"""Codes of JSON-RPC 2.0."""


class Tool(msgspec.Struct, frozen=True):
    """A question and the endpoint that answers it. `path`: below /api/v1/, with {name} for what is part of the address."""

    description: str
    path: str
    parameters: Sequence[OpenApiParameter] = ()
    required: tuple[str, ...] = ()


PAGES: Final = (
    OpenApiParameter("page", int, description="page of the list, from 1"),
    OpenApiParameter("page_size", int, description="rows of a page, up to 1000"),
)
NUMBER: Final = OpenApiParameter("number", str, description="number of the document, such as AI-INFRA-2026-000001")
TOOLS: Final[Mapping[str, Tool]] = {
    "spend": Tool(
        "Cost, GPU hours, tokens, energy or CO2 of any days, by dimension, with the days before to compare with: shows why "
        "spend changed.",
        "explore", EXPLORE,
    ),
    "usage": Tool(
        "Tokens and device seconds by day, team and model.", "usage/summary", UsageSummary.parameters, ("from", "until")
    ),
    "budgets": Tool(
        "Budgets with amount, spent, what is left, and the forecast for the end of the period with its range.",
        "budgets", (TEAM, *PAGES),
    ),
    "prices": Tool("Prices in force: of a GPU hour by accelerator, of a million tokens by model and class.", "prices"),
    "teams": Tool("Teams and groups with cost centre and parent.", "teams", PAGES),
    "invoices": Tool("Issued invoices with their lines.", "invoices", (MONTH, TEAM, *PAGES)),
    "invoice": Tool("One issued invoice with its lines.", "invoices/{number}", (NUMBER,), ("number",)),
    "credit_notes": Tool("Issued credit notes and rebills.", "credit-notes", (MONTH, TEAM, *PAGES)),
    "charges": Tool("Charges of closed months before rounding, by team and SKU.", "charges", (MONTH, TEAM, *PAGES)),
    "period": Tool("State of a billing month: open or closed, its bounds.", "periods/{month}", (MONTH,), ("month",)),
    "can_we_close": Tool(
        "Report before a close: every reconciliation and every exception of the month, with amounts; names what blocks.",
        "periods/{month}/report", (MONTH,), ("month",),
    ),
    "findings": Tool("What waits for the owner of the token: anomalies, waste, exceptions, disputes, approvals.", "inbox"),
}  # fmt: skip


class ToolError(ValueError):
    """A call that no endpoint was asked for."""


class McpEndpoint(APIView):
    """The questions that assistants ask; each is answered by the endpoint of the API that it stands for."""

    authentication_classes = [ApiTokenAuthentication]
    permission_classes = [IsAuthenticated]
    parser_classes = [AnyBody]

    @extend_schema(
        operation_id="mcp",
        description="Model Context Protocol, one JSON-RPC request, one answer. Read-only by the rights of the token.",
        request={"application/json": OpenApiTypes.OBJECT},
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), 202: OpenApiResponse(None, "a notification was taken")},
    )
    def post(self, request: Request) -> HttpResponse:
        _check_origin(request)
        try:
            message = msgspec.json.decode(request._request.read(MOST_BODY + 1)[:MOST_BODY])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return _error(None, PARSE_ERROR, f"the body must be one JSON object of at most {MOST_BODY} bytes")
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return _error(None, INVALID_REQUEST, "the body must be one JSON-RPC request")
        if "id" not in message:
            return HttpResponse(status=HTTPStatus.ACCEPTED)
        identity, params = message["id"], message.get("params") or {}
        if not isinstance(params, dict):
            return _error(identity, INVALID_PARAMS, "params must be an object")
        match message["method"]:
            case "initialize":
                wanted = params.get("protocolVersion")
                return _result(identity, {
                    "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
                    "capabilities": {"tools": {}}, "instructions": INSTRUCTIONS,
                    "serverInfo": {"name": "suanpan", "title": "Suanpan", "version": __version__},
                })  # fmt: skip
            case "ping":
                return _result(identity, {})
            case "tools/list":
                return _result(identity, {"tools": [_described(name, tool) for name, tool in TOOLS.items()]})
            case "tools/call":
                try:
                    return _result(identity, _called(request._request, params.get("name"), params.get("arguments") or {}))
                except ToolError as error:
                    return _error(identity, INVALID_PARAMS, str(error))
        return _error(identity, METHOD_NOT_FOUND, f"{message['method'][:80]!r} is no method of this server")


def _check_origin(request: Request) -> None:
    """Raise PermissionDenied for a page of another site, as the protocol asks of servers."""
    origin = request.META.get("HTTP_ORIGIN")
    if origin and urlsplit(origin).netloc != request.get_host():
        raise PermissionDenied(f"Origin {origin[:80]!r} is not {request.get_host()!r}")


def _described(name: str, tool: Tool) -> dict[str, Any]:
    """A tool with the JSON schema of its arguments."""
    properties = {}
    for parameter in tool.parameters:
        one: dict[str, Any] = {"type": "integer" if parameter.type is int else "string"}
        if parameter.enum:
            one["enum"] = list(parameter.enum)
        shape = {"type": "array", "items": one} if parameter.many else one
        properties[parameter.name] = shape | ({"description": parameter.description} if parameter.description else {})
    return {
        "name": name, "description": tool.description,
        "inputSchema": {
            "type": "object", "properties": properties, "required": list(tool.required), "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }  # fmt: skip


def _called(request: HttpRequest, name: object, arguments: object) -> dict[str, Any]:
    """The result of a tool: the body of its endpoint as it is, and where it came from.  Raises ToolError."""
    tool = TOOLS.get(name) if isinstance(name, str) else None
    if tool is None:
        raise ToolError(f"{str(name)[:80]!r} is no tool: {', '.join(TOOLS)}")
    if not isinstance(arguments, dict):
        raise ToolError("arguments must be an object")
    known = {parameter.name for parameter in tool.parameters}
    if unknown := sorted(map(str, arguments.keys() - known)):
        raise ToolError(f"{unknown[0][:80]!r} is no argument of {name}: {', '.join(sorted(known)) or 'it has none'}")
    if missing := [needed for needed in tool.required if not arguments.get(needed)]:
        raise ToolError(f"{name} needs {missing[0]!r}")
    address = "/api/v1/" + tool.path
    query = dict[str, Any]()
    for key, value in arguments.items():
        if f"{{{key}}}" in address:
            address = address.replace(f"{{{key}}}", quote(str(value), safe=""))
        elif value is not None:
            query[key] = value
    asked = urlencode(query, doseq=True)
    answer = _read(request, address, asked)
    if "json" not in answer.headers["Content-Type"]:
        raise ToolError(f"{address} is a file: ask for it at its address")
    source = request.build_absolute_uri(address + (f"?{asked}" if asked else ""))
    return {
        "content": [
            {"type": "text", "text": answer.content.decode()}, {"type": "text", "text": f"Source: {source}{_currency()}"},
        ],
        "isError": answer.status_code != HTTPStatus.OK,
    }


def _currency() -> str:
    try:
        return f"; amounts in {billing_setup().currency}"
    except NoSetupError:
        return ""


def _read(request: HttpRequest, path: str, query: str) -> HttpResponse:
    """The answer of an endpoint of the API to a GET with the token of this request."""
    asked = HttpRequest()
    asked.method, asked.path, asked.path_info, asked.GET = "GET", path, path, QueryDict(query)
    asked.META = {
        **{key: value for key, value in request.META.items() if key not in OF_A_BODY},
        "REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query,
    }  # fmt: skip
    view = resolve(path)
    answer: HttpResponse = view.func(asked, *view.args, **view.kwargs)
    return answer.render() if isinstance(answer, Response) else answer


def _result(identity: Any, result: dict[str, Any]) -> HttpResponse:
    return _reply({"jsonrpc": "2.0", "id": identity, "result": result})


def _error(identity: Any, code: int, text: str) -> HttpResponse:
    return _reply({"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": text}})


def _reply(content: dict[str, Any]) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(content), content_type="application/json")
