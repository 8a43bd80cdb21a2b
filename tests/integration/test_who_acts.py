"""A person is an account, not a spelling: who closed does not approve as somebody with another capital letter."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.approvals.limits import AuthorityError
from billing.corrections.note_lines import NoteError
from billing.corrections.services.corrections import LineCredit, correction_approve, correction_issue
from billing.invoices.models import Correction, Invoice
from billing.tenancy.app_command import operator
from tests.factories import allocation_record, apply, approves, ingest_allocations, person
from tests.factories.commands import Manage
from tests.factories.corrections import FIRST, bill, draft, issue, people

pytestmark = pytest.mark.django_db
IN_DECEMBER = datetime(2026, 12, 31, 15, 59, tzinfo=UTC)
IN_JANUARY = datetime(2026, 12, 31, 16, 0, tzinfo=UTC)
IN_APRIL = datetime(2027, 3, 31, 16, 0, tzinfo=UTC)
"""Midnight in Shanghai: the new year has begun."""


def usage(gpus: int = 10, **changed: Any) -> None:
    """Ten hours of so many GPUs at 10.0000."""
    end = "2026-10-10T10:00:00Z"
    ingest_allocations(allocation_record(quantity=gpus, ended_at=end, observed_until=end, **changed))


@pytest.mark.parametrize("command", [
    ["invoice_approve", "2026-10"], ["price_version", "approve", "2099-01"], ["credit_note", "approve", "1"],
    ["retroactive_change", "approve", "1"], ["period_reopen", "approve", "2026-10"],
])  # fmt: skip
def test_who_approves_at_a_command_shows_a_token_of_their_own(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A name without an account, an account without a token, and an account with the token of somebody else."""
    apply(tmp_path)

    def refused(by: str) -> str:
        return Manage(capsys)(*command, "--by", by).error

    assert "no active account of that name" in refused("boss")
    boss = person("boss", "approver")
    assert "SUANPAN_TOKEN: must be an API token of boss" in refused("boss")
    approves(monkeypatch, "eve", "approver")
    assert "SUANPAN_TOKEN: must be an API token of boss" in refused("boss")
    approves(monkeypatch, "boss")
    assert "SUANPAN_TOKEN" not in refused("boss")
    boss.is_active = False
    boss.save()
    assert "no active account of that name" in refused("boss")


@pytest.mark.parametrize("command", [["invoice_approve", "2026-10"], ["price_version", "approve", "2099-01"]])
def test_who_approves_at_a_command_has_the_right(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Manage(capsys)(*command, "--by", approves(monkeypatch, "lea", "finance")).error
    assert "this takes an account with the right approve" in refused


def test_a_name_that_is_an_account_but_for_its_spelling_is_that_account(capsys: pytest.CaptureFixture[str]) -> None:
    person("Ann.Lee", "finance")
    assert [operator(name) for name in ("ann.lee", "ANN.LEE ", "Ann.Lee")] == ["Ann.Lee"] * 3
    person("ann.lee")
    assert operator("ann.lee") == "ann.lee"
    with pytest.raises(SystemExit):
        operator("   ")
    assert "must be printable, not blank" in capsys.readouterr().err


def test_a_credit_of_a_year_that_is_over_takes_an_approver_and_stands_in_the_running_one(tmp_path: Path) -> None:
    people()
    apply(tmp_path)
    usage()
    bill()
    small = draft(LineCredit(1, amount=Decimal("10.00")), number=FIRST)
    with pytest.raises(AuthorityError, match="lea may not approve correction"):
        correction_approve(correction_id=small.pk, actor="lea", now=IN_JANUARY)
    assert Correction.objects.get(pk=small.pk).status == "draft"
    (note,) = issue(small, by="head", now=IN_JANUARY)
    issued = Correction.objects.get(pk=small.pk)
    assert (note.number, issued.period and issued.period.month) == ("AI-INFRA-CN-2027-000001", "2027-01")
    another = draft(LineCredit(1, amount=Decimal("10.00")), number=FIRST)
    assert correction_approve(correction_id=another.pk, actor="lea", now=IN_DECEMBER).status == "approved"
    with pytest.raises(NoteError, match="is of a year that is over and no approver agreed to it"):
        correction_issue(correction_id=another.pk, actor="sam", now=IN_JANUARY)
    assert correction_issue(correction_id=another.pk, actor="sam", now=IN_DECEMBER)
    assert Correction.objects.get(pk=another.pk).notes.get().number == "AI-INFRA-CN-2026-000001"


def test_a_fiscal_year_from_april_is_over_in_april_and_numbers_its_documents(
    tmp_path: Path, settings: Any
) -> None:
    """Usage of October 2026, invoiced and credited in January 2027: all of it is in the fiscal year 2027."""
    settings.FISCAL_YEAR_START = 4
    people()
    apply(tmp_path)
    usage()
    bill()
    number = Invoice.objects.get().number
    assert number == "AI-INFRA-2027-000001"
    small = draft(LineCredit(1, amount=Decimal("10.00")), number=number)
    assert correction_approve(correction_id=small.pk, actor="lea", now=IN_JANUARY).status == "approved"
    assert correction_issue(correction_id=small.pk, actor="sam", now=IN_JANUARY)
    assert Correction.objects.get(pk=small.pk).notes.get().number == "AI-INFRA-CN-2027-000001"
    another = draft(LineCredit(1, amount=Decimal("10.00")), number=number)
    with pytest.raises(AuthorityError, match="lea may not approve correction"):
        correction_approve(correction_id=another.pk, actor="lea", now=IN_APRIL)
    (note,) = issue(another, by="head", now=IN_APRIL)
    assert note.number == "AI-INFRA-CN-2028-000001"
