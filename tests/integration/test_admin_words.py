"""The administration carries the product's name, speaks the reader's language, and the portal leads there whoever may open
it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.services import cost_sheet_put, price_draft_create, price_draft_withdraw, token_cost_sheet_put
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests.factories import apply, person, signed_in
from tests.factories.prices import LIST, NOW, SHEET, TOKEN_SHEET
from tests.factories.usage import POLICY
from tests.page_words import CODE, english_in

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]


def test_the_administration_has_the_name_of_the_product() -> None:
    text = signed_in(User.objects.create_superuser("root")).get("/admin/").content.decode()
    assert "Suanpan 算盘" in text
    assert "Administration" in text
    assert not [words for words in ("Django", "What is rare") if words in text]


def test_only_whoever_may_open_it_is_led_there(tmp_path: Path) -> None:
    apply(tmp_path)
    person("fin", "finance")
    person("ann", "admin")
    for name, shown, status in (("fin", False, 302), ("ann", True, 200)):
        client = signed_in(name)
        assert ('href="/admin/"' in client.get("/budgets/").content.decode()) is shown
        assert client.get("/admin/").status_code == status


def test_its_times_are_those_of_the_installation(tmp_path: Path) -> None:
    apply(tmp_path)
    text = signed_in(User.objects.create_superuser("root")).get("/admin/rates/priceversion/").content.decode()
    assert "Oct. 1, 2026, midnight" in text
    assert "Sept. 30, 2026" not in text


def test_its_parts_have_the_words_of_the_portal() -> None:
    text = signed_in(User.objects.create_superuser("root")).get("/admin/").content.decode()
    assert not [words for words in ("Authentication and Authorization", "MFA", "Social", "Groups", "Rates") if words in text]
    assert "Second factors" in text


# Chinese


SAME = ("esc", "TOTP", "WebAuthn", "SHA256", "O", "oidc", "vllm", "fp8")
"""A key, standards, the mark of a method of the docs, the identity provider, and what the load test ran on."""


@pytest.fixture
def reader(tmp_path: Path) -> Client:
    """A superuser who reads Chinese, where every table has rows with Chinese names, and histories have entries."""
    apply(tmp_path, efficiency_policies=[{**POLICY, "name": "分档一"}])
    cost_sheet_put(name="成本一", inputs=SHEET, result=cost_of_gpu_hour(parse_cost_sheet(SHEET)).as_dict(), actor="安娜")
    token_cost_sheet_put(name="压测一", inputs=TOKEN_SHEET, actor="安娜")
    root = User.objects.create_superuser("超管")
    Authenticator.objects.create(user=root, type=Authenticator.Type.TOTP, data={})
    SocialAccount.objects.create(user=root, provider="oidc", uid="7")
    reader = signed_in(root, "zh-hans")
    _account_changed(reader)
    _drafts_written(reader)
    return reader


def _account_changed(reader: Client) -> None:
    ann = person("安娜", "lead", team="nlp")
    role = ann.memberships.get()
    form = {
        "first_name": "安娜", "date_joined_0": "2026-10-01", "date_joined_1": "08:00:00", "is_active": "on",
        "memberships-TOTAL_FORMS": 1, "memberships-INITIAL_FORMS": 1, "memberships-0-id": role.pk,
        "memberships-0-user": ann.pk, "memberships-0-team": role.team_id, "memberships-0-role": "viewer",
    }  # fmt: skip
    assert reader.post(f"/admin/auth/user/{ann.pk}/change/", form).status_code == 302


def _drafts_written(reader: Client) -> None:
    """One that is still written, one that was given up."""
    for name, year in (("草稿一", 2098), ("草稿二", 2099)):
        begins = datetime(year, 1, 1, tzinfo=UTC)
        made = price_draft_create(name=name, valid_from=begins, content=LIST, actor="安娜", now=NOW, reason="2027")
    price_draft_withdraw(draft=made, actor="安娜", now=NOW)
    page = f"/admin/rates/pricedraft/{PriceDraft.objects.get(subject='草稿一').pk}/change/"
    form = reader.get(page).context["adminform"].form
    document = form["document"].value().replace("草稿一", "草稿三")
    sent = {"document": document, "revision": "1", "steps-TOTAL_FORMS": "0", "steps-INITIAL_FORMS": "0"}
    assert reader.post(page, sent).status_code == 302


def pages_of(table: str) -> Iterator[str]:
    """Its list, that list without a row, its empty form, and of each row everything that there is."""
    at = f"admin:{table.replace('.', '_')}"
    yield from (reverse(f"{at}_changelist"), reverse(f"{at}_changelist") + "?q=nothing-1", reverse(f"{at}_add"))
    rows = apps.get_model(table)._default_manager.order_by("pk")
    assert rows, f"no row of {table} to look at"
    for row in rows:
        yield from (reverse(f"{at}_{page}", args=[row.pk]) for page in ("change", "delete", "history"))


@pytest.mark.parametrize("table", sorted(model._meta.label_lower for model in admin.site._registry))
def test_no_page_of_the_administration_leaves_english_on_a_chinese_page(reader: Client, table: str) -> None:
    found, opened = {}, 0
    for address in ("/admin/", *pages_of(table)):
        answer = reader.get(address)
        assert answer.status_code in (200, 403), address  # 403: a row that nobody changes or deletes by hand
        opened += answer.status_code == 200
        if english := english_in(answer.content.decode(), SAME, CODE - {"option"}):
            found[address] = english
    assert opened >= 4
    assert found == {}, "\n".join(f"{address}: {texts}" for address, texts in found.items())


def test_its_buttons_do_not_speak_of_months(reader: Client) -> None:
    """A word of the portal that means something else there: to close a page is not to close a month."""
    version = PriceVersion.objects.get().pk
    text = reader.get(f"/admin/rates/priceversion/{version}/change/").content.decode()
    assert "关闭" in text
    assert "关账" not in text
