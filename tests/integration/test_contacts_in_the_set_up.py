"""Billing contacts are declared in the set-up file, printed as they are declared, and ended ones are not written to."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from billing.invoices.models import BillingContact, DocumentMail
from billing.invoices.services.mails import contact_end
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry, Team
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.corrections import bill

pytestmark = pytest.mark.django_db
LI = {"team": "nlp", "name": "李娜", "address": "Li.Na@example.org", "language": "zh-hans", "valid_from": "2026-10-01"}
DESK = {"team": "nlp", "address": "desk@example.org", "language": "en"}


def known() -> list[tuple[Any, ...]]:
    fields = ("address", "name", "language", "valid_from", "valid_until")
    return list(BillingContact.objects.order_by("address", "valid_from").values_list(*fields))


def test_contacts_are_declared_once_and_changed_by_the_file(tmp_path: Path) -> None:
    first = apply(tmp_path, contacts=[LI, DESK])
    assert [change for change in first.changes if change.startswith("contact")] == [
        "contact Li.Na@example.org of nlp: 李娜, zh-hans", "contact desk@example.org of nlp: (no name), en",
    ]  # fmt: skip
    assert known() == [
        ("desk@example.org", "", "en", date(2000, 1, 1), None),
        ("li.na@example.org", "李娜", "zh-hans", date(2026, 10, 1), None),
    ]  # fmt: skip
    assert apply(tmp_path, contacts=[LI, DESK]).changes == []
    apply(tmp_path, contacts=[{**LI, "language": "en", "valid_until": "2026-11-01"}])
    assert known()[1] == ("li.na@example.org", "李娜", "en", date(2026, 10, 1), date(2026, 11, 1))
    entry = AuditEntry.objects.get(action="billing_contact_put")
    assert entry.detail == {
        "address": "li.na@example.org", "before": {"name": "李娜", "language": "zh-hans", "valid_until": None},
        "after": {"name": "李娜", "language": "en", "valid_until": "2026-11-01"},
    }  # fmt: skip
    apply(tmp_path, contacts=[{**LI, "valid_from": "2026-12-01"}])
    assert [row[3] for row in known() if row[0] == "li.na@example.org"] == [date(2026, 10, 1), date(2026, 12, 1)]


def test_who_was_ended_on_the_page_is_not_written_to_again_by_the_file(tmp_path: Path) -> None:
    apply(tmp_path, contacts=[LI])
    contact_end(contact_id=BillingContact.objects.get().pk, until=date(2026, 10, 20), actor="sam")
    with pytest.raises(SetUpFileError, match=r"li\.na@example\.org ended as a contact of nlp on 2026-10-20"):
        apply(tmp_path, contacts=[LI])
    assert apply(tmp_path, contacts=[{**LI, "valid_until": "2026-10-20"}]).changes == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"address": "nobody"}, r"contacts\[0\].address.*is not a mail address"),
        ({"language": "fr"}, "language.*one of zh-hans, en"),
        ({"team": "nope"}, "'nope' is not declared under `teams:`"),
        ({"valid_from": "soon"}, "valid_from.*'soon' must be a day such as 2026-10-01"),
        ({"valid_until": "2026-09-01"}, "valid_until 2026-09-01: lies before valid_from 2026-10-01"),
        ({"phone": "1"}, "phone"),
    ],
)
def test_a_contact_that_is_none_is_refused_by_name_and_nothing_is_kept(
    tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    with pytest.raises(SetUpFileError, match=said):
        apply(tmp_path, contacts=[LI | changed])
    assert not Team.objects.exists()


def test_what_the_command_prints_is_what_apply_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply(tmp_path, contacts=[LI, {**DESK, "valid_until": "2027-01-01"}])
    call_command("contacts")
    printed = yaml.safe_load(capsys.readouterr().out)
    assert {contact["name"] for contact in printed["contacts"] if "name" in contact} == {"李娜"}
    assert apply(tmp_path, **printed).changes == []
    before = known()
    BillingContact.objects.all().delete()
    apply(tmp_path, **printed)
    assert known() == before
    call_command("contacts", "--json")
    assert [row["valid_until"] for row in json.loads(capsys.readouterr().out)["contacts"]] == [None, "2027-01-01"]


def test_a_declared_contact_gets_the_documents_that_are_issued(tmp_path: Path) -> None:
    apply(tmp_path, contacts=[LI, {**DESK, "valid_until": "2026-11-01"}])
    ingest_allocations(allocation_record())
    bill(now=datetime(2026, 11, 1, 0, 5, tzinfo=UTC))
    assert list(DocumentMail.objects.values_list("address", "language")) == [("li.na@example.org", "zh-hans")]
