"""A team whose stored facts make rating raise is held with what was raised; the others are billed, then it is, alone.

cv ran one job of 8 H800 for an hour at 10.0000 (80.00), measured at an MFU of 0.55: a reward of 10 % (-8.00). nlp held 8
for 9,433 s (209.62). What breaks cv is a row that no door takes in and PostgreSQL stores: a measured MFU, or committed
hours, that are not a number.
"""

import logging
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test import Client

from billing.budgets.models import BudgetStatus, Channel
from billing.budgets.services import standings_refresh
from billing.closing.models import BlockedTeam
from billing.closing.price_preview import month_effect
from billing.closing.report import build_report
from billing.closing.services import closing
from billing.closing.services.accrual import accrual_make
from billing.closing.services.closing import CloseRefusedError, TeamsBlockedError, period_close
from billing.closing.services.snapshots import month_assess
from billing.corrections.services.proof import period_verify
from billing.explorer.services import cubes_refresh
from billing.explorer.services.reports import reports_send
from billing.explorer.services.saved_views import report_put, view_put
from billing.exports.journal import Chart
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.selectors import period_of
from billing.invoices.services.invoices import invoices_issue
from billing.rating.models import Charge, EfficiencyVerdict
from billing.tenancy.models import AuditEntry
from pricing.rate_card import GpuPrice, PriceVersion
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, signed_in, token_record
from tests.factories.closing import close
from tests.factories.efficiency import BANDS, job
from tests.factories.team_faults import (
    MONTH,
    NOT_A_NUMBER,
    OVER,
    as_a_fault_of_the_disk,
    committed_is,
    measured_is,
    two_teams,
)
from tests.receivers import webhook

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
LATER = datetime(2026, 11, 2, 0, 5, tzinfo=UTC)


def period() -> BillingPeriod:
    return BillingPeriod.objects.get(month=MONTH)


def lines(team: str) -> list[tuple[str, str]]:
    found = Invoice.objects.get(team__code=team, period__month=MONTH)
    return [(line["kind"], line["amount"]) for line in found.draft["lines"]]


def test_a_team_that_cannot_be_rated_is_held_with_what_was_raised_and_the_others_are_billed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two_teams(tmp_path)
    measured_is("NaN")
    with pytest.raises(
        TeamsBlockedError, match=f"1 of its teams cannot be billed, 1 invoices of others.*cv: {NOT_A_NUMBER}"
    ):
        close()
    assert (period().status, lines("nlp")) == ("closing", [("gpu", "209.62")])
    assert set(Charge.objects.values_list("team", flat=True)) == {"nlp"}
    (held,) = BlockedTeam.objects.all()
    assert (held.team, held.problem, held.amount) == ("cv", NOT_A_NUMBER, None)
    assert AuditEntry.objects.get(action="period_hold").detail == {"cv": NOT_A_NUMBER}
    (logged,) = [record for record in caplog.records if record.name == "billing.rating.team_isolation"]
    assert (logged.levelno, logged.getMessage()) == (logging.ERROR, "cannot be rated: team cv")
    assert logged.exc_info is not None
    assert logged.exc_info[0] is ValueError
    assert b"\nsuanpan_teams_held 1.0\n" in Client().get("/metrics").content


def test_the_report_and_the_page_name_the_team_the_problem_and_what_solves_it(tmp_path: Path) -> None:
    two_teams(tmp_path)
    measured_is("NaN")
    before = build_report(period_of(MONTH), now=LATER)
    (reported,) = before.exceptions
    assert (reported.kind, reported.subject, reported.action, reported.blocks) == ("team_unrated", "cv", NOT_A_NUMBER, False)
    assert before.closable
    with pytest.raises(TeamsBlockedError):
        close()
    report = build_report(period(), now=LATER)
    (item,) = report.exceptions
    assert (item.kind, item.subject, item.action, item.blocks) == ("team_held", "cv", NOT_A_NUMBER, True)
    assert str(item.facts.solution) == "Repair what the message names, then close again"
    assert all(check.ok for check in report.checks)
    # 8 for 9,433 s and 8 for an hour are charged, sooner or later
    assert report.gpu_seconds["charged"] == 8 * 9_433 + 8 * 3_600
    client = signed_in(factories.person("fin", "finance"))
    page = client.get(f"/close/?month={MONTH}").content.decode()
    assert "Team that cannot be billed" in page
    assert NOT_A_NUMBER in page
    assert "Repair what the message names, then close again" in page


