"""The doors of price versions: drafted and submitted by one, approved by another, every refusal a problem by field."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from billing.rates.models import CostSheet, PriceDraft, PriceVersion
from billing.tenancy.models import AuditEntry
from billing.tenancy.tokens import TokenError, api_token_create
from tests import factories
from tests.factories import allocation_record, ingest_allocations
from tests.factories.api import bearer, problem
from tests.factories.commands import THEN, since_2024
from tests.factories.price_api import BODY, Caller, signed_in
from tests.factories.prices import SHEET

pytestmark = pytest.mark.django_db


def token(name: str, *scopes: str) -> Caller:
    """A token; one that approves has an owner who may."""
    if "prices:approve" in scopes:
        made = factories.own_token(factories.person(f"owner-of-{name}", "approver"), name, *scopes)
    else:
        made = api_token_create(name=name, scopes=list(scopes), actor="tests")
    return Caller(Client(), bearer(made[1]))


@pytest.fixture(scope="module")
def prices(for_all_tests: Path) -> None:
    factories.apply(for_all_tests, **since_2024())
    ingest_allocations(allocation_record(**THEN))


@pytest.fixture
def maker(prices: None) -> Caller:
    return token("maker", "prices:write")


def made(maker: Caller, **changed: Any) -> dict[str, Any]:
    answer = maker("POST", "price-versions", {**BODY, **changed})
    assert answer.status_code == 201, answer.content
    reported: dict[str, Any] = answer.json()
    return reported


def test_a_token_drafts_and_submits_and_a_person_approves(maker: Caller) -> None:
    draft = made(maker)
    assert (draft["state"], draft["revision"], draft["makers"]) == ("draft", 1, ["token:maker"])
    assert draft["valid_from"] == "2098-12-31T16:00:00Z"
    assert draft["gpu"] == BODY["gpu"]
    assert draft["tokens"] == [{"model": "llama-3-8b", "input": "2.5000", "output": "10.0000"}]
    submitted = maker("POST", "price-versions/2099-01/submit").json()
    assert (submitted["state"], submitted["submitted_by"]) == ("submitted", "token:maker")
    approver = signed_in("ben", "approver")
    approved = approver("POST", "price-versions/2099-01/approve", {"reason": "agreed", "revision": 1}).json()
    assert (approved["state"], approved["decided_by"], approved["version"]) == ("approved", "ben", "2099-01")
    assert [step["action"] for step in approved["steps"]] == ["created", "submitted", "approved"]
    published = maker("GET", "price-versions/2099-01").json()
    assert (published["state"], published["makers"], published["approved_by"]) == ("published", ["token:maker"], "ben")
    assert published["gpu"] == [
        {"accelerator": "NVIDIA-H800", "resource": "", "unit": "GPU-Hours", "price": "12.5000"}
    ]
    assert AuditEntry.objects.get(action="price_draft_approved").actor == "ben"


def test_a_token_approves_what_another_principal_made(maker: Caller) -> None:
    made(maker)
    maker("POST", "price-versions/2099-01/submit")
    answer = token("finance-robot", "prices:approve")("POST", "price-versions/2099-01/approve")
    assert (answer.status_code, answer.json()["decided_by"]) == (200, "token:finance-robot")


def test_the_maker_is_refused_also_as_a_superuser_and_under_a_second_token_of_the_name(prices: None) -> None:
    root = factories.person("root")
    root.is_superuser = True
    root.save()
    client = factories.signed_in(root)
    maker = Caller(client)
    made(maker)
    maker("POST", "price-versions/2099-01/submit")
    reported = problem(maker("POST", "price-versions/2099-01/approve"), 403)
    assert reported["errors"]["actor"][0].startswith("root made 2099-01")
    robot = token("robot", "prices:write")
    robot("PATCH", "price-versions/2099-01", {"reason": "newer cards"})
    robot("POST", "price-versions/2099-01/submit")
    problem(token("robot", "prices:approve")("POST", "price-versions/2099-01/approve"), 403)
    assert not PriceVersion.objects.filter(name="2099-01").exists()


def test_no_token_both_makes_and_approves() -> None:
    with pytest.raises(TokenError, match="make two tokens"):
        token("both", "prices:write", "prices:approve")


def test_a_draft_is_not_found_by_those_who_may_only_read_prices(maker: Caller) -> None:
    made(maker)
    for reader in (token("reader", "prices:read"), signed_in("vera", "viewer")):
        problem(reader("GET", "price-versions/2099-01"), 404)
        problem(reader("GET", "price-versions/2099-01/diff"), 404)
        assert [row["name"] for row in reader("GET", "price-versions").json()["results"]] == ["2026-10"]
        assert reader("GET", "price-versions/2026-10").json()["makers"] == ["tests"]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"gpu": [{"accelerator": "H", "price_per_gpu_hour": "x"}, {}]},
         {"gpu[0].price_per_gpu_hour", "gpu[1].accelerator", "gpu[1].price_per_gpu_hour"}),
        ({"valid_from": "soon"}, {"valid_from"}),
        ({"valid_from": "2099-01-01T00:00:00"}, {"valid_from"}),
        ({"valid_from": None}, {"valid_from"}),
        ({"name": None, "valid_from": "soon"}, {"name", "valid_from"}),
        ({"name": "a/b"}, {"name"}),
        ({"name": "2026-10"}, {"name"}),
        ({"colour": "red"}, {"colour"}),
        ({"cost_sheets": [{"name": "h", "sheet": {**SHEET, "pue": "0.3", "life_years": "x"}}]},
         {"cost_sheets[0].sheet.pue", "cost_sheets[0].sheet.life_years"}),
        ({"cost_sheets": [{"name": "h"}]}, {"cost_sheets[0].sheet"}),
        ({"token_cost_sheets": [{"name": "h", "sheet": {"currency": "CNY"}}]},
         {f"token_cost_sheets[0].sheet.{name}" for name in ("gpu_hour_cost", "ttft_p99_ms", "tpot_p99_ms", "report")}),
    ],
)  # fmt: skip
def test_every_bad_field_is_named(maker: Caller, body: dict[str, Any], fields: set[str]) -> None:
    reported = problem(maker("POST", "price-versions", {**BODY, **body}), 400)
    assert set(reported["errors"]) == fields
    assert not PriceDraft.objects.exists()
    assert not CostSheet.objects.exists()


@pytest.mark.parametrize("body", [b"{", b"[1", b"\xff", b'{"a": 1, "a": 2}', b'{"a": NaN}'])
def test_a_body_that_is_no_json_is_a_problem(maker: Caller, body: bytes) -> None:
    problem(maker("POST", "price-versions", body), 400)


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"3", b"null"])
def test_a_body_that_is_no_object_is_a_problem(maker: Caller, body: bytes) -> None:
    problem(maker("POST", "price-versions", body), 400)
    made(maker)
    problem(maker("PATCH", "price-versions/2099-01", body), 400)
    problem(maker("POST", "price-versions/2099-01/reject", body), 403)


def test_plain_numbers_stay_exact(maker: Caller) -> None:
    body = json.dumps(BODY).replace('"12.5000"', "0.1001").encode()
    assert maker("POST", "price-versions", body).json()["gpu"][0]["price_per_gpu_hour"] == "0.1001"


def test_a_cost_sheet_comes_with_its_draft_and_goes_out_with_its_file(maker: Caller) -> None:
    made(maker, cost_sheets=[{"name": "h800", "sheet": SHEET}], gpu=[{"accelerator": "NVIDIA-H800", "cost_sheet": "h800"}])
    text = maker("GET", "price-versions/2099-01/file").content.decode()
    assert "cost_sheet: h800" in text
    assert "electricity_price_per_kwh: '0.8'" in text
    diff = maker("GET", "price-versions/2099-01/diff").json()
    assert (diff["old"], diff["new"]) == ("2026-10", "2099-01")
    assert diff["prices"][0]["new"] == "11.5505"


def test_a_change_is_refused_where_somebody_changed_the_draft_meanwhile(maker: Caller) -> None:
    made(maker)
    assert maker("PATCH", "price-versions/2099-01", {"tokens": [], "revision": 1}).json()["revision"] == 2
    reported = problem(maker("PATCH", "price-versions/2099-01", {"reason": "x", "revision": 1}), 409)
    assert reported["errors"]["revision"] == ["1 is not the newest: the draft is at 2 by now"]
    draft = maker("GET", "price-versions/2099-01").json()
    assert (draft["tokens"], draft["gpu"], draft["reason"]) == ([], BODY["gpu"], "new cards")


def test_steps_out_of_order_are_conflicts(maker: Caller) -> None:
    made(maker)
    approver = signed_in("ben", "approver")
    problem(approver("POST", "price-versions/2099-01/approve"), 409)
    maker("POST", "price-versions/2099-01/submit")
    problem(maker("POST", "price-versions/2099-01/submit"), 409)
    assert problem(approver("POST", "price-versions/2099-01/reject"), 400)["errors"]["reason"]
    rejected = approver("POST", "price-versions/2099-01/reject", {"reason": "too dear"}).json()
    assert (rejected["state"], rejected["decision_reason"]) == ("rejected", "too dear")
    assert maker("POST", "price-versions/2099-01/withdraw").json()["state"] == "withdrawn"
    problem(maker("POST", "price-versions/2099-01/dance"), 404)
    problem(maker("GET", "price-versions/absent"), 404)
    problem(maker("GET", "price-versions/a%00b"), 404)


def test_a_published_version_cannot_be_changed_through_any_endpoint(maker: Caller) -> None:
    made(maker)
    maker("POST", "price-versions/2099-01/submit")
    signed_in("ben", "approver")("POST", "price-versions/2099-01/approve")
    problem(maker("PATCH", "price-versions/2099-01", {"gpu": []}), 409)
    reported = problem(maker("PATCH", "price-versions/2026-10", {"gpu": []}), 409)
    assert reported["errors"]["state"] == ["2026-10 is published and never changes: draft another list"]
    problem(maker("POST", "price-versions", BODY), 400)
    for method in ("PUT", "DELETE"):
        problem(maker(method, "price-versions/2099-01", BODY), 405)
    for step in ("submit", "withdraw"):
        problem(maker("POST", f"price-versions/2099-01/{step}"), 409)


def test_the_effect_on_a_month_by_team_and_sku(maker: Caller) -> None:
    made(maker)
    reported = maker("GET", "price-versions/2099-01/effect?month=2024-10").json()
    # 8 x 9433 s = 20.962222... GPU-hours x 12.5 = 262.03
    assert reported["total"] == {"before": "209.62", "after": "262.03", "difference": "52.41", "percent": "25.00"}
    assert reported["rows"] == [
        {"team": "nlp", "kind": "gpu", "sku": "NVIDIA-H800", "token_class": None, **reported["total"]}
    ]
    for month in ("soon", "%00", "2026-13", "0000-00"):
        problem(maker("GET", f"price-versions/2099-01/effect?month={month}"), 400)
    problem(maker("GET", "price-versions/2099-01/diff?against=%00"), 400)


def test_drafts_are_listed_with_their_history_and_notice(maker: Caller) -> None:
    soon = (timezone.now() + timedelta(days=1)).isoformat()
    made(maker, name="soon", valid_from=soon)
    (row,) = maker("GET", "price-drafts").json()["results"]
    assert row["notice_business_days"] in (0, 1)
    assert [(step["actor"], step["action"]) for step in row["steps"]] == [("token:maker", "created")]
