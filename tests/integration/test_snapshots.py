"""Snapshots of large months: pages show the last rating with its time; whatever decides takes it only while it is valid."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.budgets.spending import month_lines
from billing.closing.report import build_report
from billing.closing.services import snapshots
from billing.closing.services.closing import period_close
from billing.closing.services.operations import operation_run
from billing.closing.services.showback import billing_mode_put
from billing.closing.services.snapshots import month_assess, snapshots_refresh
from billing.closing.services.waivers import exception_waive
from billing.corrections.services.proof import closed_periods_check, period_verify
from billing.invoices.models import BillingPeriod, Operation
from billing.portal.board import Board
from billing.portal.bridge import Bridge
from billing.portal.filters import Filters
from billing.portal.months import period_shown
from billing.portal.recovery import recovery_of
from billing.portal.statements import MonthFacets, MonthStatements, month_facets, month_statements
from billing.portal.usage_heatmap import Heat
from billing.rating.assessment import rate_period
from billing.rating.input_fingerprint import fingerprint_now
from billing.rating.models import RatingSnapshot, TeamSnapshot
from billing.rating.snapshots import valid_result
from billing.tenancy.models import BillingSetup, Team
from metering.intervals import Interval
from tests import factories
from tests.factories import AFTER, allocation_record, apply, ingest_allocations, signed_in, token_record, watched
from tests.factories.usage import POLICY, sample
from tests.stored_rows import rewrite

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
MONTH = "2026-10"
ASSESSED = datetime(2026, 11, 2, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def used(for_all_tests: Path) -> None:
    """8 devices for 2 h 37 min 13 s at 10.00 (209.62) and tokens of nlp, 3 devices as long of cv (78.61)."""
    apply(for_all_tests)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv", quantity=3))
    factories.ingest_tokens(token_record(1))


@pytest.fixture
def month(used: None, settings: Any) -> str:
    """It is called large."""
    settings.CACHE_STATEMENTS_ABOVE_LINES = 2
    return MONTH


def statements(summed: bool = False) -> MonthStatements:
    period = period_shown(MONTH, BillingSetup.objects.get())
    return month_statements(period, Team.objects.order_by("code"), summed=summed)


def amounts(month: MonthStatements) -> dict[str, Decimal]:
    return {item.team.code: item.of_kind("gpu") for item in month.statements}


def of_pages() -> dict[str, str]:
    """Each page as finance sees it."""
    client = signed_in(factories.person("fin", "finance"))
    paths = ("/overview/", "/close/", "/teams/cv/", "/spending/", "/recovery/")
    return {path: client.get(f"{path}?month={MONTH}").content.decode() for path in paths}


def facts(month: MonthFacets) -> dict[str, Any]:
    """What the pages of the installation make of a month, however it was read."""
    setup = BillingSetup.objects.get()
    board = Board(month.period, setup, Team.objects.order_by("code"), Filters(), month, AFTER)
    names = ("team", "namespace", "model", "accelerator", "site", "consumer")
    splits = {by: [(row.label, row.parts) for row in board.rows(by)] for by in names}
    wasting = [(job.job, job.wasted, job.effect) for job in board.wasting()]
    return {"total": board.total, **splits, "wasting": wasting, "recovery": recovery_of(month.period, month)}


def test_sums_say_the_same_live_kept_and_closed(month: str, tmp_path: Path, settings: Any) -> None:
    """One job wasted (HFU 0.15): what is assessed now, what is kept of it, and what the invoices then say are one."""
    apply(tmp_path, efficiency_policies=[POLICY])
    sample("2026-10-10T00:00:00Z", "2026-10-10T02:37:13Z", "75464", "0.10", "0.15")
    settings.CACHE_STATEMENTS_ABOVE_LINES = 10**9
    teams, period = Team.objects.order_by("code"), period_shown(MONTH, BillingSetup.objects.get())
    live = facts(month_facets(period, teams))
    settings.CACHE_STATEMENTS_ABOVE_LINES = 2
    month_assess(month=month, now=ASSESSED)
    kept = month_facets(period, teams)
    assert (kept.as_of, kept.whole) == (ASSESSED, None)
    assert facts(kept) == live
    period_close(month=month, actor="finance", now=AFTER)
    month_assess(month=month, now=AFTER)
    closed = facts(month_facets(period_shown(MONTH, BillingSetup.objects.get()), teams))
    assert closed == live
    assert live["wasting"] == [("pod/uid-1", Decimal("75464") * Decimal("0.85"), Decimal("41.92"))]  # 20 % of 209.62


def use_by_hour(**asked: str) -> tuple[list[Heat], datetime | None]:
    """What finance is shown of the week, and until when it was summed before."""
    setup, teams = BillingSetup.objects.get(), Team.objects.order_by("code")
    period = period_shown(MONTH, setup)
    board = Board(period, setup, teams, Filters(**asked), month_facets(period, teams), AFTER)
    return board.heat(), board.kept_use and board.kept_use.until


SLICE = "nvidia.com/mig-1g.10gb"
ASKED: tuple[dict[str, str], ...] = (
    {}, {"accelerator": "NVIDIA-H800"}, {"accelerator": SLICE}, {"model": "llama-3-8b"}, {"site": "hq-1"},
    {"site": "hq-2"},
)  # fmt: skip


def test_hours_of_the_week_are_the_same_live_and_kept_while_open_and_closed(month: str, settings: Any) -> None:
    """Whole devices, slices and a model: under every filter that the whole installation can be asked for."""
    ingest_allocations(allocation_record(3, resource=SLICE, device_fraction="0.142857142857", quantity=2))
    settings.CACHE_STATEMENTS_ABOVE_LINES = 10**9
    live = [use_by_hour(**asked) for asked in ASKED]
    assert [[item.name for item in heat] for heat, _ in live] == [
        ["devices", "tokens"], ["devices"], ["devices"], ["tokens"], ["devices"], []
    ]  # fmt: skip
    assert {until for _, until in live} == {None}
    settings.CACHE_STATEMENTS_ABOVE_LINES = 2
    period = period_shown(MONTH, BillingSetup.objects.get())
    month_assess(month=month, now=AFTER)
    kept = [use_by_hour(**asked) for asked in ASKED]
    assert kept == [(heat, period.end) for heat, _ in live]
    period_close(month=month, actor="finance", now=AFTER)
    assert use_by_hour() == (live[0][0], None)  # what was kept before the close is no longer shown
    month_assess(month=month, now=AFTER)
    assert [use_by_hour(**asked) for asked in ASKED] == kept


def test_a_part_of_the_installation_is_summed_when_it_is_asked_for(month: str) -> None:
    """Kept is only the sum of all: a team, a namespace or a consumer, and whoever sees some teams, read their own use."""
    month_assess(month=month, now=AFTER)
    asked: tuple[dict[str, str], ...] = ({"team": "cv"}, {"namespace": "cv"}, {"consumer": "nobody"})
    assert [use_by_hour(**names)[1] for names in asked] == [None] * 3
    client = signed_in(factories.person("fin", "finance"))
    assert "Summed up to 2026-11-01 00:00" in client.get(f"/spending/?month={MONTH}&part=hours").content.decode()
    client.force_login(factories.person("lea", "lead", team="cv"))
    own = client.get(f"/spending/?month={MONTH}&part=hours")
    assert "Summed up to" not in own.content.decode()
    (devices, _days), = own.context["heat"]
    assert devices.peak == Decimal("0.6")  # three devices on one of five Saturdays


MIDDLE = datetime(2026, 11, 11, 16, tzinfo=UTC)
"""Eleven days of November, in which nlp uses nothing."""


AN_HOUR = {
    "started_at": "2026-11-02T00:00:00Z", "ended_at": "2026-11-02T01:00:00Z", "observed_until": "2026-11-02T01:00:00Z",
}  # fmt: skip


def compared(*teams: str, **asked: str) -> Bridge | None:
    """November at its middle against as many days of October."""
    setup, shown = BillingSetup.objects.get(), Team.objects.filter(code__in=teams or ("cv", "nlp")).order_by("code")
    period = period_shown("2026-11", setup)
    return Board(period, setup, shown, Filters(**asked), month_facets(period, shown), MIDDLE).bridge()


def test_as_many_days_of_the_month_before_are_the_same_live_and_kept(
    month: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """209.62 of nlp and 78.61 of cv on the 10th; tokens of the 15th are not among the eleven days. Then 40.00 of cv."""
    ingest_allocations(
        allocation_record(7, namespace="cv", quantity=4, **AN_HOUR), allocation_record(8, quantity=1, **AN_HOUR)
    )
    watched(MIDDLE)
    asked: tuple[dict[str, str], ...] = (
        {}, {"team": "cv"}, {"namespace": "nlp-train"}, {"accelerator": "NVIDIA-H800"}, {"model": "llama-3-8b"}
    )  # fmt: skip
    settings.CACHE_STATEMENTS_ABOVE_LINES = 10**9
    live = [compared(**names) for names in asked]
    assert [bridge and (bridge.before, bridge.after) for bridge in live] == [
        (Decimal("288.23"), Decimal("50.00")), (Decimal("78.61"), Decimal("40.00")), (Decimal("209.62"), Decimal("10.00")),
        (Decimal("288.23"), Decimal("50.00")), None,
    ]  # fmt: skip
    settings.CACHE_STATEMENTS_ABOVE_LINES = 2
    month_assess(month="2026-11", now=MIDDLE)
    with monkeypatch.context() as nobody_assesses:
        nobody_assesses.setattr("billing.closing.usage_profile.rate_slice", None)
        assert [compared(**names) for names in asked] == live
        assert compared("cv") == live[1]
    month_assess(month="2026-11", now=datetime(2026, 12, 3, tzinfo=UTC))
    assert not RatingSnapshot.objects.get(month="2026-11").teams.exclude(compared=b"[]").exists()


def test_a_team_that_used_nothing_since_is_compared_too(month: str, settings: Any) -> None:
    settings.CACHE_STATEMENTS_ABOVE_LINES = 1
    ingest_allocations(allocation_record(7, namespace="cv", **AN_HOUR))
    watched(MIDDLE)
    before = compared()
    month_assess(month="2026-11", now=MIDDLE)
    bridge = compared()
    assert bridge is not None
    assert before is not None
    assert (bridge, [(item.team, item.before) for item in bridge.items if not item.after]) == (
        before, [("nlp", Decimal("209.62"))]
    )  # fmt: skip


def test_pages_show_what_is_kept_and_say_as_of_when(month: str) -> None:
    month_assess(month=month, now=ASSESSED)
    ingest_allocations(allocation_record(3, namespace="cv", quantity=1))  # 26.20 more for cv, not assessed yet
    pages = of_pages()
    assert "78.61" in pages["/overview/"]
    assert "104.81" not in pages["/overview/"]
    assert "78.61" in pages["/teams/cv/"]
    for path in ("/overview/", "/teams/cv/", "/spending/"):
        assert "Assessed 2 Nov 11:04." in pages[path], path  # in the billing zone
    assert "2026-11-02 11:04" in pages["/close/"]
    assert "Assess again" in pages["/close/"]


def test_the_parts_of_a_line_that_is_kept_add_up_to_it_whatever_came_since(month: str) -> None:
    """Devices by job and day, tokens by day: as in the line; of 26.20 and as many tokens that came later nothing."""
    month_assess(month=month, now=ASSESSED)
    ingest_allocations(allocation_record(3, namespace="cv", quantity=1))
    factories.ingest_tokens(token_record(2))
    client = signed_in(factories.person("fin", "finance"))
    shown = [line for item in statements().statements for line in item.lines]
    assert {line.key.kind for line in shown} == {"gpu", "tokens"}
    for line in shown:
        response = client.get(f"/teams/{line.key.team}/lines/{line.digest}/?month={month}")
        assert "2026-11-02 11:04" in response.content.decode()
        for name in ("by_day", "by_workload"):
            if level := response.context.get(name):
                assert sum(part.amount for part in level.parts) == line.amount
                assert sum(part.quantity for part in level.parts) == line.quantity


def test_a_view_of_a_large_month_keeps_what_it_had_to_assess_itself(month: str) -> None:
    before = timezone.now()
    assert statements().as_of is None
    again = statements()
    assert again.as_of is not None
    assert before <= again.as_of <= timezone.now()


def test_a_small_month_is_assessed_with_every_view(month: str, settings: Any) -> None:
    settings.CACHE_STATEMENTS_ABOVE_LINES = 100
    month_assess(month=month, now=ASSESSED)
    ingest_allocations(allocation_record(3, namespace="cv", quantity=1))
    assert amounts(statements())["cv"] == Decimal("104.81")  # 4 devices x 2:37:13 at 10.00: one line, rounded once
    page = of_pages()["/close/"]
    assert "2026-11-02 11:04" not in page
    assert "Assess again" not in page


@pytest.fixture
def ratings(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The close number of every rating for a close from now on."""
    seen: list[int | None] = []

    def noting(**asked: Any) -> Any:
        seen.append(asked["close_seq"])
        return rate_period(**asked)

    for module in ("close_check", "services.closing"):
        monkeypatch.setattr(f"billing.closing.{module}.rate_period", noting)
    return seen


