"""An empty installation leads its admin to the first bill, and sees each step as it happens."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from billing.closing.services.closing import period_close
from billing.invoices.services.invoices import invoices_issue
from billing.portal.views.start import Reporter, steps
from billing.tenancy.models import ApiToken, AuditEntry, BillingSetup
from billing.usage.models import AgentWatermark
from billing.usage.services import watermark_advance
from tests import factories
from tests.factories import AFTER, allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record

pytestmark = pytest.mark.django_db
GIVEN = {"currency": "CNY", "zone": "Asia/Shanghai", "issuer": "AI-INFRA", "review": "four-eyes"}
NUMBERS = ["AI-INFRA-2026-000001"]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_every_page_of_an_empty_installation_leads_the_admin_to_the_first_step() -> None:
    admin, lead = factories.signed_in(person("ada", "admin")), factories.signed_in(person("lea", "viewer"))

    for path in ("/overview/", "/spending/", "/invoices/", "/prices/", "/recovery/", "/search/", "/close/"):
        assert 'href="/start/"' in admin.get(path).content.decode(), path
    assert 'href="/start/"' not in lead.get("/overview/").content.decode()
    assert lead.get("/start/").status_code == 403


def test_the_admin_says_who_bills_once() -> None:
    admin = factories.signed_in(person("ada", "admin"))
    assert [step.done for step in admin.get("/start/").context["steps"]] == [False] * 8

    wrong = admin.post("/start/billing/", {**GIVEN, "currency": "yuan", "zone": "Mars/Base", "issuer": "", "review": "no"})
    assert (wrong.status_code, sorted(wrong.context["form"].errors)) == (400, ["currency", "issuer", "review", "zone"])
    assert not BillingSetup.objects.exists()

    assert admin.post("/start/billing/", GIVEN)["Location"] == "/start/"
    setup = BillingSetup.objects.get()
    assert (setup.currency, setup.zone, setup.issuer, setup.review) == ("CNY", "Asia/Shanghai", "AI-INFRA", "four-eyes")
    assert AuditEntry.objects.get(action="billing_setup_put").actor == "ada"
    assert admin.post("/start/billing/", {**GIVEN, "currency": "USD"}).status_code == 409
    assert BillingSetup.objects.get().currency == "CNY"


def test_each_step_is_seen_as_it_happens(tmp_path: Path) -> None:
    now = timezone.now()
    assert [step.name for step in steps(now) if step.done] == []

    apply(tmp_path, price_versions=[], ownership=[], consumers=[], platform=[])
    assert [step.name for step in steps(now) if step.done] == ["billing", "teams"]
    apply(tmp_path)
    assert [step.name for step in steps(now) if step.done] == ["billing", "teams", "owners", "price"]
    ingest_allocations(allocation_record(1))
    ingest_tokens(token_record(1))
    assert [step.name for step in steps(now) if not step.done] == ["close", "invoice"]

    period_close(month="2026-10", actor="fin", now=AFTER)
    assert [step.name for step in steps(now) if not step.done] == ["invoice"]
    invoices_issue(month="2026-10", actor="fin", now=AFTER)
    assert [(step.name, step.facts) for step in steps(now)[6:]] == [("close", ["2026-10"]), ("invoice", NUMBERS)]


def test_the_first_price_list_has_a_row_for_all_that_was_reported_and_starts_at_the_first_usage(tmp_path: Path) -> None:
    apply(tmp_path, price_versions=[])
    ingest_allocations(allocation_record(1))
    ingest_tokens(token_record(1))

    form = factories.signed_in(person("ada", "admin")).get("/prices/drafts/new/").context["form"]
    assert (form.initial["name"], form.initial["valid_from"]) == ("2026-10", datetime(2026, 9, 30, 16, tzinfo=UTC))
    assert [row.initial["gpu_accelerator"] for row in form.gpu if row.initial] == ["NVIDIA-H800"]
    assert [row.initial["tokens_model"] for row in form.tokens if row.initial] == ["llama-3-8b"]


def test_what_needs_a_second_person_says_so_before_and_who_that_may_be(tmp_path: Path) -> None:
    apply(tmp_path, price_versions=[])
    admin = factories.signed_in(person("ada", "admin"))
    text = admin.get("/start/").content.decode()
    assert "Somebody other than its author approves it." in text
    assert "Add a second person with the role Approver" in text
    assert "No second person is needed: a clean close approves the drafts." in text

    person("ben", "approver")
    apply(tmp_path, price_versions=[], billing={**GIVEN})
    text = admin.get("/start/").content.decode()
    assert "Add a second person" not in text
    assert "Four eyes: somebody other than who closed the month approves its drafts." in text


def test_reporters_are_shown_with_their_last_word(tmp_path: Path) -> None:
    apply(tmp_path)
    watermark_advance(agent="a", cluster="hq-1", watermark=AFTER)
    AgentWatermark.objects.update(reported_at=(now := timezone.now()) - timedelta(seconds=12))
    facts = {"digest": "", "prefix": "", "scopes": ["usage:write"]}
    ApiToken.objects.create(name="agent", source="hq-1", **{**facts, "digest": "1"})
    ApiToken.objects.create(name="new", source="litellm-hq", **{**facts, "digest": "2"})
    ApiToken.objects.create(
        name="old", source="gateway-2", last_used_at=now - timedelta(minutes=6), **{**facts, "digest": "3"}
    )

    by_name = {step.name: step for step in steps(now)}
    assert by_name["cluster"].reporters == [Reporter("hq-1", 12, HOUR)]
    assert by_name["gateway"].reporters == [Reporter("gateway-2", 360, DAY), Reporter("litellm-hq", None, DAY)]
    assert [item.silent for item in by_name["gateway"].reporters] == [False, True]
    admin = factories.signed_in(person("ada", "admin"))
    text = admin.get("/start/?part=steps", headers={"HX-Request": "true"}).content.decode()
    assert "cluster hq-1: last heartbeat 1" in text
    assert "gateway gateway-2: last report 6 min ago" in text
    assert "litellm-hq: no report yet" in text
    assert "<html" not in text
