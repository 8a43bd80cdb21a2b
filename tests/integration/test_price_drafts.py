"""A price list from draft to publication: two persons, every bad field named, nothing approved ever changes."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.approvals.models import Step
from billing.portal.price_lists import first_month_with_notice
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.selectors import rate_card
from billing.rates.services import (
    PriceDraftError,
    RateError,
    cost_sheet_put,
    price_draft_approve,
    price_draft_create,
    price_draft_edit,
    price_draft_reject,
    price_draft_submit,
    price_draft_withdraw,
    token_cost_sheet_put,
)
from billing.tenancy.models import AuditEntry, BillingSetup
from billing.tenancy.selectors import company_calendar
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests.factories import SET_UP, apply
from tests.factories.prices import DECEMBER, LIST, NOW, SHEET, TOKEN_SHEET

pytestmark = pytest.mark.django_db

@pytest.fixture(scope="module")
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests)


def draft(**changed: Any) -> PriceDraft:
    wanted = {"name": "2026-12", "valid_from": DECEMBER, "content": LIST, "actor": "ana", "now": NOW, **changed}
    return price_draft_create(**wanted)


def submitted(**changed: Any) -> PriceDraft:
    return price_draft_submit(draft=draft(**changed), actor="ana", now=NOW, reason="dearer power")


def store_sheet(name: str = "h800", **changed: Any) -> None:
    inputs = {**SHEET, **changed}
    cost_sheet_put(name=name, inputs=inputs, result=cost_of_gpu_hour(parse_cost_sheet(inputs)).as_dict(), actor="ana")


def refusal(call: Any, **arguments: Any) -> dict[str, list[str]]:
    with pytest.raises(PriceDraftError) as caught:
        call(**arguments)
    return caught.value.by_field


def test_a_draft_is_approved_by_a_second_person_and_then_in_force_from_its_instant(set_up: None) -> None:
    version = price_draft_approve(draft=submitted(), actor="ben", now=NOW)
    card = rate_card()
    assert card.gpu_price("NVIDIA-H800", "nvidia.com/gpu", DECEMBER)[1].price == Decimal("12.0000")
    assert card.gpu_price("NVIDIA-H800", "nvidia.com/gpu", DECEMBER - timedelta(microseconds=1))[1].price == Decimal("10")
    assert card.token_price("llama-3-8b", "output", DECEMBER)[1] == Decimal("10.0000")
    assert (version.published_by, version.valid_until, version.sealed) == ("ben", None, True)
    assert PriceVersion.objects.get(name="2026-10").valid_until == DECEMBER


def test_the_history_and_the_audit_log_name_who_made_and_who_approved_what(set_up: None) -> None:
    made = draft()
    price_draft_edit(draft=made, actor="cem", now=NOW, content={**LIST, "tokens": []})
    price_draft_submit(draft=made, actor="ana", now=NOW, reason="dearer power")
    price_draft_approve(draft=made, actor="ben", now=NOW, reason="as agreed in the council")
    steps = Step.objects.values_list("actor", "action", "revision")
    assert list(steps) == [("ana", "created", 1), ("cem", "edited", 2), ("ana", "submitted", 2), ("ben", "approved", 2)]
    approval = AuditEntry.objects.get(action="price_draft_approved")
    assert (approval.actor, approval.subject) == ("ben", "2026-12")
    assert approval.detail["makers"] == ["ana", "cem"]
    assert approval.detail["sha256"] == PriceDraft.objects.get().sha256 != ""
    assert approval.detail["notice_business_days"] == 20  # 4 to 30 November, and 1 December in Shanghai
    published = AuditEntry.objects.get(action="price_version_publish", subject="2026-12")
    assert published.detail["origin"].endswith("of ana, cem")


def test_a_declared_version_is_recorded_as_approved_by_whoever_applied_it(set_up: None) -> None:
    published = AuditEntry.objects.get(action="price_version_publish", subject="2026-10")
    assert (published.actor, published.detail["approved_by"]) == ("tests", "tests")
    assert published.detail["origin"] == "set-up file"


@pytest.mark.parametrize("maker", ["ana", "cem", "dan"])
def test_no_maker_decides(set_up: None, maker: str) -> None:
    made = draft()
    price_draft_edit(draft=made, actor="cem", now=NOW, reason="dearer power")
    price_draft_submit(draft=made, actor="dan", now=NOW)
    assert "actor" in refusal(price_draft_approve, draft=made, actor=maker, now=NOW)
    assert "actor" in refusal(price_draft_reject, draft=made, actor=maker, now=NOW, reason="no")
    assert not PriceVersion.objects.filter(name="2026-12").exists()


@pytest.mark.parametrize(
    ("content", "field", "reported"),
    [
        ({"gpu": [{"accelerator": "H", "price_per_gpu_hour": "abc"}]}, "gpu[0].price_per_gpu_hour", "'abc' must be"),
        ({"gpu": [{"accelerator": "H", "price_per_gpu_hour": "1_000"}]}, "gpu[0].price_per_gpu_hour", "'1_000' must be"),
        ({"gpu": [{"accelerator": "H", "price_per_gpu_hour": "-1"}]}, "gpu[0].price_per_gpu_hour", "'-1' must be"),
        ({"gpu": [{"accelerator": "H", "price_per_gpu_hour": "1.00001"}]}, "gpu[0].price_per_gpu_hour", "at most 4"),
        ({"gpu": [{"accelerator": "H", "price_per_gpu_hour": 1.5}]}, "gpu[0].price_per_gpu_hour", "1.5 must be a number"),
        ({"gpu": [{"accelerator": "H"}]}, "gpu[0].price_per_gpu_hour", "give exactly one of"),
        ({"gpu": [{"price_per_gpu_hour": "1"}]}, "gpu[0].accelerator", "is missing"),
        ({"gpu": [{"accelerator": "H", "price": "1"}]}, "gpu[0].price", "is no field of a GPU price"),
        ({"gpu": [{"accelerator": "H", "cost_sheet": "none"}]}, "gpu[0].cost_sheet", "'none' is no stored cost sheet"),
        ({"gpu": [{"accelerator": "H", "price_per_gpu_hour": "1"}] * 2}, "gpu[1].accelerator", "'H' has two prices"),
        ({"gpu": "H"}, "gpu", "must be a list"),
        ({"gpu": ["H"]}, "gpu[0]", "must be a mapping"),
        ({"tokens": [{"model": "m"}]}, "tokens[0].input", "give a price per 1M tokens"),
        ({"tokens": [{"input": "1"}]}, "tokens[0].model", "is missing"),
        ({"tokens": [{"model": "m", "input": "1"}, {"model": "m", "input": "2"}]}, "tokens[1].model", "two input prices"),
        ({"tokens": [{"model": "m", "cost_sheet": "x"}]}, "tokens[0].cost_sheet", "is no stored token cost sheet"),
        ({"tokens": [{"model": "m", "cost_sheet": "x", "input": "1"}]}, "tokens[0].input", "is given beside cost_sheet"),
        ({}, "gpu", "is empty and so is tokens"),
        ({"prices": []}, "prices", "is no field of a price list"),
        ("text", "the file", "must be a mapping"),
    ],
)  # fmt: skip
def test_a_bad_field_is_named_with_its_value(set_up: None, content: Any, field: str, reported: str) -> None:
    assert any(reported in text for text in refusal(draft, content=content)[field])


@pytest.mark.parametrize("name", ["", " 2026-12", "x" * 201, "a\nb", "2026-10"])
def test_a_name_is_printable_and_not_published(set_up: None, name: str) -> None:
    assert "name" in refusal(draft, name=name)


def test_two_drafts_of_one_name_do_not_live_together_but_one_that_was_given_up_frees_it(set_up: None) -> None:
    first = draft()
    assert "another draft" in refusal(draft)["name"][0]
    price_draft_withdraw(draft=first, actor="ana", now=NOW)
    assert draft().pk != first.pk


def test_a_start_that_passes_while_the_list_waits_is_asked_for_again(set_up: None) -> None:
    made = draft(reason="dearer power")
    price_draft_submit(draft=made, actor="ana", now=DECEMBER - timedelta(microseconds=1))
    assert "has passed" in refusal(price_draft_approve, draft=made, actor="ben", now=DECEMBER)["valid_from"][0]
    price_draft_edit(draft=made, actor="ana", now=DECEMBER)
    price_draft_submit(draft=made, actor="ana", now=DECEMBER)
    assert price_draft_approve(draft=made, actor="ben", now=DECEMBER).valid_from == DECEMBER


def test_a_start_at_which_another_version_begins_is_refused(set_up: None) -> None:
    price_draft_approve(draft=submitted(), actor="ben", now=NOW)
    other = draft(name="2026-12b", reason="again")
    reported = refusal(price_draft_submit, draft=other, actor="ana", now=NOW)
    assert "is where 2026-12 begins" in reported["valid_from"][0]


def test_a_submission_says_why(set_up: None) -> None:
    assert "is missing" in refusal(price_draft_submit, draft=draft(), actor="ana", now=NOW)["reason"][0]


def test_a_rejection_says_why_and_the_draft_can_be_edited_and_submitted_again(set_up: None) -> None:
    made = submitted()
    assert "reason" in refusal(price_draft_reject, draft=made, actor="ben", now=NOW, reason=" ")
    price_draft_reject(draft=made, actor="ben", now=NOW, reason="output is too dear")
    assert "state" in refusal(price_draft_approve, draft=made, actor="ben", now=NOW)
    price_draft_edit(draft=made, actor="ana", now=NOW, content={**LIST, "tokens": []})
    again = price_draft_submit(draft=made, actor="ana", now=NOW)
    assert (again.state, again.revision, again.decided_by) == ("submitted", 2, "")
    assert price_draft_approve(draft=made, actor="ben", now=NOW).tokens.count() == 0


def test_what_the_approver_looked_at_is_what_is_approved(set_up: None) -> None:
    made = submitted()
    price_draft_edit(draft=made, actor="ana", now=NOW, content={**LIST, "tokens": []})
    price_draft_submit(draft=made, actor="ana", now=NOW)
    assert "revision" in refusal(price_draft_approve, draft=made, actor="ben", now=NOW, revision=1)
    assert price_draft_approve(draft=made, actor="ben", now=NOW, revision=2).name == "2026-12"


def test_a_cost_sheet_that_changed_after_the_submission_is_not_approved_unseen(set_up: None) -> None:
    store_sheet()
    made = submitted(content={"gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "h800"}]})
    store_sheet(markup="0.3")
    assert "changed after the submission" in refusal(price_draft_approve, draft=made, actor="ben", now=NOW)["content"][0]
    price_draft_edit(draft=made, actor="ana", now=NOW)
    price_draft_submit(draft=made, actor="ana", now=NOW)
    version = price_draft_approve(draft=made, actor="ben", now=NOW)
    # (6.164383561644 + 1.326 + 1.198630136986 + 700000 / (1024 x 730)) x 1.3 = 9.625443493151 x 1.3
    assert version.gpu.get().price == Decimal("12.5131")
    assert version.gpu.get().cost_sheet.name == "h800"


@pytest.mark.parametrize("state", ["approved", "withdrawn"])
def test_what_was_decided_for_good_is_refused_every_further_step(set_up: None, state: str) -> None:
    made = submitted()
    if state == "approved":
        price_draft_approve(draft=made, actor="ben", now=NOW)
    else:
        price_draft_withdraw(draft=made, actor="ana", now=NOW)
    for call in (price_draft_edit, price_draft_submit, price_draft_withdraw, price_draft_approve):
        assert "state" in refusal(call, draft=made, actor="cem", now=NOW)


def test_the_set_up_file_does_not_know_a_draft_until_it_is_published(tmp_path: Path, set_up: None) -> None:
    draft(name="2026-11")
    assert apply(tmp_path).changes == []
    assert [version.name for version in rate_card().versions] == ["2026-10"]


def test_a_draft_in_another_currency_than_invoices_is_not_published(set_up: None) -> None:
    made = submitted()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tenancy_billingsetup SET currency = 'USD'")
    assert "currency" in refusal(price_draft_approve, draft=made, actor="ben", now=NOW)


def test_a_token_price_keeps_its_report_hardware_engine_precision_and_method(set_up: None) -> None:
    token_cost_sheet_put(name="llama-on-h800", inputs=TOKEN_SHEET, actor="ana")
    content = {**LIST, "tokens": [{"model": "llama-3-8b", "cost_sheet": "llama-on-h800"}]}
    version = price_draft_approve(draft=submitted(content=content), actor="ben", now=NOW)
    output = version.tokens.get(token_class="output")
    assert output.price == Decimal("6.6667")  # 10 x 10^6 / (3600 x 500) x 1.2
    sheet = output.cost_sheet
    assert (sheet.accelerator, sheet.gpus, sheet.engine, sheet.precision, sheet.method) == (
        "NVIDIA-H800", 1, "vllm 0.11", "fp8", "output-only"
    )  # fmt: skip
    assert sheet.inputs["report"]["runs"][0]["output_tps"] == "500"
    with pytest.raises(RateError, match="source of published prices"):
        token_cost_sheet_put(name="llama-on-h800", inputs={**TOKEN_SHEET, "markup": "0.3"}, actor="ana")
    assert token_cost_sheet_put(name="llama-on-h800", inputs=TOKEN_SHEET, actor="ana") == (sheet, False)


def test_a_token_price_of_another_model_than_the_tested_one_is_refused(set_up: None) -> None:
    token_cost_sheet_put(name="llama-on-h800", inputs=TOKEN_SHEET, actor="ana")
    reported = refusal(draft, content={"tokens": [{"model": "qwen", "cost_sheet": "llama-on-h800"}]})
    assert reported == {"tokens[0].model": ["'qwen' was not tested: llama-on-h800 is of llama-3-8b"]}


def test_the_notice_is_counted_in_business_days_of_the_installation(tmp_path: Path) -> None:
    """4 to 30 November and 1 December are 20 weekdays: three are holidays, one of them made up for on a Saturday."""
    holidays = ["2026-11-11", "2026-11-12", "2026-12-01", "2026-12-02"]
    apply(tmp_path, billing={**SET_UP["billing"], "holidays": holidays, "working_days": ["2026-11-14"]})
    setup = BillingSetup.objects.get()
    days = {18: "2026-12", 19: "2027-01"}
    for notice, month in days.items():
        assert first_month_with_notice(NOW, setup.zone, notice, company_calendar(setup))[0] == month
    price_draft_approve(draft=submitted(), actor="ben", now=NOW)
    assert AuditEntry.objects.get(action="price_draft_approved").detail["notice_business_days"] == 18
    # no second list begins with December
    assert first_month_with_notice(NOW, setup.zone, 18, company_calendar(setup))[0] == "2027-01"
