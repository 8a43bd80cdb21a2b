"""A team of a closed month whose stored facts can no longer be rated: readers go on for the others, and name it.

October is closed and issued: nlp held 8 H800 for 9,433 s at 10.0000 (209.62), cv for an hour (80.00) with a reward of 10 %
(-8.00). Then a row of cv goes bad, as in `test_team_faults`.
"""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.closing.services.showback import billing_mode_put
from billing.corrections.effect import effect_of
from billing.corrections.services.proof import ClosedPeriodError, closed_periods_check, period_verify
from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.exports.services.focus import UnexplainedError, focus_export
from billing.invoices.models import Note
from billing.invoices.selectors import period_of
from billing.portal.statements import month_statements
from billing.rating.models import RetroactiveChange
from billing.rating.services.changes import ChangeError
from billing.tenancy.models import Team
from tests import factories
from tests.factories import signed_in
from tests.factories.corrections import bill, people
from tests.factories.team_faults import MONTH, NOT_A_NUMBER, OVER, committed_is, measured_is, two_teams

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
IN_NOVEMBER = datetime(2026, 11, 9, tzinfo=UTC)
HOURS = {"name": "cv-2026", "team": "cv", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "10",
         "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01"}  # fmt: skip


def billed(directory: Path, **changed: Any) -> None:
    people()
    two_teams(directory, **changed)
    bill(MONTH, OVER)


def cheaper() -> RetroactiveChange:
    """H800 at 9.5 in all of October."""
    return retroactive_propose(
        kind="price", name="fix", fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": "9.5"}]}, evidence="INC-17",
        valid_from=datetime(2026, 9, 30, 16, tzinfo=UTC), valid_until=None, reason="the list price was 9.5", actor="sam",
        now=IN_NOVEMBER,
    )  # fmt: skip


def moves(change: RetroactiveChange) -> list[tuple[str, Decimal, Decimal]]:
    return [(row.team, row.charged, row.should_be) for row in effect_of(change).by_team_and_month()]


def page_of(path: str, name: str, role: str, **facts: str) -> str:
    return signed_in(factories.person(name, role, **facts)).get(path).content.decode()


def test_a_change_reports_what_it_moves_of_the_others_and_waits_for_the_team_that_cannot_be_rated(tmp_path: Path) -> None:
    billed(tmp_path)
    change = cheaper()
    # 8 x 9,433 s = 20.962222 h at 9.5; 8 h at 9.5, of which 10 % are paid back
    whole = [("cv", Decimal("72.00"), Decimal("68.40")), ("nlp", Decimal("209.62"), Decimal("199.14"))]
    assert moves(change) == whole
    measured_is("NaN")
    assert moves(change) == whole[1:]
    assert effect_of(change).unrated == {"cv": NOT_A_NUMBER}
    with pytest.raises(ChangeError, match=f"unknown of teams that cannot be rated: cv: {NOT_A_NUMBER}"):
        retroactive_approve(change_id=change.pk, actor="fin", now=IN_NOVEMBER)
    assert not Note.objects.exists()
    measured_is("0.55")
    assert moves(change) == whole
    retroactive_approve(change_id=change.pk, actor="fin", now=IN_NOVEMBER)
    assert sum(note.total for note in Note.objects.all()) == Decimal("-14.08")


def test_the_page_and_the_command_name_the_team_to_those_who_may_see_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    billed(tmp_path)
    change = cheaper()
    measured_is("NaN")
    finance = page_of("/corrections/changes/", "hal", "finance")
    assert ("199.14" in finance, "cv: what it is charged" in finance, NOT_A_NUMBER in finance) == (True, True, True)
    nlp = page_of("/corrections/changes/", "ann", "viewer", team="nlp")
    assert ("199.14" in nlp, "is unknown" in nlp) == (True, False)
    cv = page_of("/corrections/changes/", "bob", "viewer", team="cv")
    assert ("199.14" in cv, "cv: what it is charged is unknown" in cv, "It changes no charge" in cv) == (False, True, False)
    call_command("retroactive_change", "show", str(change.pk))
    printed = capsys.readouterr().out
    assert f"cv cannot be rated, what moves of it is unknown: {NOT_A_NUMBER}" in printed
    assert "199.14" in printed