def test_a_close_takes_a_valid_snapshot(month: str, ratings: list[int | None]) -> None:
    month_assess(month=month, now=ASSESSED)
    period_close(month=month, actor="finance", now=AFTER)
    assert ratings == []
    assert amounts(statements()) == {"cv": Decimal("78.61"), "nlp": Decimal("209.62")}
    assert all(proof.holds for proof in period_verify(month=month))


def test_a_close_never_takes_a_snapshot_that_is_out_of_date(month: str, ratings: list[int | None]) -> None:
    month_assess(month=month, now=ASSESSED)
    ingest_allocations(allocation_record(3, namespace="cv", quantity=1))
    period_close(month=month, actor="finance", now=AFTER)
    assert ratings == [None]
    assert amounts(statements())["cv"] == Decimal("104.81")
    assert statements().as_of is None  # invoiced now


def test_a_close_never_takes_a_snapshot_of_another_program(
    month: str, ratings: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    month_assess(month=month, now=ASSESSED)
    monkeypatch.setattr("billing.rating.input_fingerprint.PROGRAM", "of the next release")
    period_close(month=month, actor="finance", now=AFTER)
    assert ratings == [None]


def test_a_close_never_takes_a_snapshot_that_somebody_changed(month: str, ratings: list[int | None]) -> None:
    """A price of 10 in the kept charges of nlp becomes 11 behind the services' back."""
    month_assess(month=month, now=ASSESSED)
    team = TeamSnapshot.objects.get(team="nlp")
    assert bytes(team.rated).count(b"10.0000") == 1
    TeamSnapshot.objects.filter(pk=team.pk).update(rated=bytes(team.rated).replace(b"10.0000", b"11.0000"))
    period_close(month=month, actor="finance", now=AFTER)
    assert ratings == [None]
    assert amounts(statements()) == {"cv": Decimal("78.61"), "nlp": Decimal("209.62")}


def test_a_snapshot_is_the_very_result(month: str, tmp_path: Path) -> None:
    """With a verdict, a policy on idle time, usage without owner and price, and the platform's own: as it was rated."""
    idle = {"cluster": "hq-1", "accelerator": "NVIDIA-H800", "price_per_gpu_hour": "1.0000", "method": "proportional"}
    rules = {"name": "idle", "valid_from": "2026-10-01T00:00:00+08:00", "idle": [idle]}
    grid = {"cluster": "hq-1", "valid_from": "2026-01-01", "location_kg_per_kwh": "0.5306", "market_kg_per_kwh": "0.6096",
            "source": "national average and residual mix, 2023"}  # fmt: skip
    apply(tmp_path, efficiency_policies=[POLICY], allocation_policies=[rules], carbon=[grid])
    assert rewrite("UPDATE rates_gpuprice SET facility_kw = 1.3 WHERE accelerator = 'NVIDIA-H800'") == 1
    sample("2026-10-10T00:00:00Z", "2026-10-10T02:37:13Z", "75464", "0.10", "0.15")
    ingest_allocations(
        allocation_record(3, namespace="serving"), allocation_record(4, namespace="nobodys"),
        allocation_record(5, accelerator="NVIDIA-B300"),
    )  # fmt: skip
    factories.ingest_capacity(
        cluster="hq-1", node="node-1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=64,
        **{"from": "2026-10-10T00:00:00Z", "until": "2026-10-11T00:00:00Z"},
    )  # fmt: skip
    month_assess(month=month, now=ASSESSED)
    period = period_shown(MONTH, BillingSetup.objects.get())
    asked: Any = {"window": Interval(period.start, period.end), "zone": period.zone}
    kept = valid_result(month, lambda: fingerprint_now(**asked))
    fresh = rate_period(**asked, close_seq=None)
    assert kept is not None
    assert {charge.key.kind for charge in kept.charges} == {"gpu", "tokens", "efficiency", "idle"}
    assert any(charge.carbon for charge in kept.charges)
    assert all([kept.verdicts, kept.unowned, kept.unpriced, kept.pools, kept.team_time])
    assert replace(fresh, reference_data=None) == kept
    assert repr(replace(fresh, reference_data=None).charges) == repr(kept.charges)  # to the last digit and exponent


def test_budgets_and_the_report_read_a_valid_snapshot(month: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = month_lines(month, "Asia/Shanghai")
    month_assess(month=month, now=ASSESSED)
    period = period_shown(MONTH, BillingSetup.objects.get())
    report = build_report(period, now=AFTER).as_dict()
    monkeypatch.setattr("billing.rating.snapshots.rate_period", None)
    assert month_lines(month, "Asia/Shanghai") == lines
    assert build_report(period, now=AFTER).as_dict() == report


def test_a_waiver_counts_at_once_in_a_report_that_is_kept(month: str) -> None:
    overlapping = allocation_record(9, pod_uid="uid-1", started_at="2026-10-10T01:00:00Z")
    ingest_allocations(overlapping)
    month_assess(month=month, now=AFTER)
    assert "Blocks the close" in of_pages()["/close/"]
    exception_waive(
        period=BillingPeriod.objects.get_or_create(
            month=month, defaults={"zone": "Asia/Shanghai", "start": factories.SHANGHAI_OCTOBER[0],
                                   "end": factories.SHANGHAI_OCTOBER[1]})[0],
        kind="overlap", subject="hq-1/uid-1", reason="counted by hand", actor="fin", now=timezone.now(),
    )  # fmt: skip
    client = signed_in("fin")
    page = client.get(f"/close/?month={month}").content.decode()
    assert "Waived by fin" in page
    assert "Blocks the close" not in page


def test_finance_has_a_month_assessed_again(month: str) -> None:
    month_assess(month=month, now=ASSESSED)
    ingest_allocations(allocation_record(3, namespace="cv", quantity=1))
    client = signed_in(factories.person("fin", "finance"))
    assert client.post(f"/close/{month}/operations/", {"kind": "assess"}).status_code == 302
    operation = operation_run(operation_id=Operation.objects.get().pk)
    assert (operation.status, operation.message) == ("done", "5 lines and verdicts assessed")  # 2 of devices, 3 of tokens
    assert amounts(statements())["cv"] == Decimal("104.81")


def test_the_scheduler_rates_what_has_changed_when_it_is_time_to(month: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert snapshots_refresh() > 0
    kept = RatingSnapshot.objects.get(month=month)
    assert kept.report_as_of is not None
    ingest_allocations(allocation_record(3, namespace="cv", quantity=1))
    assert snapshots_refresh() == 0  # a moment later nothing is due
    earlier = RatingSnapshot.objects.get(month=month).as_of - timedelta(minutes=2)
    RatingSnapshot.objects.update(as_of=earlier)
    assert snapshots_refresh() == 1
    assert amounts(statements())["cv"] == Decimal("104.81")


def test_a_month_that_cannot_be_rated_holds_up_no_other(
    month: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make = snapshots.snapshot_make

    def failing(period: BillingPeriod, **how: Any) -> Any:
        if period.month != month:
            raise ArithmeticError("too large")
        return make(period, **how)

    monkeypatch.setattr(snapshots, "snapshot_make", failing)
    assert snapshots_refresh() > 0
    assert list(RatingSnapshot.objects.values_list("month", flat=True)) == [month]
    assert "ArithmeticError: too large" in caplog.text


def test_the_scheduler_rates_nothing_that_is_valid_and_says_that_it_is_as_of_now(
    month: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert snapshots_refresh() > 0
    earlier = RatingSnapshot.objects.get(month=month).as_of - timedelta(minutes=2)
    RatingSnapshot.objects.update(as_of=earlier)
    monkeypatch.setattr("billing.closing.services.snapshots.rate_period", None)
    assert snapshots_refresh() == 0
    assert RatingSnapshot.objects.get(month=month).as_of > earlier + timedelta(minutes=1)


def test_a_team_that_is_only_shown_its_costs_from_now_on_is_so_in_every_sum(month: str) -> None:
    assert snapshots_refresh() > 0
    factories.person("app", "approver")
    billing_mode_put(team="cv", from_month=month, mode="shadow", reason="first quarter", actor="app", now=ASSESSED)
    RatingSnapshot.objects.update(as_of=RatingSnapshot.objects.get(month=month).as_of - timedelta(minutes=2))
    assert snapshots_refresh() > 0
    for kept in (statements(), statements(summed=True)):
        assert [(item.team.code, item.shadow) for item in kept.statements] == [("cv", True), ("nlp", False)]


def test_a_closed_month_that_was_kept_for_pages_needs_no_other_rating_to_prove_it(month: str) -> None:
    period_close(month=month, actor="finance", now=AFTER)
    assert closed_periods_check() == [month]
    RatingSnapshot.objects.all().delete()
    month_assess(month=month, now=AFTER)
    assert closed_periods_check() == []
    RatingSnapshot.objects.all().delete()
    assert closed_periods_check() == [month]
    assert snapshots_refresh() > 0  # what was kept for the proof alone is no snapshot for pages
    assert RatingSnapshot.objects.get(month=month).size == 5  # a line of each team and three of tokens
    assert closed_periods_check() == []


def test_a_preview_is_as_confined_as_the_month(month: str) -> None:
    month_assess(month=month, now=ASSESSED)
    client = signed_in(factories.person("lea", "lead", team="cv"))
    page = client.get(f"/?month={month}").content.decode()
    assert "78.61" in page
    assert "209.62" not in page
    assert client.get(f"/teams/nlp/?month={month}").status_code == 404


def test_many_teams_are_paged_and_found(month: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.portal.asked.PAGE_SIZE", 1)
    client = signed_in(factories.person("fin", "finance"))
    first = client.get(f"/?month={month}").content.decode()
    assert "/teams/nlp/" in first
    assert "/teams/cv/" not in first
    assert "Total of all 2 teams" in first
    second = client.get(f"/?month={month}&page=2").content.decode()
    assert "/teams/cv/" in second
    assert "/teams/nlp/" not in second
    found = client.get(f"/?month={month}&q=cc-220").content.decode()  # the cost centre of cv
    assert "/teams/cv/" in found
    assert "/teams/nlp/" not in found
    assert "No team is called that." in client.get(f"/?month={month}&q=nobody").content.decode()
