"""The admin of price tables: drafts through the services, everything published only to look at, nothing to delete."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.services import price_draft_create, price_draft_submit, price_draft_withdraw, token_cost_sheet_put
from tests import factories
from tests.factories import staff
from tests.factories.commands import since_2024
from tests.factories.prices import LIST, TOKEN_SHEET

pytestmark = pytest.mark.django_db

DOCUMENT = """\
name: 2099-01
valid_from: '2099-01-01T00:00:00+08:00'
reason: new cards
gpu:
- accelerator: NVIDIA-H800
  price_per_gpu_hour: 12
tokens: []
"""
HISTORY = {"steps-TOTAL_FORMS": "0", "steps-INITIAL_FORMS": "0"}


@pytest.fixture(scope="module")
def finance(for_all_tests: Path) -> Client:
    factories.apply(for_all_tests, **since_2024())
    return staff("ana", "finance")


def draft(name: str = "2099-01") -> PriceDraft:
    return price_draft_create(
        name=name, valid_from=datetime(2099, 1, 1, tzinfo=UTC), content=LIST, actor="cem", now=timezone.now(),
        reason="new cards",
    )  # fmt: skip


def test_a_draft_is_made_and_changed_as_a_document_with_history(finance: Client) -> None:
    assert "NVIDIA-H800" in finance.get("/admin/rates/pricedraft/add/").content.decode()
    answer = finance.post("/admin/rates/pricedraft/add/", {"document": DOCUMENT, **HISTORY})
    assert answer.status_code == 302, answer.content.decode()
    made = PriceDraft.objects.get()
    assert (made.makers, made.reason) == (["ana"], "new cards")
    page = f"/admin/rates/pricedraft/{made.pk}/change/"
    text = finance.get(page).content.decode()
    assert "price_per_gpu_hour: &#x27;12.0000&#x27;" in text
    edited = DOCUMENT.replace("price_per_gpu_hour: 12", "price_per_gpu_hour: 13")
    assert finance.post(page, {"document": edited, "revision": "1", **HISTORY}).status_code == 302
    made.refresh_from_db()
    assert (made.revision, made.content["gpu"][0]["price_per_gpu_hour"]) == (2, "13.0000")
    assert [step.action for step in made.steps.all()] == ["created", "edited"]
    assert LogEntry.objects.filter(object_id=str(made.pk), user__username="ana").count() == 2
    assert finance.get(f"/admin/rates/pricedraft/{made.pk}/history/").status_code == 200
    late = finance.post(page, {"document": DOCUMENT, "revision": "1", **HISTORY})
    assert "revision: 1 is not the newest" in late.content.decode()


@pytest.mark.parametrize(
    ("document", "reported"),
    [
        (DOCUMENT.replace("12", "twelve"), "gpu[0].price_per_gpu_hour: &#x27;twelve&#x27; must be a number"),
        (DOCUMENT.replace("12", "1_200"), "gpu[0].price_per_gpu_hour: &#x27;1_200&#x27; must be a number"),
        (DOCUMENT.replace("gpu:", "cpu:"), "cpu: is no field of a price version"),
        ("a: [", "document line 1: is no YAML"),
        ("text", "must be a mapping"),
        ("", "This field is required"),
    ],
)
def test_a_bad_document_is_refused_by_field_and_nothing_is_kept(finance: Client, document: str, reported: str) -> None:
    answer = finance.post("/admin/rates/pricedraft/add/", {"document": document, **HISTORY})
    assert answer.status_code == 200
    assert reported in answer.content.decode()
    assert not PriceDraft.objects.exists()


def test_an_edit_takes_a_submitted_draft_back_and_what_was_given_up_stays(finance: Client) -> None:
    made = price_draft_submit(draft=draft(), actor="cem", now=timezone.now())
    page = f"/admin/rates/pricedraft/{made.pk}/change/"
    assert finance.post(page, {"document": DOCUMENT, "revision": "1", **HISTORY}).status_code == 302
    made.refresh_from_db()
    assert (made.state, made.makers) == ("draft", ["cem", "ana"])
    price_draft_withdraw(draft=made, actor="cem", now=timezone.now())
    assert finance.get(page).status_code == 200
    assert 'name="document"' not in finance.get(page).content.decode()
    assert finance.post(page, {"document": DOCUMENT, "revision": "2", **HISTORY}).status_code == 403


@pytest.mark.parametrize("model", ["priceversion", "costsheet", "tokencostsheet", "efficiencypolicy", "pricedraft"])
def test_nothing_is_deleted_and_nothing_published_is_changed(finance: Client, model: str) -> None:
    token_cost_sheet_put(name="llama", inputs=TOKEN_SHEET, actor="ana")
    made = draft()
    objects: dict[str, Any] = {"priceversion": PriceVersion.objects.get(), "pricedraft": made}
    listing = finance.get(f"/admin/rates/{model}/")
    assert listing.status_code == 200
    assert "delete_selected" not in listing.content.decode()
    pk = objects[model].pk if model in objects else 1
    assert finance.post(f"/admin/rates/{model}/{pk}/delete/", {"post": "yes"}).status_code in (302, 403)
    if model in objects:
        assert finance.post(f"/admin/rates/{model}/{pk}/delete/", {"post": "yes"}).status_code == 403
        assert objects[model].__class__.objects.filter(pk=pk).exists()
    if model != "pricedraft":
        assert finance.get(f"/admin/rates/{model}/add/").status_code == 403
    if model == "priceversion":
        page = f"/admin/rates/priceversion/{pk}/change/"
        assert "10.0000" in finance.get(page).content.decode()
        assert finance.post(page, {"name": "other"}).status_code == 403


def test_the_admin_asks_for_the_same_rights_as_every_other_endpoint(finance: Client) -> None:
    made = draft()
    for role, sees, writes in (("viewer", 403, 403), ("auditor", 200, 403), ("approver", 200, 403), ("admin", 200, 200)):
        client = staff(role, role)
        assert client.get("/admin/rates/pricedraft/").status_code == sees, role
        assert client.get("/admin/rates/pricedraft/add/").status_code == writes, role
        assert client.get(f"/admin/rates/pricedraft/{made.pk}/change/").status_code == sees, role
    outside = factories.signed_in(factories.person("clerk", "finance"))
    assert outside.get("/admin/rates/pricedraft/").status_code == 302


def test_nothing_else_can_be_written_through_the_admin(finance: Client) -> None:
    registered = {f"{model._meta.app_label}.{model._meta.model_name}" for model in admin.site._registry}
    assert {name for name in registered if name.startswith("rates.")} == {
        "rates.pricedraft", "rates.priceversion", "rates.costsheet", "rates.tokencostsheet", "rates.efficiencypolicy"
    }  # fmt: skip


def test_people_are_still_looked_after_in_the_admin(finance: Client) -> None:
    root = factories.person("root")
    root.is_staff = root.is_superuser = True
    root.save()
    client = factories.signed_in(root)
    for path in ("", "auth/user/", "auth/user/add/", f"auth/user/{root.pk}/change/", f"auth/user/{root.pk}/password/"):
        assert client.get(f"/admin/{path}").status_code == 200, path
    made = client.post(
        "/admin/auth/user/add/",
        {"username": "new", "password1": "a long pass phrase", "password2": "a long pass phrase", "usable_password": "true",
         "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"},
    )  # fmt: skip
    assert made.status_code == 302
    assert Client().login(username="new", password="a long pass phrase")
