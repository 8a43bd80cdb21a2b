"""A change of owners or prices is checked against every closed month; only months that it can concern are rated again.

September: nlp held 8 H800 for 9,433 s at 10.0000 and had tokens. October: the same, and late usage of September. Whatever
a month was rated from is changed here one fact at a time; each time exactly the months that read it are rated again, and
where that gives other charges the change is refused with their number.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from billing.closing.services.closing import period_close
from billing.corrections.services import proof
from billing.corrections.services.proof import ClosedPeriodError, closed_periods_check
from billing.rating.models import RatingSnapshot
from billing.setup.file import SetUpFileError
from billing.usage.services import rollups_fold
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.efficiency import BANDS, job
from tests.stored_rows import rewrite

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
FROM_JANUARY = {"price_versions": [{**SET_UP["price_versions"][0], "valid_from": "2026-01-01"}]}
BOTH = ["2026-09", "2026-10"]


def hold(number: int, month: str, **changed: Any) -> dict[str, Any]:
    at = f"{month}-10T0"
    seen = {"started_at": f"{at}0:00:00Z", "ended_at": f"{at}2:37:13Z", "observed_until": f"{at}2:37:13Z"}
    return allocation_record(number, **{**seen, **changed})


@pytest.fixture(scope="module")
def closed(for_all_tests: Path) -> Callable[..., list[str]]:
    """September and October, closed and checked; gives what applies other sections, and says what was rated again."""
    apply(for_all_tests, **FROM_JANUARY, efficiency_policies=[{**BANDS, "valid_from": "2026-01-01"}])
    ingest_allocations(hold(1, "2026-09"))
    ingest_tokens(token_record(1, time="2026-09-15T12:00:00+08:00"))
    period_close(month="2026-09", actor="ops", now=datetime(2026, 10, 1, tzinfo=UTC))
    ingest_allocations(hold(2, "2026-10"), hold(3, "2026-09", namespace="cv", quantity=2))
    ingest_tokens(token_record(2))
    job(4, "0.55", "0.60")
    period_close(month="2026-10", actor="ops", now=datetime(2026, 11, 3, tzinfo=UTC))
    assert closed_periods_check() == BOTH

    def applied(**sections: Any) -> list[str]:
        seen: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(proof, "_rate_again", _noting(seen, proof._rate_again))
            apply(for_all_tests, **{**FROM_JANUARY, **sections})
        return seen

    return applied


def _noting(seen: list[str], rate: Callable[[Any], None]) -> Callable[[Any], None]:
    def noted(period: Any) -> None:
        seen.append(period.month)
        rate(period)

    return noted


def test_what_did_not_change_is_not_rated_again(closed: Callable[..., list[str]]) -> None:
    assert closed_periods_check() == []
    assert closed_periods_check(thorough=True) == BOTH
    assert closed_periods_check() == []


def test_what_begins_after_them_or_concerns_no_name_of_them_costs_nothing(closed: Callable[..., list[str]]) -> None:
    later = {**SET_UP["price_versions"][0], "name": "2026-11", "valid_from": "2026-11-01T00:00:00+08:00"}
    stranger = {"cluster": "hq-1", "namespace": "robots", "team": "cv"}
    moved = {"cluster": "hq-1", "namespace": "nlp-*", "team": "cv", "valid_from": "2026-11-01T00:00:00+08:00"}
    consumer = {"source": "litellm-hq", "consumer": "new-key", "team": "cv"}
    assert closed(price_versions=[*FROM_JANUARY["price_versions"], later]) == []
    assert closed(ownership=[*SET_UP["ownership"], stranger]) == []
    assert closed(ownership=[*SET_UP["ownership"], moved]) == []
    assert closed(consumers=[*SET_UP["consumers"], consumer]) == []


def test_a_fact_that_reaches_into_them_and_changes_no_charge_is_rated_again_once(closed: Callable[..., list[str]]) -> None:
    same_owner = {"cluster": "hq-1", "namespace": "nlp-train", "team": "nlp"}
    assert closed(ownership=[*SET_UP["ownership"], same_owner]) == BOTH
    assert closed_periods_check() == []


def test_a_cut_within_a_month_is_rated_again_for_the_months_that_read_it(closed: Callable[..., list[str]]) -> None:
    within_october = {"cluster": "hq-1", "namespace": "robots", "team": "cv", "valid_from": "2026-10-12T00:00:00+08:00"}
    assert closed(ownership=[*SET_UP["ownership"], within_october]) == ["2026-10"]


def test_another_owner_of_a_used_name_is_refused(closed: Callable[..., list[str]]) -> None:
    other_owner = {"cluster": "hq-1", "namespace": "nlp-train", "team": "cv"}
    # one line of nlp less, one of cv more
    with pytest.raises(SetUpFileError, match="this would change 1 charges of period 2026-09, which is closed"):
        closed(ownership=[*SET_UP["ownership"], other_owner])
    assert closed_periods_check() == []  # nothing of it is left


def test_another_owner_of_late_usage_is_refused_by_the_month_that_billed_it(closed: Callable[..., list[str]]) -> None:
    other_owner = {"cluster": "hq-1", "namespace": "cv", "team": "nlp", "valid_until": "2026-10-01T00:00:00+08:00"}
    cv_later = {"cluster": "hq-1", "namespace": "cv", "team": "cv", "valid_from": "2026-10-01T00:00:00+08:00"}
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM tenancy_namespaceownership WHERE namespace = 'cv'")
    # September's own usage has nobody's name cv: its late usage is of October's close
    with pytest.raises(SetUpFileError, match="this would change 1 charges of period 2026-10, which is closed"):
        closed(ownership=[SET_UP["ownership"][0], other_owner, cv_later])


TAMPERED = {
    "usage held": ("UPDATE usage_gpuallocation SET quantity = 9 WHERE allocation_id = 'alloc-2'", BOTH[1]),
    "a span": ("UPDATE usage_allocationrevision SET until = until - interval '1 microsecond' WHERE allocation_id IN "
               "(SELECT id FROM usage_gpuallocation WHERE allocation_id = 'alloc-1')", BOTH[0]),
    "late usage": ("UPDATE usage_allocationrevision SET until = until + interval '1 hour' WHERE allocation_id IN "
                   "(SELECT id FROM usage_gpuallocation WHERE allocation_id = 'alloc-3')", BOTH[1]),
    "tokens": ("UPDATE token_hour_delta SET output_tokens = output_tokens + 1 WHERE hour < '2026-10-01'", BOTH[0]),
    "more tokens": ("INSERT INTO token_hour_delta SELECT hour + interval '1 hour', dimension, epoch, 1, 7, 0, 0, 7, 0 "
                    "FROM token_hour_delta WHERE hour > '2026-10-01'", BOTH[1]),
    "a sample": ("UPDATE usage_efficiencysample SET mfu = 0.40", BOTH[1]),
    "a charge": ("UPDATE rating_charge SET usage_quantity = usage_quantity + 1 "
                 "WHERE close_seq = 1 AND kind = 'gpu'", BOTH[0]),
    "a price of a charge": ("UPDATE rating_charge SET unit_price = 11 WHERE close_seq = 2 AND kind = 'gpu'", BOTH[1]),
    "a charge that is gone": ("DELETE FROM rating_charge WHERE close_seq = 2 AND kind = 'efficiency'", BOTH[1]),
    "a price": ("UPDATE rates_gpuprice SET price = 10.0001 WHERE accelerator = 'NVIDIA-H800'", BOTH[0]),
    "a policy": ("UPDATE rates_efficiencypolicy SET reward = 0.2", BOTH[1]),
    "an owner": ("UPDATE tenancy_namespaceownership SET platform = true WHERE namespace = 'nlp-*'", BOTH[0]),
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERED)
def test_whatever_is_changed_behind_its_back_is_found(closed: Callable[..., list[str]], what: str) -> None:
    statement, month = TAMPERED[what]
    assert rewrite(statement) > 0
    with pytest.raises(ClosedPeriodError, match=f"charges of period {month}, which is closed"):
        closed_periods_check()


def test_folding_the_roll_up_changes_nothing(closed: Callable[..., list[str]]) -> None:
    assert rollups_fold() > 0
    assert closed_periods_check() == []


def test_tokens_that_moved_to_another_day_are_looked_at(closed: Callable[..., list[str]]) -> None:
    moved = "UPDATE token_hour_delta SET hour = hour + interval '1 day' WHERE hour < '2026-10-01'"
    assert rewrite(moved) == 1
    assert closed_periods_check() == BOTH  # October billed late usage of September; the charges are the same


def test_usage_that_comes_late_is_no_business_of_a_closed_month(closed: Callable[..., list[str]]) -> None:
    ingest_allocations(hold(9, "2026-09", quantity=1), hold(10, "2026-10", quantity=1))
    ingest_tokens(token_record(9, time="2026-09-16T12:00:00+08:00"), token_record(10))
    assert closed_periods_check() == []
    period_close(month="2026-11", actor="ops", now=datetime(2026, 12, 3, tzinfo=UTC))
    assert closed_periods_check() == ["2026-11"]


def test_a_month_that_nobody_has_checked_yet_is_rated_again(closed: Callable[..., list[str]]) -> None:
    RatingSnapshot.objects.filter(month="2026-09").delete()
    assert closed_periods_check() == ["2026-09"]


def test_every_closed_month_is_verified_on_demand(
    closed: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("period_verify", "--all")
    said = capsys.readouterr().out
    # nlp in September; nlp, and cv for its late usage, in October
    assert [line for line in said.splitlines() if "documents follow" in line] == [
        "1 of 1 documents follow from their usage", "2 of 2 documents follow from their usage",
    ]  # fmt: skip
