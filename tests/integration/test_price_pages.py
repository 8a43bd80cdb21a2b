"""Pages of price lists: what the form refuses is named and kept, rights are asked for by every step, notice is shown."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.test import Client
from django.utils import timezone

from billing.portal.input_names import input_name
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.services import (
    cost_sheet_put,
    price_draft_create,
    price_draft_submit,
    price_draft_write,
    token_cost_sheet_put,
)
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests import factories
from tests.factories.commands import since_2024
from tests.factories.prices import LIST, SHEET, TOKEN_SHEET

pytestmark = pytest.mark.django_db

FORM: dict[str, Any] = {
    "name": "2099-01", "valid_from": "2099-01-01T00:00", "reason": "new cards",
    "gpu_accelerator": ["NVIDIA-H800", "", ""], "gpu_resource": ["", "nvidia.com/mig-1g.10gb", ""],
    "gpu_source": ["price_per_gpu_hour", "price_per_slice_hour", "price_per_gpu_hour"],
    "gpu_value": ["12", "2.5", ""],
    "tokens_model": ["llama-3-8b"], "tokens_input": ["2"], "tokens_cache_read": [""], "tokens_cache_creation": [""],
    "tokens_output": ["8"], "tokens_cost_sheet": [""],
}  # fmt: skip


@pytest.fixture(scope="module")
def set_up(for_all_tests: Path) -> None:
    factories.apply(for_all_tests, **since_2024())


@pytest.fixture
def finance(set_up: None) -> Client:
    return of("ana", "finance")


def of(name: str, *roles: str) -> Client:
    return factories.signed_in(factories.person(name, *roles))


def draft(name: str = "2099-01", start: datetime | None = None, content: Any = LIST) -> PriceDraft:
    return price_draft_create(
        name=name, valid_from=start or datetime(2098, 12, 31, 16, tzinfo=UTC), content=content, actor="ana",
        now=timezone.now(), reason="new cards",
    )  # fmt: skip


def of_a_sheet(**more: Any) -> PriceDraft:
    """A draft whose price of a GPU is that of a cost sheet."""
    cost_sheet_put(name="h800", inputs=SHEET, result=cost_of_gpu_hour(parse_cost_sheet(SHEET)).as_dict(), actor="ana")
    return draft(content={"gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "h800"}], **more})


def submitted() -> PriceDraft:
    return price_draft_submit(draft=draft(), actor="ana", now=timezone.now())


def test_the_form_makes_a_draft_of_its_rows_and_leaves_blank_ones_out(finance: Client) -> None:
    answer = finance.post("/prices/drafts/new/", FORM)
    made = PriceDraft.objects.get()
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/prices/drafts/{made.pk}/")
    assert made.content == {
        "gpu": [
            {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "12.0000"},
            {"resource": "nvidia.com/mig-1g.10gb", "price_per_slice_hour": "2.5000"},
        ],
        "tokens": [{"model": "llama-3-8b", "input": "2.0000", "output": "8.0000"}],
    }
    assert made.valid_from == datetime(2098, 12, 31, 16, tzinfo=UTC)  # midnight in Shanghai
    assert (made.makers, made.reason) == (["ana"], "new cards")


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"gpu_value": ["12", "x", ""]}, "GPU prices, row 2: &#x27;x&#x27; must be a number from 0 to 1000000"),
        ({"gpu_value": ["", "2", ""]}, "GPU prices, row 1: give exactly one of"),
        ({"tokens_output": ["-8"]}, "token prices, row 1: &#x27;-8&#x27; must be"),
        ({"name": ""}, "name: &#x27;&#x27; must be printable text"),
        ({"valid_from": "soon"}, "In force from &#x27;soon&#x27;: must be a local date and time"),
        ({"reason": "x" * 2001}, "reason: "),
        ({"reason": "a\0b"}, "Why do prices change? &#x27;a\\x00b&#x27;: Null characters are not allowed"),
        ({"name": "a\0b"}, "Name &#x27;a\\x00b&#x27;: Null characters are not allowed"),
    ],
)  # fmt: skip
def test_a_refused_form_names_field_and_value_and_loses_nothing(finance: Client, changed: dict[str, Any], line: str) -> None:
    answer = finance.post("/prices/drafts/new/", {**FORM, **changed})
    text = answer.content.decode()
    assert answer.status_code == 400
    assert line in text
    assert 'value="2.5"' in text or "gpu_value" in changed
    assert not PriceDraft.objects.exists()


def test_the_form_begins_with_the_newest_list_and_a_month_with_enough_notice(finance: Client) -> None:
    text = finance.get("/prices/drafts/new/").content.decode()
    assert 'value="NVIDIA-H800"' in text
    assert 'value="1.7143"' in text
    old = PriceVersion.objects.get()
    assert finance.get(f"/prices/drafts/new/?from={old.pk}").status_code == 200
    assert finance.get("/prices/drafts/new/?from=999999").status_code == 404


def test_an_edit_of_another_revision_than_the_newest_is_refused(finance: Client) -> None:
    made = draft()
    assert finance.post(f"/prices/drafts/{made.pk}/edit/", {**FORM, "revision": "1"}).status_code == 302
    answer = finance.post(f"/prices/drafts/{made.pk}/edit/", {**FORM, "revision": "1"})
    assert "revision: 1 is not the newest" in answer.content.decode()


def test_the_maker_sees_no_button_and_the_post_is_refused(finance: Client) -> None:
    made = submitted()
    both = of("cem", "finance", "approver")
    text = finance.get(f"/prices/drafts/{made.pk}/").content.decode()
    assert "You made this list" in text
    assert "/approve/" not in text
    assert finance.post(f"/prices/drafts/{made.pk}/approve/").status_code == 403  # no right
    price_draft_edit_by_cem(both, made)
    assert "/approve/" not in both.get(f"/prices/drafts/{made.pk}/").content.decode()
    answer = both.post(f"/prices/drafts/{made.pk}/approve/")
    assert answer.status_code == 403
    assert "a second person decides on it" in answer.content.decode()
    assert not PriceVersion.objects.filter(name="2099-01").exists()


def price_draft_edit_by_cem(client: Client, made: PriceDraft) -> None:
    client.post(f"/prices/drafts/{made.pk}/edit/", {**FORM, "revision": "1"})
    assert client.post(f"/prices/drafts/{made.pk}/submit/", {"reason": "newer cards"}).status_code == 302


def test_a_second_person_approves_what_they_saw(finance: Client) -> None:
    made, approver = submitted(), of("ben", "approver")
    assert "/approve/" in approver.get(f"/prices/drafts/{made.pk}/").content.decode()
    assert approver.post(f"/prices/drafts/{made.pk}/approve/", {"revision": "7"}).status_code == 409
    answer = approver.post(f"/prices/drafts/{made.pk}/approve/", {"revision": "1", "reason": "agreed"})
    version = PriceVersion.objects.get(name="2099-01")
    assert answer.headers["Location"] == f"/prices/versions/{version.pk}/"
    text = approver.get(answer.headers["Location"]).content.decode()
    assert "approved and published it" in text
    assert "agreed" in text
    assert approver.post(f"/prices/drafts/{made.pk}/approve/").status_code == 409


def test_a_rejection_says_why_and_shows_it_to_the_maker(finance: Client) -> None:
    made, approver = submitted(), of("ben", "approver")
    assert approver.post(f"/prices/drafts/{made.pk}/reject/").status_code == 400
    assert approver.post(f"/prices/drafts/{made.pk}/reject/", {"reason": "output is too dear"}).status_code == 302
    text = finance.get(f"/prices/drafts/{made.pk}/").content.decode()
    assert "Sent back by ben" in text
    assert "output is too dear" in text
    assert finance.post(f"/prices/drafts/{made.pk}/withdraw/").status_code == 302
    assert finance.post(f"/prices/drafts/{made.pk}/dance/").status_code == 404


@pytest.mark.parametrize(("days", "short"), [(3, True), (60, False)])
def test_short_notice_is_shown_and_not_refused(finance: Client, days: int, short: bool) -> None:
    made = draft(start=timezone.now() + timedelta(days=days))
    text = finance.get(f"/prices/drafts/{made.pk}/").content.decode()
    assert ("shorter than the 10 that are asked for" in text) == short
    assert finance.post(f"/prices/drafts/{made.pk}/submit/").status_code == 302


def test_what_a_list_costs_is_for_those_who_may_see_costs(finance: Client) -> None:
    made = of_a_sheet()
    assert "Hosting" in finance.get(f"/prices/drafts/{made.pk}/").content.decode()
    price_draft_submit(draft=made, actor="ana", now=timezone.now(), reason="new cards")
    of("ben", "approver").post(f"/prices/drafts/{made.pk}/approve/")
    version = PriceVersion.objects.get(name="2099-01")
    team = of("vera", "viewer")
    for path in ("/prices/", f"/prices/versions/{version.pk}/"):
        text = team.get(path).content.decode()
        assert "11.5505" in text
        assert "Hosting" not in text
    assert team.get(f"/prices/version-{version.pk}.yaml").status_code == 403
    file = yaml.safe_load(finance.get(f"/prices/version-{version.pk}.yaml").content)
    assert file["cost_sheets"][0]["sheet"]["pue"] == "1.3"
    assert finance.get(f"/prices/sheet-{version.pk}.yaml").status_code == 404


def test_why_a_draft_has_no_prices_is_reported_in_the_language_of_the_page(finance: Client) -> None:
    made = of_a_sheet()
    dollars = {**SHEET, "currency": "USD"}
    cost_sheet_put(name="h800", inputs=dollars, result=cost_of_gpu_hour(parse_cost_sheet(dollars)).as_dict(), actor="ana")
    finance.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    page = finance.get(f"/prices/drafts/{made.pk}/").content.decode()
    assert "的币种为 USD，价格的币种为 CNY" in page
    assert "prices are in CNY" not in page


def test_a_price_is_traced_to_every_input_and_to_the_load_test(finance: Client) -> None:
    token_cost_sheet_put(name="llama", inputs=TOKEN_SHEET, actor="ana")
    made = of_a_sheet(tokens=[{"model": "llama-3-8b", "cost_sheet": "llama"}])
    text = " ".join(finance.get(f"/prices/drafts/{made.pk}/").content.decode().split())
    for name, value in SHEET.items():
        assert f'<td>{input_name(name)}</td><td class="n">{value}</td>' in text
    for line in ("1 × NVIDIA-H800", "vllm 0.11", "fp8", "output-only", "500 output tokens/s", "TTFT p99 900 ms"):
        assert line in text


def test_a_list_of_a_large_installation_fits_into_one_form(finance: Client) -> None:
    columns = ("input", "cache_read", "cache_creation", "output")
    many = {
        "tokens_model": [f"model-{number}" for number in range(300)],
        **{f"tokens_{name}": ["1.0000"] * 300 for name in columns}, "tokens_cost_sheet": [""] * 300,
    }  # fmt: skip
    assert finance.post("/prices/drafts/new/", {**FORM, **many}).status_code == 302
    assert len(PriceDraft.objects.get().content["tokens"]) == 300


def test_two_lists_are_compared_and_a_draft_is_no_choice_for_a_team(finance: Client) -> None:
    made, version = draft(), PriceVersion.objects.get()
    text = finance.get(f"/prices/compare/?old=v{version.pk}&new=d{made.pk}").content.decode()
    assert "+20.00%" in text  # 10 -> 12
    assert "+25.00%" in text  # 8 -> 10
    team = of("vera", "viewer")
    assert "2099-01" not in team.get("/prices/compare/").content.decode()
    assert team.get(f"/prices/compare/?new=d{made.pk}").status_code == 404


def test_a_comparison_shows_components_and_inputs_to_those_who_may_see_costs(finance: Client) -> None:
    """h800 at 65 % sold: 8.299398 x 0.35 / 0.65 = 4.4689 of unsold hours more, and 11.5505 becomes 16.9132."""
    made = []
    for name, sheet in (("2099-01", SHEET), ("2099-02", {**SHEET, "sold_share": "0.65"})):
        made.append(price_draft_write(
            fields={
                "name": name, "valid_from": f"{name}-01", "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": name}],
                "cost_sheets": [{"name": name, "sheet": sheet}],
            },
            actor="ana", now=timezone.now(),
        ))  # fmt: skip
    old, new = made
    page: Any = finance.get(f"/prices/compare/?old=d{old.pk}&new=d{new.pk}")
    ((found, _, _),) = page.context["sheets"]
    rows = {name: (before, after, difference) for name, before, after, difference in found.components}
    assert rows["unsold"] == ("—", "4.4689", "+4.4689")
    assert rows["hardware"] == ("6.1644", "6.1644", "0.0000")
    assert found.inputs == [("sold_share", "—", "0.65")]
    assert (str(found.old.price), str(found.new.price)) == ("11.5505", "16.9132")
    version = PriceVersion.objects.get()
    page = finance.get(f"/prices/compare/?old=v{version.pk}&new=d{new.pk}")
    ((found, _, _),) = page.context["sheets"]
    assert (found.old, found.inputs, found.components[0][1]) == (None, [], "—")
    assert "gives this price without a cost sheet" in page.content.decode()
    seen: Any = of("vera", "viewer").get(f"/prices/compare/?old=v{version.pk}&new=v{version.pk}")
    assert seen.context["sheets"] == []


def test_a_month_that_is_none_is_not_found(finance: Client) -> None:
    made = draft()
    for month in ("soon", "%00", "2026-13", "0000-00"):
        assert finance.get(f"/prices/drafts/{made.pk}/effect/?month={month}").status_code == 404, month
