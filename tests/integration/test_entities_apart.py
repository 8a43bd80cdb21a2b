"""A team of another legal entity than the issuer has no place among internal invoices: the close waits for a decision.

nlp held 8 H800 for 9,433 s at 10.0000: 209.62; cv the same.
"""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.report import Report, build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.showback import billing_mode_put
from billing.closing.services.waivers import exception_waive
from billing.invoices.models import Invoice
from billing.invoices.selectors import period_of
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import period_open
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations
from tests.factories.corrections import people

pytestmark = pytest.mark.django_db
MONTH, OVER = "2026-10", datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
ISSUER, OTHER = "Example Cloud Ltd", "Example Research Ltd"


def scenario(directory: Path, *, issuer: str = ISSUER, nlp: str = OTHER, used: bool = True) -> None:
    first, *others = SET_UP["teams"]
    people()
    apply(
        directory, billing={**SET_UP["billing"], "legal_entity": issuer}, teams=[{**first, "legal_entity": nlp}, *others]
    )
    ingest_allocations(allocation_record(2, namespace="cv"), *([allocation_record(1)] if used else []))


def close() -> None:
    period_close(month=MONTH, actor="ops", now=OVER)


def report() -> Report:
    return build_report(period_of(MONTH), now=OVER, thorough=False)


def test_its_charges_block_the_close_and_the_report_says_what_to_do(tmp_path: Path) -> None:
    scenario(tmp_path)
    with pytest.raises(CloseRefusedError, match="1 exception blocks it") as refused:
        close()
    for found in (refused.value.report, report()):
        (item,) = found.blocking
        assert (item.kind, item.subject, item.amount) == ("other_legal_entity", "nlp", Decimal("209.62"))
        assert item.action == f"belongs to {OTHER}: show it what it used (mode shadow) and have the ERP invoice it"
    assert not Invoice.objects.exists()


def test_shown_what_it_used_it_gets_no_internal_invoice_and_the_others_do(tmp_path: Path) -> None:
    scenario(tmp_path)
    billing_mode_put(team="nlp", from_month=MONTH, mode="shadow", reason="another company", actor="fin", now=OVER)
    close()
    invoices_issue(month=MONTH, actor="fin", now=OVER)
    found = Invoice.objects.order_by("team__code").values_list("team__code", "shadow", "status", "total")
    assert list(found) == [
        ("cv", False, "issued", Decimal("209.62")), ("nlp", True, "preview", Decimal("209.62")),
    ]  # fmt: skip


def test_finance_may_answer_for_it(tmp_path: Path) -> None:
    scenario(tmp_path)
    exception_waive(
        period=period_open(month=MONTH), kind="other_legal_entity", subject="nlp", reason="one tax group", actor="fin",
        now=OVER,
    )  # fmt: skip
    close()
    document = Invoice.objects.get(team__code="nlp").draft
    assert (document["issuer"]["legal_entity"], document["recipient"]["legal_entity"]) == (ISSUER, OTHER)
    assert not [item for item in report().exceptions if item.kind == "other_legal_entity"]


@pytest.mark.parametrize(
    "facts",
    [{"nlp": "example  cloud LTD"}, {"nlp": ""}, {"issuer": ""}, {"used": False}],
    ids=["the same in other letters", "not said of the team", "not said of the issuer", "nothing used"],
)
def test_nobody_else_is_held(tmp_path: Path, facts: dict[str, Any]) -> None:
    scenario(tmp_path, **facts)
    close()
    assert Invoice.objects.count() == (1 if "used" in facts else 2)
