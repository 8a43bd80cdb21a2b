"""The HTTP endpoints over a real socket: who may enter, what a body may be, and what every answer looks like."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from billing.closing.services.closing import period_close
from billing.invoices.models import BillingPeriod
from billing.invoices.services.invoices import invoices_issue
from billing.tenancy.models import ApiToken, Team
from billing.tenancy.tokens import api_token_create, api_token_revoke
from billing.usage.gaps import metering_gaps
from billing.usage.models import AgentWatermark, GpuAllocation, QuarantinedRecord
from tests.factories import allocation_record, apply, ingest_allocations, token_record
from tests.factories.api import bearer, gateway, problem
from tests.factories.commands import Manage

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]

Call = Callable[..., Any]
MIB = 1024 * 1024


def secret(*scopes: str, **bounds: Any) -> str:
    return api_token_create(name="gateway", scopes=list(scopes or ("usage:write",)), actor="tests", **bounds)[1]


@pytest.fixture
def post(db: None) -> Call:
    return gateway()


@pytest.fixture
def get(client: Any) -> Call:
    def read(path: str, presented: str) -> Any:
        return client.get(f"/api/v1/{path}", headers=bearer(presented))

    return read


ENDPOINTS = ("usage/tokens", "usage/gpu-allocations", "usage/capacity", "usage/efficiency")
# Who may enter


@pytest.mark.parametrize("value", ["Bearer", "Bearer ", "Bearer wrong", "Basic eDp5", "bearer \xff", "Bearer a b"])
def test_a_token_that_nobody_made_is_refused(client: Any, value: str) -> None:
    answer = client.post("/api/v1/usage/tokens", b"[]", content_type="application/json", headers={"Authorization": value})
    problem(answer, 401)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_an_expired_token_and_a_revoked_one_are_refused(client: Any) -> None:
    now = timezone.now()
    expired = secret(expires_at=now - timedelta(seconds=1))
    valid = secret(expires_at=now + timedelta(hours=1))
    token, revoked = api_token_create(name="old", scopes=["usage:write"], actor="tests")
    api_token_revoke(token=token, actor="tests", now=now)
    send: Call = lambda presented: client.post(  # noqa: E731
        "/api/v1/usage/tokens", b"[]", content_type="application/json", headers=bearer(presented)
    )
    problem(send(expired), 401)
    problem(send(revoked), 401)
    assert send(valid).status_code == 200


def test_a_token_is_kept_as_a_hash_only() -> None:
    presented = secret()
    token = ApiToken.objects.get()
    stored = json.dumps({name: str(value) for name, value in vars(token).items()})
    assert presented not in stored
    assert presented.startswith(token.prefix)
    assert len(token.prefix) == 8


# Bodies


def test_a_batch_is_answered_record_by_record(post: Call) -> None:
    body = [token_record(1), token_record(1), token_record(2, output_tokens=-1), {"nothing": 1}, 7, token_record(3)]
    answer = post("usage/tokens", body).json()
    assert {name: answer[name] for name in ("accepted", "duplicates", "conflicts")} == {
        "accepted": 2, "duplicates": 1, "conflicts": 0,
    }  # fmt: skip
    assert [(item["index"], item["key"]) for item in answer["rejected"]] == [(2, "litellm-hq/req-2"), (3, ""), (4, "")]
    assert all(item["error"] for item in answer["rejected"])
    again = post("usage/tokens", [token_record(1, output_tokens=99)]).json()
    assert again == {"accepted": 0, "duplicates": 0, "conflicts": 1, "rejected": []}
    assert QuarantinedRecord.objects.count() == 4


def test_newline_delimited_json_is_taken_and_a_broken_line_costs_itself_only(post: Call) -> None:
    lines = [json.dumps(token_record(1)), "{broken", "", json.dumps(token_record(2)), ""]
    answer = post("usage/tokens", "\r\n".join(lines).encode(), kind="application/x-ndjson").json()
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (2, [1])


@pytest.mark.parametrize("body", [b"", b"  \n", b"[", b"[{},", b'[{"id":', b"[]x", b"[" * 5000])
def test_what_is_no_json_array_is_one_clear_400(post: Call, body: bytes) -> None:
    assert "body" in problem(post("usage/tokens", body), 400)["detail"]


WATERMARK = "2026-10-11T00:00:00Z"


@pytest.mark.parametrize(("changed", "said"), [
    ({"agent": {"name": {"a": 1}}}, "agent.name {'a': 1} must be a text"),
    ({"agent": {"name": "a", "cluster": [1]}}, "agent.cluster [1] must be a text"),
    ({"agent": {"name": "a\u202eb"}}, "agent.name 'a\\u202eb' contains the character"),
    ({"unwatched": [{"from": "2099-01-01T00:00:00Z", "until": "2099-01-02T00:00:00Z"}]},
     "unwatched.from 2099-01-01T00:00:00+00:00 is not between 2000 and now"),
    ({"filled": [{"from": WATERMARK, "until": "2026-10-10T00:00:00Z"}]},
     "filled.until 2026-10-10T00:00:00+00:00 is before from 2026-10-11T00:00:00+00:00"),
    ({"watermark": "2099-01-01T00:00:00Z"}, "watermark 2099-01-01T00:00:00+00:00 is not between 2000 and now"),
    ({"watermark": "2016-12-31T23:59:60Z"},
     'the body is not as documented: watermark "2016-12-31T23:59:60Z": invalid RFC3339 encoded datetime'),
    ({"surprise": 1}, "the body is not as documented: Object contains unknown field `surprise`"),
])  # fmt: skip
def test_what_is_wrong_around_the_records_is_named_and_nothing_is_stored(post: Call, changed: Any, said: str) -> None:
    body = {"allocations": [allocation_record()], "watermark": WATERMARK, "agent": {"name": "a", "cluster": "hq-1"}}
    assert problem(post("usage/gpu-allocations", {**body, **changed}), 400)["detail"].startswith(said)
    assert not GpuAllocation.objects.exists()
    assert not AgentWatermark.objects.exists()


def test_what_was_measured_has_an_end_that_has_come(post: Call) -> None:
    sample = {
        "cluster": "hq-1", "pod_uid": "u-1", "start": "2026-10-10T00:00:00Z", "end": "2099-01-01T00:00:00Z",
        "gpu_seconds": "3600", "mfu": "0.4", "hfu": "0.5", "dtype": "bf16", "coverage": "1",
    }  # fmt: skip
    (refused,) = post("usage/efficiency", [sample]).json()["rejected"]
    assert refused["error"].startswith("end 2099-01-01T00:00:00+00:00 lies in the future; the clock of the ledger says ")
    assert QuarantinedRecord.objects.get().reason == "future"


def test_a_leap_second_is_refused_by_the_name_of_its_field(post: Call) -> None:
    """No clock of ours counts it, and a second more or less is money: the sender says which one it means."""
    leap, said = "2016-12-31T23:59:60Z", '"2016-12-31T23:59:60Z": invalid RFC3339 encoded datetime'
    tokens = post("usage/tokens", [token_record(time=leap)]).json()["rejected"]
    holds = post("usage/gpu-allocations", {"allocations": [allocation_record(ended_at=leap)]}).json()["rejected"]
    assert [one["error"] for one in (*tokens, *holds)] == [f"time {said}", f"ended_at {said}"]


def test_an_array_that_is_not_utf_8_keeps_its_good_records(post: Call) -> None:
    body = b"[" + json.dumps(token_record(1)).encode() + b',{"id":"\xff"}]'
    answer = post("usage/tokens", body).json()
    assert (answer["accepted"], len(answer["rejected"])) == (1, 1)


def test_every_member_of_a_gzip_body_counts(post: Call) -> None:
    """A client that appends compressed chunks sends several members: RFC 1952 reads them as one."""
    members = [gzip.compress(json.dumps(token_record(number)).encode() + b"\n") for number in range(3)]
    answer = post("usage/tokens", b"".join(members), **{"Content-Encoding": "gzip"})
    assert answer.json()["accepted"] == 3


def test_gzip_that_is_broken_cut_or_followed_by_something_else_is_a_400(post: Call) -> None:
    whole = gzip.compress(json.dumps([token_record(1)]).encode())
    for body in (b"not gzip", whole[:-9], whole[:20], b"", whole + b"rest", whole + whole[:15]):
        problem(post("usage/tokens", body, **{"Content-Encoding": "gzip"}), 400)
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 0xFF
    problem(post("usage/tokens", bytes(damaged), **{"Content-Encoding": "gzip"}), 400)


def test_a_body_of_more_than_16_mib_is_refused_whatever_it_holds(post: Call) -> None:
    padding = b" " * (16 * MIB)
    problem(post("usage/tokens", padding + b"[]"), 413)
    exactly = b"[]" + b" " * (16 * MIB - 2)
    assert post("usage/tokens", exactly).status_code == 200


def test_a_small_body_that_unpacks_to_more_than_16_mib_is_refused(post: Call) -> None:
    bomb = gzip.compress(b" " * (17 * MIB))
    problem(post("usage/tokens", bomb, **{"Content-Encoding": "gzip"}), 413)
    two = gzip.compress(b" " * (9 * MIB))
    problem(post("usage/tokens", two + two, **{"Content-Encoding": "gzip"}), 413)


def test_a_batch_has_at_most_10_000_records(post: Call) -> None:
    record = json.dumps(token_record(1)).encode()
    problem(post("usage/tokens", b"[" + b",".join([record] * 10_001) + b"]"), 413)
    problem(post("usage/tokens", b"\n".join([record] * 10_001), kind="application/x-ndjson"), 413)
    answer = post("usage/tokens", b"[" + b",".join([record] * 10_000) + b"]").json()
    assert (answer["accepted"], answer["duplicates"]) == (1, 9_999)
    too_many = {"allocations": [allocation_record()] * 10_001}
    problem(post("usage/gpu-allocations", too_many), 413)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"7", b"null", b"{}", b'{"allocations": 7}', b'{"allocations": [], "more": 1}', b'{"allocations": [],',
     b'{"allocations": [], "watermark": "noon"}', b'{"allocations": [], "watermark": "2026-10-01T00:00:00"}',
     b'{"allocations": [], "agent": "x"}', b'\xff'],
)  # fmt: skip
def test_an_envelope_that_is_not_as_documented_is_a_400(post: Call, body: bytes) -> None:
    assert problem(post("usage/gpu-allocations", body), 400)["detail"]


def envelope(*records: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"agent": {"name": "agent-1", "cluster": "hq-1"}, "allocations": list(records), **fields}


def test_allocations_and_the_watermark_are_taken_together(post: Call) -> None:
    body = envelope(allocation_record(1), allocation_record(2, quantity=0), watermark="2026-10-10T03:00:00Z")
    answer = post("usage/gpu-allocations", body).json()
    assert (answer["accepted"], [(item["index"], item["key"]) for item in answer["rejected"]]) == (1, [(1, "alloc-2")])
    assert list(AgentWatermark.objects.values_list("agent", "cluster", "watermark")) == [
        ("agent-1", "hq-1", datetime(2026, 10, 10, 3, tzinfo=UTC))
    ]


@pytest.mark.parametrize("watermark", ["0001-01-01T00:00:00+14:00", "1999-12-31T00:00:00Z", "9999-12-31T23:59:59-14:00"])
def test_a_watermark_outside_of_time_is_refused_and_breaks_no_report(post: Call, watermark: str) -> None:
    problem(post("usage/gpu-allocations", envelope(watermark=watermark)), 400)
    assert metering_gaps(datetime(2026, 11, 1, tzinfo=UTC)) == []


def test_a_watermark_of_the_future_is_refused(post: Call) -> None:
    """It would hide for ever that the agent has fallen silent, since watermarks only move forward."""
    ahead = (timezone.now() + timedelta(days=30)).isoformat()
    problem(post("usage/gpu-allocations", envelope(watermark=ahead)), 400)
    assert not AgentWatermark.objects.exists()


def test_a_token_bound_to_a_cluster_moves_no_other_clusters_watermark(client: Any) -> None:
    presented = secret(source="hq-2")
    body = envelope(watermark="2026-10-10T03:00:00Z")
    answer = client.post(
        "/api/v1/usage/gpu-allocations", json.dumps(body), content_type="application/json", headers=bearer(presented)
    )
    assert answer.status_code in (200, 400, 403)
    assert not AgentWatermark.objects.filter(cluster="hq-1").exists()


@pytest.mark.parametrize(
    "agent",
    [{"name": "a\0b", "cluster": "hq-1"}, {"name": "a", "cluster": "\0"}, {"name": "模" * 512, "cluster": "群" * 512}],
    ids=["nul in the name", "nul in the cluster", "long"],
)
def test_an_agent_of_any_name_never_costs_its_records(post: Call, agent: dict[str, str]) -> None:
    body = envelope(allocation_record(), agent=agent, watermark="2026-10-10T03:00:00Z")
    answer = post("usage/gpu-allocations", body)
    assert answer.status_code in (200, 400)
    assert GpuAllocation.objects.count() == (1 if answer.status_code == 200 else 0)


def test_capacity_and_efficiency_have_their_endpoints(post: Call) -> None:
    node = {"cluster": "hq-1", "node": "n", "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu", "quantity": 8,
            "from": "2026-10-01T00:00:00Z", "until": "2026-10-02T00:00:00Z"}  # fmt: skip
    sample = {"cluster": "hq-1", "pod_uid": "u", "start": "2026-10-01T00:00:00Z", "end": "2026-10-01T01:00:00Z",
              "gpu_seconds": "28800", "mfu": None, "hfu": None, "dtype": "bf16", "coverage": "1"}  # fmt: skip
    assert post("usage/capacity", {"nodes": [node, {}]}).json()["accepted"] == 1
    assert post("usage/efficiency", [sample, sample]).json()["duplicates"] == 1


def test_a_record_from_the_future_is_quarantined_not_taken(post: Call) -> None:
    ahead = (timezone.now() + timedelta(days=30)).isoformat()
    answer = post("usage/tokens", [token_record(1, time=ahead), token_record(2, time="2026-01-01T00:00:00Z")]).json()
    assert (len(answer["rejected"]), QuarantinedRecord.objects.filter(reason="future").count()) == (1, 1)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("get", "usage/tokens", 405), ("put", "usage/tokens", 405), ("post", "invoices", 405), ("get", "nowhere", 404),
     ("get", "", 404), ("get", "invoices/../teams", 404), ("post", "nowhere", 404), ("delete", "nowhere", 404)],
)  # fmt: skip
def test_a_wrong_method_or_endpoint_is_a_problem_too(client: Any, method: str, path: str, status: int) -> None:
    every = secret("usage:write", "usage:read", "prices:read", "invoices:read")
    problem(getattr(client, method)(f"/api/v1/{path}", headers=bearer(every)), status)


def test_a_browser_that_writes_to_no_endpoint_gets_a_problem_too() -> None:
    answer = Client(enforce_csrf_checks=True).delete("/api/v1/nowhere")
    assert problem(answer, 404)["detail"] == "no endpoint at /api/v1/nowhere"


@pytest.mark.parametrize(
    ("method", "status", "title"), [("put", 405, "Method Not Allowed"), ("post", 415, "Unsupported Media Type")]
)
def test_titles_of_problems_have_no_places_left_to_fill_in(client: Any, method: str, status: int, title: str) -> None:
    send = getattr(client, method)
    answer = send("/api/v1/usage/tokens", b"[]", content_type="text/plain", headers=bearer(secret()))
    assert problem(answer, status)["title"] == title


# Reading


@pytest.fixture
def issued(tmp_path: Path) -> dict[str, str]:
    """Two teams with an issued invoice each: number by team."""
    apply(tmp_path)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv", quantity=1))
    now = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
    period_close(month="2026-10", actor="ops", now=now)
    invoices_issue(month="2026-10", actor="ops", now=now)
    return {"cv": "AI-INFRA-2026-000001", "nlp": "AI-INFRA-2026-000002"}


def test_invoices_are_read_as_the_contract_says(get: Call, issued: dict[str, str]) -> None:
    page = get("invoices?month=2026-10", secret("invoices:read")).json()
    assert (page["count"], [item["number"] for item in page["results"]]) == (2, sorted(issued.values()))
    one = get(f"invoices/{issued['nlp']}.json", secret("invoices:read")).json()
    assert (one["team"], one["currency"], one["total"], one["period"]) == ("nlp", "CNY", "209.62", "2026-10")
    (line,) = one["lines"]
    assert (line["kind"], line["quantity"], line["unit"], line["unit_price"], line["amount"]) == (
        "gpu", "20.962222", "GPU-Hours", "10.0000", "209.62",
    )  # fmt: skip
    assert len(one["sha256"]) == 64
    (same,) = one["invoices"]  # the document of `invoice_issue`, of one invoice
    assert {"period": one["period"], **same} == {name: one[name] for name in one if name not in ("invoices", "document")}
    assert get(f"invoices/{issued['nlp']}", secret("invoices:read")).json() == {"period": "2026-10", **same}


def test_a_teams_token_sees_its_own_invoices_only(get: Call, issued: dict[str, str]) -> None:
    own = secret("invoices:read", team=Team.objects.get(code="cv"))
    assert [item["number"] for item in get("invoices", own).json()["results"]] == [issued["cv"]]
    assert get("invoices?team=nlp", own).json()["results"] == []
    for suffix in ("", ".json", ".pdf", ".csv", ".xlsx"):
        problem(get(f"invoices/{issued['nlp']}{suffix}", own), 404)
    assert get(f"invoices/{issued['cv']}", own).status_code == 200
    assert {item["team"] for item in get("charges", own).json()["results"]} == {"cv"}
    assert get("charges?team=nlp", own).json()["results"] == []
    assert [item["code"] for item in get("teams", own).json()["results"]] == ["cv"]
    problem(get("periods/2026-10/report", own), 404)
    assert get("periods/2026-10", own).json().get("invoices") in (None, 1)


def test_drafts_are_not_read_from_outside(get: Call, tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    period_close(month="2026-10", actor="ops", now=datetime(2026, 11, 1, 0, 5, tzinfo=UTC))
    assert get("invoices", secret("invoices:read")).json()["results"] == []


def test_an_invoice_comes_as_a_file(get: Call, issued: dict[str, str]) -> None:
    for suffix, start, kind in (
        ("csv", b"", "text/csv; charset=utf-8"),
        ("xlsx", b"PK", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("pdf", b"%PDF", "application/pdf"),
    ):
        answer = get(f"invoices/{issued['nlp']}.{suffix}", secret("invoices:read"))
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, kind)
        assert answer.content.startswith(start)
        assert f"{issued['nlp']}.{suffix}" in answer.headers["Content-Disposition"]


def test_prices_are_decimal_strings(get: Call, tmp_path: Path) -> None:
    apply(tmp_path)
    (version,) = get("price-versions", secret("prices:read")).json()["results"]
    assert {"accelerator": "NVIDIA-H800", "resource": "", "unit": "GPU-Hours", "price": "10.0000"} in version["gpu"]
    assert {"model": "llama-3-8b", "token_class": "output", "price": "8.0000"} in version["tokens"]


def test_the_report_of_a_period_is_the_contracts_json(get: Call, issued: dict[str, str]) -> None:
    report = get("periods/2026-10/report", secret("invoices:read")).json()
    assert (report["period"], report["status"], report["closable"], report["exceptions"]) == (
        "2026-10", "closed", True, [],
    )  # fmt: skip
    assert report["gpu_seconds"]["charged"] == 9 * 9433


def test_a_month_that_nobody_opened_is_answered_as_the_command_answers_it(get: Call, issued: dict[str, str]) -> None:
    """The month before: eight devices were held in its last hour, with no price of that time."""
    ingest_allocations(
        allocation_record(3, started_at="2026-09-30T14:00:00Z", ended_at="2026-09-30T15:00:00Z",
                          observed_until="2026-09-30T15:00:00Z")
    )  # fmt: skip
    reader = secret("invoices:read")
    report = get("periods/2026-09/report", reader).json()
    assert (report["status"], report["closable"], report["gpu_seconds"]["unpriced"]) == ("open", False, 8 * 3600)
    period = get("periods/2026-09", reader).json()
    assert (period["status"], period["start"], period["invoices"]) == ("open", "2026-08-31T16:00:00Z", 0)
    problem(get("periods/2026-09/accrual", reader), 404)
    problem(get("periods/2026-13", reader), 404)
    assert not BillingPeriod.objects.filter(month="2026-09").exists()  # reading opens nothing


def test_a_page_that_is_none_is_named(get: Call, issued: dict[str, str]) -> None:
    for page in ("0", "x", "99", "1.5"):
        assert problem(get(f"invoices?page={page}", secret("invoices:read")), 404)["detail"].startswith(f"page '{page}': ")


@pytest.mark.parametrize("path", ["charges", "invoices", "credit-notes"])
def test_what_is_no_month_is_refused_and_no_empty_list(get: Call, issued: dict[str, str], path: str) -> None:
    """Who mistypes it must not read that nothing was billed."""
    for month in ("2026-13", "2026-1", "October", "2026-10-01"):
        reported = problem(get(f"{path}?month={month}", secret("invoices:read")), 400)
        assert reported["detail"] == f"month '{month}' must be written like 2026-10, from 2000 to 2199"


@pytest.mark.parametrize("path", ["invoices/%00", "invoices/x%0Ay", "periods/%00", "periods/x%0A", "periods/%00/report"])
def test_a_strange_path_is_answered_without_a_500(get: Call, path: str) -> None:
    problem(get(path, secret("invoices:read")), 404)


# The description and the probes


def test_the_schema_renders_and_has_every_endpoint(client: Any) -> None:
    answer = client.get("/api/v1/schema/?format=json")
    assert answer.status_code == 200
    schema = json.loads(answer.content)
    assert schema["openapi"].startswith("3.")
    for endpoint in ENDPOINTS:
        operation = schema["paths"][f"/api/v1/{endpoint}"]["post"]
        assert "200" in operation["responses"]
        assert operation["requestBody"]["content"]
    for path in ("teams", "prices", "price-versions", "charges", "invoices", "periods/{month}", "periods/{month}/report",
                 "focus/{month}"):  # fmt: skip
        assert "get" in schema["paths"][f"/api/v1/{path}"], path
    assert any(path.startswith("/api/v1/invoices/{number}") for path in schema["paths"])
    references = [part.split('"')[0] for part in json.dumps(schema).split('"$ref": "#/')[1:]]
    for reference in references:
        part: Any = schema
        for step in reference.split("/"):
            part = part[step]


def test_the_schema_of_a_record_names_every_field(client: Any) -> None:
    schema = json.loads(client.get("/api/v1/schema/?format=json").content)
    content = schema["paths"]["/api/v1/usage/tokens"]["post"]["requestBody"]["content"]
    record = content["application/json"]["schema"]["items"]
    assert set(token_record()) <= set(record["properties"])
    assert set(token_record()) == set(record["required"])
    assert record["additionalProperties"] is False


def test_the_schema_generates_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert "openapi" in Manage(capsys)("spectacular", "--validate", "--fail-on-warn").out


def test_the_process_answers(client: Any) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.post("/healthz").status_code == 405


def test_readiness_names_every_part(client: Any, settings: Any) -> None:
    answer = client.get("/readyz").json()
    assert answer.keys() == {"status", "database", "migrations", "broker"}
    assert (answer["database"], answer["migrations"]) == ("ok", "ok")


def test_readiness_says_when_a_migration_is_missing(client: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'invoices'")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert "not applied" in answer.json()["migrations"]