def test_pages_of_others_go_on_and_say_who_is_missing_in_them(tmp_path: Path) -> None:
    two_teams(tmp_path)
    measured_is("NaN")
    finance = signed_in(factories.person("fin", "finance"))
    nlp, cv = (signed_in(factories.person(team, "viewer", team=team)) for team in ("nlp", "cv"))
    reported = "cv: what it is charged is unknown, and in no amount of this page."
    overview = finance.get(f"/?month={MONTH}").content.decode()
    assert ("209.62" in overview, reported in overview, NOT_A_NUMBER in overview) == (True, True, True)
    own = nlp.get(f"/teams/nlp/?month={MONTH}").content.decode()
    assert ("209.62" in own, "is unknown" in own) == (True, False)
    assert reported in cv.get(f"/teams/cv/?month={MONTH}").content.decode()
    explored = [client.get(f"/explorer/?month={MONTH}").content.decode() for client in (finance, cv, nlp)]
    assert [(reported in page, NOT_A_NUMBER in page) for page in explored] == [(True, True), (True, True), (False, False)]


@pytest.mark.parametrize("month", [MONTH, "2026-11"])
def test_a_month_that_lacks_a_team_is_compared_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, month: str
) -> None:
    """nlp uses devices in September, October and November; cv cannot be rated in October, whose change nobody knows."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: datetime(2026, 12, 2, 4, tzinfo=UTC))
    two_teams(tmp_path)
    every = [f"2026-{month:02d}-10T0{hour}:00:00Z" for month in (9, 11) for hour in (0, 1)]
    ingest_allocations(*(
        allocation_record(number, started_at=start, ended_at=end, observed_until=end)
        for number, (start, end) in enumerate([every[:2], every[2:]], start=7)
    ))  # fmt: skip
    measured_is("NaN")
    client = signed_in(factories.person("fin", "finance"))
    for page in ("spending", "explorer"):
        assert "Nothing to compare with" in client.get(f"/{page}/?month={month}&part=why").content.decode()
    answer = client.get(f"/api/v1/explore?month={month}").json()
    assert (answer["compared"], answer["total"]["before"]) == (None, None)
    others = client.get(f"/api/v1/explore?month={month}&team=nlp").json()
    assert others["compared"] is not None


def test_a_report_and_the_api_say_who_is_in_none_of_their_figures(tmp_path: Path) -> None:
    """Without cv the month is 209.62; who may not see cv is not told of it."""
    two_teams(tmp_path)
    measured_is("NaN")
    finance, lead = factories.person("fin", "finance"), factories.person("tom", "lead", team="nlp")
    answer = signed_in(finance).get(f"/api/v1/explore?month={MONTH}&by=team").json()
    assert (answer["total"]["total"], answer["unrated"]) == ("209.62", ["cv"])
    assert signed_in(lead).get(f"/api/v1/explore?month={MONTH}&by=team").json()["unrated"] == []
    with webhook() as hook:
        report_put(
            view=view_put(owner=finance, name="Months", query=f"month={MONTH}", actor="fin"), cadence="daily", hour=8,
            actor="fin", channel=Channel.objects.create(name="all", url=hook.url, language="en"), now=OVER,
            zone="Asia/Shanghai",
        )  # fmt: skip
        assert reports_send(now=LATER) == 1
    lines = hook.messages[0]["message"].splitlines()
    assert "Cost: 209.62 CNY (so far)" in lines
    assert "cv: what it is charged is unknown, and in no figure." in lines


@pytest.mark.parametrize(
    ("url", "shown"),
    [("/recovery/", "209.62"), ("/spending/", "209.62"), ("/commitments/", "NVIDIA-H800")],
)
def test_every_page_of_the_month_goes_on(tmp_path: Path, url: str, shown: str) -> None:
    bought = [
        {"name": f"{team}-2026", "team": team, "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "1",
         "price_per_gpu_hour": "10.0000", "valid_from": "2026-10-01"}
        for team in ("nlp", "cv")
    ]  # fmt: skip
    two_teams(tmp_path, commitments=bought if "commitments" in url else [])
    measured_is("NaN")
    client = signed_in(factories.person("fin", "finance"))
    answer = client.get(f"{url}?month={MONTH}")
    page = answer.content.decode()
    assert (answer.status_code, "cv: what it is charged is unknown" in page, shown in page) == (200, True, True)


def test_a_kept_preview_names_who_is_missing_in_it(tmp_path: Path, settings: Any) -> None:
    two_teams(tmp_path)
    measured_is("NaN")
    settings.CACHE_STATEMENTS_ABOVE_LINES = 0
    assert month_assess(month=MONTH, now=OVER) == "1 lines and verdicts assessed"
    cubes_refresh()
    client = signed_in(factories.person("fin", "finance"))
    for url in ("/overview/", "/explorer/", "/spending/", "/recovery/"):
        page = client.get(f"{url}?month={MONTH}").content.decode()
        assert ("209.62" in page, "cv: what it is charged" in page, NOT_A_NUMBER in page) == (True, True, True), url


def test_an_accrual_estimates_the_others_and_names_the_team_it_is_without(tmp_path: Path) -> None:
    two_teams(tmp_path)
    measured_is("NaN")
    chart = Chart()
    made = accrual_make(month=MONTH, chart=chart, actor="fin", now=datetime(2026, 10, 30, tzinfo=UTC))
    assert [(journal["team"], journal["amount"]) for journal in made.document["journals"]] == [("nlp", "209.62")]
    assert made.document["left_out"][0] == {
        "kind": "team_unrated", "unit": "teams", "exceptions": 1, "quantity": "1", "team": "cv", "problem": NOT_A_NUMBER
    }  # fmt: skip


def committed_to_nan(tmp_path: Path) -> None:
    """cv has a commitment that nothing can be computed with."""
    bought = {"name": "cv-2026", "team": "cv", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "10",
              "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01"}  # fmt: skip
    two_teams(tmp_path, commitments=[bought])
    committed_is("NaN")


def test_a_price_list_is_tried_on_the_others(tmp_path: Path) -> None:
    committed_to_nan(tmp_path)
    dearer = PriceVersion("dearer", datetime(2026, 10, 1, tzinfo=UTC), None, (GpuPrice(Decimal(20), "NVIDIA-H800"),))
    effect = month_effect(period=period_of(MONTH), prices=dearer)
    assert [(row.key.team, row.before, row.after) for row in effect.by_team] == [
        ("nlp", Decimal("209.62"), Decimal("419.24"))
    ]
    assert effect.as_dict()["unrated"] == [{"team": "cv", "problem": NOT_A_NUMBER}]


def test_a_budget_of_the_team_stays_as_it_was_last_known(tmp_path: Path) -> None:
    budgets = [{"team": team, "period": "month", "amount": "1000.00", "valid_from": "2026-10-01"} for team in ("nlp", "cv")]
    two_teams(tmp_path, budgets=budgets)
    before, after = datetime(2026, 10, 30, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC)
    standings_refresh(now=before)
    measured_is("NaN")
    ingest_allocations(allocation_record(3, namespace="cv"))
    standings_refresh(now=after)
    found = {row.budget.team.code: (row.spent, row.as_of) for row in BudgetStatus.objects.select_related("budget__team")}
    assert found == {"nlp": (Decimal("209.62"), after), "cv": (Decimal("72.00"), before)}


def test_tokens_of_a_held_team_are_distinguished(tmp_path: Path) -> None:
    consumer = {**SET_UP["consumers"][0], "consumer": "cv-key", "team": "cv"}
    two_teams(tmp_path, consumers=[*SET_UP["consumers"], consumer])
    ingest_tokens(token_record(1), token_record(2, consumer="cv-key", output_tokens=150))
    measured_is("NaN")
    check = next(one for one in build_report(period_of(MONTH), now=LATER).checks if one.name.startswith("tokens"))
    # 1,000 in and 100 out of nlp; 1,000 in and 150 out of cv
    assert (check.ok, check.detail) == (
        True,
        "2,250 tokens reported, 1,100 charged, 0 unowned or unpriced, 1,150 of teams that cannot be rated",
    )


def test_once_repaired_the_held_team_is_closed_alone(tmp_path: Path) -> None:
    two_teams(tmp_path)
    measured_is("NaN")
    for now in (OVER, LATER):  # closing again without repair changes nothing
        with pytest.raises(TeamsBlockedError):
            close(now=now)
    assert invoices_issue(month=MONTH, actor="fin", now=LATER) == 1
    issued = Invoice.objects.get(team__code="nlp").sha256
    measured_is("0.55")
    close(now=LATER)
    assert (period().status, BlockedTeam.objects.count()) == ("closed", 0)
    assert lines("cv") == [("gpu", "80.00"), ("efficiency", "-8.00")]
    assert EfficiencyVerdict.objects.get().reason == "reward"
    assert Invoice.objects.get(team__code="nlp").sha256 == issued
    assert Invoice.objects.count() == 2
    assert all(proof.holds for proof in period_verify(month=MONTH))
    assert build_report(period(), now=LATER).closable


def test_a_commitment_that_cannot_be_used_holds_its_team(tmp_path: Path) -> None:
    committed_to_nan(tmp_path)
    with pytest.raises(TeamsBlockedError, match=f"cv: {NOT_A_NUMBER}"):
        close()
    assert lines("nlp") == [("gpu", "209.62")]
    committed_is("10")
    close(now=LATER)
    # 2 bought hours that nobody used and 8 used ones at 8.00, and a reward of 10 % of what these cost on demand
    assert lines("cv") == [("commitment", "16.00"), ("commitment", "64.00"), ("efficiency", "-8.00")]
    assert all(proof.holds for proof in period_verify(month=MONTH))


def test_where_others_pay_by_what_the_team_is_charged_nothing_is_billed(tmp_path: Path) -> None:
    shared = {
        "name": "all-v1", "valid_from": "2026-10-01",
        "shared": [{"name": "registry", "amount_per_month": "99.99", "method": "proportional"}],
    }  # fmt: skip
    two_teams(tmp_path, allocation_policies=[shared])
    measured_is("NaN")
    with pytest.raises(CloseRefusedError, match="1 exception blocks it") as refused:
        close()
    (item,) = refused.value.report.blocking
    assert (item.kind, item.subject) == ("team_unrated", "cv")
    assert (period().status, Invoice.objects.count(), Charge.objects.count()) == ("open", 0, 0)
    measured_is("0.55")
    close(now=LATER)
    # in proportion to 209.62 and 72.00
    assert lines("nlp") == [("gpu", "209.62"), ("shared", "74.43")]
    assert lines("cv") == [("gpu", "80.00"), ("efficiency", "-8.00"), ("shared", "25.56")]


def test_where_rewards_are_paid_from_penalties_of_others_nothing_is_billed(tmp_path: Path) -> None:
    apply(tmp_path, efficiency_policies=[{**BANDS, "neutral_pool": True}])
    job(1, "0.10", "0.10")
    job(2, "0.55", "0.60", namespace="cv")
    as_a_fault_of_the_disk("UPDATE usage_efficiencysample SET mfu = %s WHERE pod_uid = 'uid-2'", "NaN")
    with pytest.raises(CloseRefusedError):
        close()
    assert (period().status, Invoice.objects.count()) == ("open", 0)


def test_what_raises_for_every_team_ends_the_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_teams(tmp_path)
    ingest_allocations(allocation_record(3, namespace="cv"))

    def wrong(*arguments: Any) -> None:
        raise AttributeError("a slip of ours")

    monkeypatch.setattr("billing.rating.assessment.rate_gpu", wrong)
    with pytest.raises(AttributeError, match="a slip of ours"):
        close()
    assert (BlockedTeam.objects.count(), Charge.objects.count()) == (0, 0)
    monkeypatch.undo()
    close(now=LATER)
    assert (period().status, Invoice.objects.count()) == ("closed", 2)


def test_an_error_of_the_database_is_no_team_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_teams(tmp_path)

    def lost(*arguments: Any, **named: Any) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr("billing.rating.assessment.rate_gpu", lost)
    with pytest.raises(OperationalError):
        close()
    monkeypatch.undo()
    monkeypatch.setattr(closing, "charges_write", lost)
    with pytest.raises(OperationalError):
        close()
    assert (period().status, BlockedTeam.objects.count()) == ("closing", 0)
    monkeypatch.undo()
    close(now=LATER)
    assert (lines("nlp"), period().status) == ([("gpu", "209.62")], "closed")


def _killed(at: str) -> None:
    """A close that dies of SIGKILL in a process of its own, at a step that it prints."""
    connections.close_all()
    child = os.fork()
    if not child:
        try:
            period_close(month=MONTH, actor="ops", now=OVER, report_progress=_dies_at(at))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def _dies_at(step: str) -> Callable[[str, int, int], None]:
    def report_progress(reported: str, done: int, of: int) -> None:
        if reported == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return report_progress


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("step", ["write", "draft"])
def test_a_close_killed_while_it_holds_a_team_is_finished_by_the_next(tmp_path: Path, step: str) -> None:
    two_teams(tmp_path)
    measured_is("NaN")
    _killed(step)
    assert (period().status, Invoice.objects.count(), BlockedTeam.objects.count()) == ("closing", 0, 0)
    with pytest.raises(TeamsBlockedError):
        close()
    assert lines("nlp") == [("gpu", "209.62")]
    measured_is("0.55")
    _killed(step)
    assert [held.team for held in BlockedTeam.objects.all()] == ["cv"]
    close(now=LATER)
    assert (period().status, Invoice.objects.count(), BlockedTeam.objects.count()) == ("closed", 2, 0)
    assert Invoice.objects.get(team__code="cv").total == Decimal("72.00")
