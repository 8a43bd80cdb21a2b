"""Questions by machines: each tool answers with the bytes of the endpoint that it stands for, by the rights of the token."""

import json
import re
from typing import Any

import pytest
from django.test import Client

from tests.factories.api import problem, program
from tests.factories.roles import scenario

__all__ = ["scenario"]
pytestmark = pytest.mark.django_db
SCOPES = ("invoices:read", "budgets:read", "usage:read", "prices:read")


def rpc(client: Client, method: str, params: dict[str, Any] | None = None, **headers: str) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}
    answer = client.post("/mcp", body, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    content: dict[str, Any] = answer.json()
    assert (content["jsonrpc"], content["id"]) == ("2.0", 7)
    return content


def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = rpc(client, "tools/call", {"name": tool, "arguments": arguments})["result"]
    return result


@pytest.mark.parametrize(("asked", "offered"), [("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")])
def test_a_client_that_begins_is_offered_a_version_of_the_protocol(asked: str, offered: str) -> None:
    result = rpc(program(*SCOPES), "initialize", {"protocolVersion": asked, "capabilities": {}})["result"]
    assert (result["protocolVersion"], result["capabilities"]) == (offered, {"tools": {}})
    assert result["serverInfo"]["name"] == "suanpan"


def test_every_tool_is_read_only_and_describes_its_arguments() -> None:
    tools = {tool["name"]: tool for tool in rpc(program(*SCOPES), "tools/list")["result"]["tools"]}
    assert {tool["annotations"]["readOnlyHint"] for tool in tools.values()} == {True}
    assert tools["usage"]["inputSchema"]["required"] == ["from", "until"]
    assert tools["spend"]["inputSchema"]["properties"]["by"]["type"] == "array"
    assert tools["spend"]["inputSchema"]["additionalProperties"] is False


QUESTIONS = [
    ("spend", {"month": "2026-10", "by": ["team"]}, "explore?month=2026-10&by=team"),
    ("spend", {"month": "2026-10", "by": ["team", "kind"], "step": "day"}, "explore?month=2026-10&by=team&by=kind&step=day"),
    ("usage", {"from": "2026-10-01", "until": "2026-10-08"}, "usage/summary?from=2026-10-01&until=2026-10-08"),
    ("budgets", {}, "budgets"),
    ("prices", {}, "prices"),
    ("teams", {"page_size": 2}, "teams?page_size=2"),
    ("invoices", {"month": "2026-10"}, "invoices?month=2026-10"),
    ("credit_notes", {}, "credit-notes"),
    ("charges", {"month": "2026-10", "team": "nlp"}, "charges?month=2026-10&team=nlp"),
    ("period", {"month": "2026-10"}, "periods/2026-10"),
    ("can_we_close", {"month": "2026-10"}, "periods/2026-10/report"),
    ("findings", {}, "inbox"),
]


def test_the_answers_are_the_bytes_of_the_api(scenario: dict[str, Any]) -> None:
    client, number = program(*SCOPES), scenario["invoice"].number
    for tool, arguments, path in [*QUESTIONS, ("invoice", {"number": number}, f"invoices/{number}")]:
        result, straight = call(client, tool, **arguments), client.get(f"/api/v1/{path}")
        assert straight.status_code == 200, straight.content
        answer, source = (item["text"] for item in result["content"])
        assert undated(answer) == undated(straight.content.decode())
        assert source == f"Source: http://testserver/api/v1/{path}; amounts in CNY"
        assert result["isError"] is False


def undated(body: str) -> str:
    """The body without the instants of when it was asked."""
    return re.sub(r'"(as_of|now|at|made_at)":"[^"]*"', "", body)


def test_a_token_of_a_team_gets_nothing_of_another(scenario: dict[str, Any]) -> None:
    number = scenario["invoice"].number
    own, other = program(*SCOPES, team="nlp"), program(*SCOPES, team="cv")
    assert json.loads(text(call(own, "invoice", number=number)))["number"] == number
    refused = call(other, "invoice", number=number)
    assert (refused["isError"], json.loads(text(refused))["status"]) == (True, 404)
    charges = [json.loads(text(call(client, "charges", month="2026-10", team="nlp")))["count"] for client in (own, other)]
    assert charges == [1, 0]
    assert [call(client, "can_we_close", month="2026-10")["isError"] for client in (own, other)] == [True, True]


def text(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


def test_a_scope_that_the_token_lacks_is_an_error_of_the_tool() -> None:
    refused = call(program("usage:write"), "invoices")
    assert refused["isError"] is True
    assert json.loads(text(refused))["detail"] == "this needs the scope invoices:read"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"name": "drop"}, "'drop' is no tool: spend, usage, budgets"),
        ({"name": "usage", "arguments": {"from": "2026-10-01"}}, "usage needs 'until'"),
        ({"name": "teams", "arguments": {"color": "red"}}, "'color' is no argument of teams: page, page_size"),
        ({"name": "invoice", "arguments": {"number": "A.pdf"}}, ""),
        ({"name": "teams", "arguments": [1]}, "arguments must be an object"),
    ],
)
def test_a_call_that_no_endpoint_answers_is_refused_by_name(params: dict[str, Any], said: str) -> None:
    content = rpc(program(*SCOPES), "tools/call", params)
    if said:
        assert (content["error"]["code"], content["error"]["message"].startswith(said)) == (-32602, True)
    else:
        assert content["result"]["isError"] is True


def test_messages_of_the_protocol() -> None:
    client = program(*SCOPES)
    assert rpc(client, "ping")["result"] == {}
    assert rpc(client, "resources/list")["error"]["code"] == -32601
    began = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    notified = client.post("/mcp", began, content_type="application/json")
    assert (notified.status_code, notified.content) == (202, b"")
    for body, code in ((b"{", -32700), (b"[]", -32600), (b'{"id": 1}', -32600)):
        assert client.post("/mcp", body, content_type="application/json").json()["error"]["code"] == code
    assert client.get("/mcp").status_code == 405


def test_who_has_no_token_and_pages_of_other_sites_get_nothing() -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    refused = Client().post("/mcp", body, content_type="application/json")
    assert (problem(refused, 401)["status"], refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    elsewhere = {"Origin": "https://evil.example"}
    problem(program(*SCOPES).post("/mcp", body, content_type="application/json", headers=elsewhere), 403)
