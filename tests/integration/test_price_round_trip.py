"""One list through every door: file, API, portal and admin write the same draft, and all of them show the same version."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from billing.rates.models import PriceDraft
from billing.rates.selectors import rate_card
from billing.tenancy.models import AuditEntry
from billing.tenancy.roles import role_grant
from billing.tenancy.tokens import api_token_create
from tests import factories
from tests.factories import staff
from tests.factories.api import bearer
from tests.factories.commands import Manage, since_2024

pytestmark = pytest.mark.django_db

FILE = """\
price_versions:
- name: 2099-01
  valid_from: '2099-01-01T00:00:00+08:00'
  gpu:
  - accelerator: NVIDIA-H800
    price_per_gpu_hour: '11.0000'
  - resource: nvidia.com/mig-1g.10gb
    price_per_slice_hour: '1.8000'
  tokens:
  - model: llama-3-8b
    input: '2.0000'
    output: '8.0000'
"""


def test_file_api_portal_and_admin_write_one_draft_and_show_one_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.apply(tmp_path, **since_2024())
    manage, path = Manage(capsys), tmp_path / "prices.yaml"
    path.write_text(FILE)

    # the file makes it
    factories.person("ana", "finance")
    manage("price_version", "import", path, "--by", "ana", "--reason", "dearer power")
    assert manage("price_version", "export", "2099-01").out == FILE

    # the API changes the card
    robot = bearer(api_token_create(name="robot", scopes=["prices:write"], actor="tests")[1])
    api = Client()
    shown = api.get("/api/v1/price-versions/2099-01", headers=robot).json()
    assert shown["gpu"] == yaml.safe_load(FILE)["price_versions"][0]["gpu"]
    gpu = [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "11.5"}, shown["gpu"][1]]
    body = json.dumps({"gpu": gpu, "revision": shown["revision"]})
    changed = api.patch("/api/v1/price-versions/2099-01", body, content_type="application/json", headers=robot)
    assert changed.json()["revision"] == 2

    # the portal changes the slice
    draft, portal = PriceDraft.objects.get(), staff("dora", "finance")
    form = portal.get(f"/prices/drafts/{draft.pk}/edit/").context["form"]
    assert [row["gpu_value"].value() for row in form.gpu[:2]] == ["11.5000", "1.8000"]
    with timezone.override("Asia/Shanghai"):  # as on the page
        sent = {name: form[name].value() for name in ("name", "valid_from", "reason", "revision")}
    for rows in (form.gpu, form.tokens):
        sent |= {name: [row[name].value() or "" for row in rows] for name in rows[0].fields}
    sent["gpu_value"][1] = "1.9"
    assert portal.post(f"/prices/drafts/{draft.pk}/edit/", sent).status_code == 302

    # the admin changes the tokens
    page, admin = f"/admin/rates/pricedraft/{draft.pk}/change/", staff("eve", "admin")
    document = admin.get(page).context["adminform"].form.initial["document"]
    assert "price_per_slice_hour: '1.9000'" in document
    edit = {"document": document.replace("'8.0000'", "'9.0000'"), "revision": "3"}
    history = {"steps-TOTAL_FORMS": "0", "steps-INITIAL_FORMS": "0"}
    assert admin.post(page, {**edit, **history}).status_code == 302

    # every door shows the sum of it, and no maker approves
    expected = FILE.replace("11.0000", "11.5000").replace("1.8000", "1.9000").replace("8.0000", "9.0000")
    assert manage("price_version", "export", "2099-01").out == expected
    assert api.get("/api/v1/price-versions/2099-01/file", headers=robot).content.decode() == expected
    assert portal.get(f"/prices/draft-{draft.pk}.yaml").content.decode() == expected
    assert portal.post(f"/prices/drafts/{draft.pk}/submit/").status_code == 302
    for maker in ("ana", "dora", "eve"):
        role_grant(user=User.objects.get(username=maker), role="approver", team=None, actor="tests")
        by = factories.approves(monkeypatch, maker)
        assert "second person" in manage("price_version", "approve", "2099-01", "--by", by).error
    assert staff("ben", "approver").post(f"/prices/drafts/{draft.pk}/approve/", {"reason": "agreed"}).status_code == 302

    # the version is the same list
    assert manage("price_version", "export", "2099-01").out == expected
    version = rate_card().version_at(datetime(2099, 1, 1, tzinfo=UTC))
    assert version is not None
    assert [(price.sku, price.price) for price in version.gpu] == [
        ("NVIDIA-H800", Decimal("11.5000")), ("nvidia.com/mig-1g.10gb", Decimal("1.9000"))
    ]  # fmt: skip
    assert version.tokens == {("llama-3-8b", "input"): Decimal("2.0000"), ("llama-3-8b", "output"): Decimal("9.0000")}

    # a new draft from its file, under another name, is the same list again
    path.write_text(expected.replace("2099-01\n", "2099-02\n").replace("'2099-01-01", "'2099-02-01"))
    manage("price_version", "import", path, "--by", "ana")
    prices = json.loads(manage("price_version", "diff", "2099-02", "--json").out)["prices"]
    assert [price["change"] for price in prices] == ["same"] * 4

    # the audit log names everybody
    reported = AuditEntry.objects.filter(subject="2099-01", action__startswith="price_").order_by("id")
    assert [(entry.actor, entry.action) for entry in reported] == [
        ("ana", "price_draft_created"), ("token:robot", "price_draft_edited"), ("dora", "price_draft_edited"),
        ("eve", "price_draft_edited"), ("dora", "price_draft_submitted"), ("ben", "price_version_publish"),
        ("ben", "price_draft_approved"),
    ]  # fmt: skip
    approval = reported.last()
    assert approval is not None
    assert approval.detail["makers"] == ["ana", "token:robot", "dora", "eve"]
    assert approval.detail["reason"] == "agreed"
