"""Whoever takes data away, and from where a token is used, is in the audit log; a report of usage makes no entry."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.core.management import call_command, get_commands
from django.test import Client

import billing
from billing.tenancy.models import ApiToken, AuditEntry, TokenAddress
from billing.tenancy.token_addresses import token_address_note
from billing.tenancy.tokens import api_token_create
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in, token_record
from tests.factories.corrections import bill

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 11, 4, 12, tzinfo=UTC)
PACKAGE = Path(billing.__file__).parent
EXPORTS = {"backup", "export_focus", "export_invoices", "export_journal"}
WRITES = {
    "account_create", "accrual", "apply", "credit_note", "exception_waive", "gpu_share", "import_usage", "invoice_approve",
    "invoice_issue", "meter_reading", "period_close", "period_reopen", "price_version", "quarantine", "retroactive_change",
    "role", "token_create", "token_revoke", "token_store", "usage_drop", "usage_partition", "usage_restore", "usage_seal",
}  # fmt: skip
"""Their services write the audit log, or (import_usage) the ledger, which only grows."""
READS = {
    "audit_verify", "budget_counter", "capacity", "contacts", "invoice", "period_recount", "period_report", "period_verify",
    "restore_check",
}  # fmt: skip
"""They print, or prove; `contacts` its section of the set-up file."""
OF_ONE_MACHINE = {"demo", "migrate", "up"}
ATTACHMENT = re.compile(r"attachment; filename")


def exports() -> list[tuple[str, str]]:
    return list(AuditEntry.objects.filter(action="export").order_by("pk").values_list("actor", "subject"))


@pytest.fixture
def issued(tmp_path: Path) -> None:
    """October 2026: two teams, 209.62 each, issued."""

    apply(tmp_path)
    ingest_allocations(allocation_record(), allocation_record(2, namespace="cv"))
    bill("2026-10", NOW)


@pytest.fixture
def finance() -> Client:
    return signed_in(User.objects.create_superuser("ada"))


def test_somebody_has_decided_about_every_command() -> None:
    ours = {name for name, app in get_commands().items() if str(app).startswith("billing.")}
    assert ours == EXPORTS | WRITES | READS | OF_ONE_MACHINE
    assert len(ours) == sum(map(len, (EXPORTS, WRITES, READS, OF_ONE_MACHINE)))


def test_each_command_that_exports_notes_who_took_what(issued: None, tmp_path: Path) -> None:
    person("lin", "finance")
    call_command("export_focus", "2026-10", "--out", str(tmp_path / "focus"), "--by", "lin")
    call_command("export_invoices", "2026-10", "--out", str(tmp_path / "invoices"), "--by", "lin")
    for _ in range(2):
        call_command("export_journal", "2026-10", "--out", str(tmp_path / "journal.csv"), "--by", "lin")
    call_command("backup", "--out", str(tmp_path / "b.dump"), "--by", "lin")
    assert exports() == [
        ("lin", "focus 2026-10"), ("lin", "invoices 2026-10"), ("lin", "journal 2026-10"), ("lin", "journal 2026-10"),
    ]  # fmt: skip
    assert AuditEntry.objects.get(action="backup_take").actor == "lin"
    detail = AuditEntry.objects.get(subject="invoices 2026-10", action="export").detail
    assert (detail["invoices"], detail["files"], detail["acting"]["channel"]) == (2, 8, "command")


def test_every_file_that_a_page_or_the_api_gives_is_noted(issued: None, finance: Client) -> None:
    from billing.invoices.models import Invoice

    invoice = Invoice.objects.get(team__code="nlp")
    for path in (
        f"/invoices/{invoice.pk}/download.csv", "/invoices/?table=invoices&as=csv", f"/api/v1/invoices/{invoice.number}.csv",
    ):  # fmt: skip
        assert ATTACHMENT.match(finance.get(path).headers["Content-Disposition"]), path
    assert finance.get("/invoices/").status_code == finance.head("/invoices/?table=invoices&as=csv").status_code == 200
    assert exports() == [
        ("ada", f"/invoices/{invoice.pk}/download.csv"), ("ada", "/invoices/"),
        ("ada", f"/api/v1/invoices/{invoice.number}.csv"),
    ]  # fmt: skip
    assert AuditEntry.objects.get(subject="/invoices/").detail["query"] == "table=invoices&as=csv"


def test_an_answer_that_is_a_file_is_sent_as_one() -> None:
    """What is not sent as an attachment would not be noted: no other answer has the type of a file."""
    found = {}
    for path in PACKAGE.glob("**/*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"HttpResponse\([^)]*(yaml|csv|pdf|xlsx)", text) and "attachment" not in text:
            found[path.name] = text
    assert found == {}


def test_reading_focus_page_by_page_is_one_export(issued: None, finance: Client) -> None:
    for page in (1, 2):
        assert finance.get(f"/api/v1/focus/2026-10?page_size=1&page={page}").status_code == 200
    assert exports() == [("ada", "focus 2026-10")]


# --- tokens ------------------------------------------------------------------------------------------------------------


def reported(secret: str, number: int, address: str) -> int:
    client = Client(REMOTE_ADDR=address, headers={"Authorization": f"Bearer {secret}"})
    body = {"records": [token_record(number)]}
    return client.post("/api/v1/usage/tokens", body, content_type="application/json").status_code


def first_uses() -> list[str]:
    found = AuditEntry.objects.filter(action="api_token_first_use").order_by("pk")
    return [f"{entry.actor} {entry.subject} {entry.detail['address']}" for entry in found]


def test_the_first_use_of_a_token_from_an_address_is_noted_and_no_report_after_it(tmp_path: Path) -> None:
    apply(tmp_path)
    _, secret = api_token_create(name="gateway", scopes=["usage:write"], actor="ada")
    addresses = ("10.0.0.1", "10.0.0.1", "10.9.9.9", "10.0.0.1")
    assert [reported(secret, number, address) for number, address in enumerate(addresses)] == [200] * 4
    assert first_uses() == ["token:gateway gateway 10.0.0.1", "token:gateway gateway 10.9.9.9"]


def noted(token: ApiToken, address: str, day: int, **further: Any) -> None:
    token_address_note(token=token, meta={"REMOTE_ADDR": address, **further}, now=NOW + timedelta(days=day))


def test_an_address_is_new_once_and_of_very_many_twenty_a_day_are_noted() -> None:
    token, _ = api_token_create(name="gateway", scopes=["usage:write"], actor="ada")
    for day in (0, 1, 40):
        noted(token, "10.0.0.1", day)
    assert first_uses() == ["token:gateway gateway 10.0.0.1"]
    for number in range(30):
        noted(token, f"10.1.0.{number}", 41)
    assert len(first_uses()) == TokenAddress.objects.count() == 1 + 20
    noted(token, "10.1.0.29", 42)
    assert first_uses()[-1] == "token:gateway gateway 10.1.0.29"


def test_behind_a_proxy_the_address_is_that_of_the_client(settings: Any) -> None:
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    token, _ = api_token_create(name="gateway", scopes=["usage:write"], actor="ada")
    noted(token, "10.0.0.1", 0, HTTP_X_FORWARDED_FOR="192.0.2.7, 198.51.100.4")
    assert first_uses() == ["token:gateway gateway 198.51.100.4"]


# --- accounts ------------------------------------------------------------------------------------------------------------


def test_links_second_factors_and_addresses_are_noted_whoever_writes_them_and_show_no_secret() -> None:
    person = User.objects.create_user("lin", password="a-long-secret")
    before = AuditEntry.objects.latest("pk").pk
    link = SocialAccount.objects.create(user=person, provider="oidc", uid="4711", extra_data={"claim": "hidden-word"})
    SocialAccount.objects.filter(pk=link.pk).update(extra_data={"claim": "hidden-word 2"})
    factor = Authenticator.objects.create(user=person, type="totp", data={"secret": "hidden-word"})
    EmailAddress.objects.create(user=person, email="lin@example.org", verified=True)
    factor.delete()
    found = list(AuditEntry.objects.filter(pk__gt=before).order_by("pk"))
    assert [(entry.action, entry.subject.split()[0]) for entry in found] == [
        ("row_insert", "socialaccount_socialaccount"), ("row_insert", "mfa_authenticator"),
        ("row_insert", "account_emailaddress"), ("row_delete", "mfa_authenticator"),
    ]  # fmt: skip
    assert found[0].detail["after"]["uid"] == "4711"
    assert "hidden-word" not in str([entry.detail for entry in found])