def test_where_others_pay_by_what_the_team_is_charged_nothing_is_reported_of_a_change(tmp_path: Path) -> None:
    shared = {"name": "all-v1", "valid_from": "2026-10-01",
              "shared": [{"name": "registry", "amount_per_month": "99.99", "method": "proportional"}]}  # fmt: skip
    billed(tmp_path, allocation_policies=[shared])
    change = cheaper()
    measured_is("NaN")
    effect = effect_of(change)
    assert (effect.by_team_and_month(), effect.unrated, effect.entangled) == ([], {"cv": NOT_A_NUMBER}, True)
    proofs = {proof.team: (proof.holds, proof.recomputed) for proof in period_verify(month=MONTH, usage=False)}
    assert proofs == {
        "cv": (False, f"cannot be rated: {NOT_A_NUMBER}"), "nlp": (False, "hangs on teams that cannot be rated")
    }  # fmt: skip


def test_documents_of_others_are_proven_and_that_of_the_team_says_why_it_is_not(tmp_path: Path) -> None:
    billed(tmp_path)
    measured_is("NaN")
    proofs = {proof.team: proof for proof in period_verify(month=MONTH, usage=False)}
    assert proofs["nlp"].holds
    assert (proofs["cv"].holds, proofs["cv"].recomputed) == (False, f"cannot be rated: {NOT_A_NUMBER}")
    printed = f"2026-10 is closed, and teams of it cannot be rated again: cv: {NOT_A_NUMBER}"
    with pytest.raises(ClosedPeriodError, match=printed):
        closed_periods_check(thorough=True)


def test_the_line_of_another_team_is_drilled_down_to_its_jobs(tmp_path: Path) -> None:
    billed(tmp_path, commitments=[HOURS])
    measured_is("NaN")
    committed_is("NaN")
    (statement,) = month_statements(period_of(MONTH), Team.objects.filter(code="nlp")).statements
    (line,) = statement.lines
    answer = signed_in(factories.person("ann", "viewer", team="nlp")).get(f"/teams/nlp/lines/{line.digest}/?month={MONTH}")
    page = answer.content.decode()
    assert (answer.status_code, "pod/uid-1" in page or "uid-1" in page, "209.62" in page) == (200, True, True)


def test_an_export_by_hour_names_the_team_whose_lines_it_cannot_explain(tmp_path: Path) -> None:
    billed(tmp_path, commitments=[HOURS])
    committed_is("NaN")
    with pytest.raises(UnexplainedError, match=f"no longer follows.*team cv cannot be rated: .*{NOT_A_NUMBER}"):
        focus_export(month=MONTH, directory=tmp_path / "focus")
    assert not list((tmp_path / "focus").glob("*"))


@pytest.mark.parametrize("broken", [lambda: measured_is("NaN"), lambda: committed_is("NaN")])
def test_an_export_by_hour_goes_on_without_a_team_that_is_in_no_document(tmp_path: Path, broken: Any) -> None:
    """cv is only shown what it would pay; nlp pays half of the registry, a line whose hours are asked of rating."""
    people()
    shared = {"name": "all-v1", "valid_from": "2026-10-01",
              "shared": [{"name": "registry", "amount_per_month": "100.00", "method": "fixed",
                          "shares": {"nlp": "0.5", "cv": "0.5"}}]}  # fmt: skip
    two_teams(tmp_path, commitments=[HOURS], allocation_policies=[shared])
    billing_mode_put(team="cv", from_month=MONTH, mode="shadow", reason="first", actor="fin", now=OVER)
    bill(MONTH, OVER)
    broken()
    exported = focus_export(month=MONTH, directory=tmp_path / "focus")
    assert (exported.invoices, exported.billed_cost) == (1, Decimal("259.62"))
