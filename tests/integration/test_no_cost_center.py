"""A team without a cost centre is named before anything is issued: the journal would refuse its documents.

nlp held 8 H800 for 9,433 s at 10.0000: 209.62; cv the same.
"""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.report import build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.showback import billing_mode_put
from billing.closing.services.waivers import exception_waive
from billing.exports.journal import Chart, JournalError
from billing.exports.services.journal import journal_export
from billing.invoices.selectors import period_of
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import period_open
from billing.tenancy.models import BillingSetup
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations
from tests.factories.corrections import people

pytestmark = pytest.mark.django_db
MONTH, OVER = "2026-10", datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
CHARGED = Decimal("209.62")


def scenario(directory: Path, *, used: bool = True, **billing: Any) -> None:
    people()
    first, *others = SET_UP["teams"]
    apply(directory, billing={**SET_UP["billing"], **billing}, teams=[{**first, "cost_center": ""}, *others])
    ingest_allocations(allocation_record(2, namespace="cv"), *([allocation_record(1)] if used else []))


def named() -> list[tuple[str, Decimal | None, bool]]:
    report = build_report(period_of(MONTH), now=OVER)
    return [(item.subject, item.amount, item.blocks) for item in report.exceptions if item.kind == "no_cost_center"]


def close() -> None:
    period_close(month=MONTH, actor="ops", now=OVER)


def test_the_report_names_it_with_its_amount_until_a_journal_has_posted_its_invoice(tmp_path: Path) -> None:
    scenario(tmp_path)
    assert named() == [("nlp", CHARGED, False)]
    close()
    assert named() == [("nlp", CHARGED, False)]
    invoices_issue(month=MONTH, actor="fin", now=OVER)
    assert named() == [("nlp", CHARGED, False)]
    out = {"month": MONTH, "path": tmp_path / "journal.csv", "exported_by": "fin", "now": OVER}
    with pytest.raises(JournalError, match="team nlp has no cost centre"):
        journal_export(chart=Chart(), **out)
    journal_export(chart=Chart(cost_centers={"nlp": "CC-210"}), **out)
    assert named() == []


def test_where_cost_centres_are_required_it_blocks_until_it_has_one_or_finance_waives_it(tmp_path: Path) -> None:
    scenario(tmp_path, cost_center_required="true")
    assert named() == [("nlp", CHARGED, True)]
    with pytest.raises(CloseRefusedError, match="1 exception blocks it"):
        close()
    waiver = {"kind": "no_cost_center", "subject": "nlp", "reason": "named in the chart", "actor": "fin"}
    exception_waive(period=period_open(month=MONTH), now=OVER, **waiver)
    close()


def test_with_a_cost_centre_nothing_is_reported(tmp_path: Path) -> None:
    scenario(tmp_path, cost_center_required="true")
    apply(tmp_path, billing={**SET_UP["billing"], "cost_center_required": "true"})
    assert named() == []
    close()
    assert named() == []


def test_a_team_that_owes_nothing_or_is_only_shown_its_use_needs_none(tmp_path: Path) -> None:
    scenario(tmp_path, used=False)
    assert named() == []
    ingest_allocations(allocation_record(1))
    billing_mode_put(team="nlp", from_month=MONTH, mode="shadow", reason="not yet", actor="fin", now=OVER)
    assert named() == []
    close()
    assert named() == []


def test_the_setting_is_a_flag_and_off_unless_set(tmp_path: Path) -> None:
    scenario(tmp_path)
    assert not BillingSetup.objects.get().cost_center_required
    apply(tmp_path, billing={**SET_UP["billing"], "cost_center_required": "true"})
    assert BillingSetup.objects.get().cost_center_required
