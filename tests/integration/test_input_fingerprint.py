"""What the fingerprint of a month's inputs takes in: the cases that random histories seldom meet.

October is 30 September 16:00 to 31 October 16:00 UTC. Each test says what a report or a change does to the fingerprint, and
that the rating changes or does not.
"""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.services.closing import period_close
from billing.closing.services.showback import billing_mode_put
from billing.rating.assessment import rate_period
from billing.rating.input_fingerprint import fingerprint_now
from billing.usage.fingerprints import usage_fingerprint
from billing.usage.services import rollups_fold
from metering.intervals import billing_month
from tests import factories
from tests.factories import (
    SET_UP,
    allocation_record,
    apply,
    closing,
    efficiency,
    ingest_allocations,
    ingest_tokens,
    token_record,
    usage,
)
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db
OCTOBER = billing_month("2026-10", "Asia/Shanghai")
POLICY = {**usage.POLICY, "min_coverage": "0.01"}


def fingerprint() -> str:
    return fingerprint_now(window=OCTOBER, zone="Asia/Shanghai")


def verdicts() -> list[tuple[str, str, str]]:
    rated = rate_period(window=OCTOBER, zone="Asia/Shanghai", close_seq=None)
    return [(one.namespace, one.job, one.reason) for one in rated.verdicts]


def tokens_of(*cuts: datetime) -> list[str]:
    found = usage_fingerprint(OCTOBER, before=1, last_sample=0, cuts=cuts, events=False, stored=False)
    return found["tokens"]


def measured(**facts: Any) -> None:
    assert factories.ingest_sample(**{"gpu_seconds": "28800", "mfu": "0.60", "hfu": "0.65", **facts}).accepted == 1


def job(number: int, namespace: str, start: str, end: str, **facts: Any) -> dict[str, Any]:
    workload = {"kind": "Job", "name": "train"}
    return allocation_record(
        number, namespace=namespace, started_at=start, ended_at=end, observed_until=end, workload=workload, **facts
    )


def test_nothing_new_is_nothing_new(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    ingest_tokens(token_record(1))
    before = fingerprint()
    assert rollups_fold() > 0
    ingest_allocations(allocation_record(1))
    ingest_tokens(token_record(1))
    assert fingerprint() == before


def test_an_allocation_that_goes_on_into_the_next_month_changes_nothing_there(tmp_path: Path) -> None:
    apply(tmp_path)
    running = {"started_at": "2026-10-31T00:00:00Z", "ended_at": None, "end_reason": None}
    ingest_allocations(allocation_record(1, **running, observed_until="2026-10-31T15:59:59Z"))
    short = fingerprint()
    ingest_allocations(allocation_record(1, **running, observed_until="2026-10-31T17:00:00Z"))
    whole = fingerprint()
    ingest_allocations(allocation_record(1, **running, observed_until="2026-11-02T00:00:00Z"))
    assert (fingerprint(), whole == short) == (whole, False)


def test_an_allocation_of_the_next_month_counts_where_a_sample_measured_it(tmp_path: Path) -> None:
    """A sample of workload `train` reaches one hour into November; there it measured the job of cv, which sorts first."""
    apply(tmp_path, efficiency_policies=[POLICY])
    ingest_allocations(job(1, "nlp-train", "2026-10-31T14:00:00Z", "2026-10-31T16:00:00Z"))
    measured(workload={"kind": "Job", "name": "train"}, start="2026-10-31T14:00:00Z", end="2026-10-31T17:00:00Z")
    before = fingerprint()
    assert verdicts() == [("nlp-train", "Job/train", "reward")]
    ingest_allocations(job(2, "cv", "2026-10-31T16:30:00Z", "2026-10-31T16:45:00Z"))
    assert verdicts() == [("nlp-train", "Job/train", "neutral:missing")]
    assert fingerprint() != before


def test_what_a_reconstructed_allocation_learns_counts(tmp_path: Path) -> None:
    """Nobody watched it, so that its workload is not known; a sample of that workload is judged once it is."""
    apply(tmp_path, efficiency_policies=[POLICY])
    hour = ("2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z")
    known = job(1, "nlp-train", *hour)
    ingest_allocations({**known, "workload": None, "reconstructed_from": "metrics"})
    measured(workload={"kind": "Job", "name": "train"}, start=hour[0], end=hour[1])
    before = fingerprint()
    assert verdicts() == []
    ingest_allocations(known)
    assert verdicts() == [("nlp-train", "Job/train", "reward")]
    assert fingerprint() != before


def test_capacity_counts(tmp_path: Path) -> None:
    apply(tmp_path)
    before = fingerprint()
    node = {"cluster": "hq-1", "node": "n", "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu", "quantity": 8}
    factories.ingest_capacity(**node, **{"from": "2026-10-31T15:00:00Z", "until": "2026-10-31T16:00:00Z"})
    offered = fingerprint()
    factories.ingest_capacity(**node, **{"from": "2026-10-31T16:00:00Z", "until": "2026-10-31T17:00:00Z"})
    assert (offered == before, fingerprint()) == (False, offered)


@pytest.mark.parametrize(
    ("sections", "same"),
    [
        ({"price_versions": [*SET_UP["price_versions"], {
            **SET_UP["price_versions"][0], "name": "2026-11", "valid_from": "2026-11-01T00:00:00+08:00"}]}, True),
        ({"price_versions": [*SET_UP["price_versions"], {
            **SET_UP["price_versions"][0], "name": "2026-10b", "valid_from": "2026-10-31T23:59:59+08:00"}]}, False),
        ({"consumers": [*SET_UP["consumers"], {"source": "litellm-hq", "consumer": "new", "team": "cv"}]}, False),
        ({"interruption_policies": [{"name": "sla", "valid_from": "2026-10-01", "preempted": "platform"}]}, False),
    ],
    ids=["prices from the end on", "prices from within", "an owner", "a policy"],
)  # fmt: skip
def test_reference_data_counts_as_far_as_it_reaches_into_the_month(
    tmp_path: Path, sections: dict[str, Any], same: bool
) -> None:
    apply(tmp_path)
    before = fingerprint()
    apply(tmp_path, **sections)
    assert (fingerprint() == before) is same


def test_which_teams_are_only_shown_their_costs_counts_in_the_months_that_it_is_about(tmp_path: Path) -> None:
    """Whose penalties pay whose rewards follows from it; what a mode was before, and who set it, does not matter."""
    apply(tmp_path, efficiency_policies=[{**POLICY, "neutral_pool": True}])
    factories.person("app", "approver")
    efficiency.job(1, "0.05", "0.10", namespace="cv")
    efficiency.job(2, "0.60", "0.65", namespace="nlp-train")
    before = fingerprint()

    def switched(month: str, mode: str) -> str:
        billing_mode_put(team="cv", from_month=month, mode=mode, reason="first quarter", actor="app", now=factories.AFTER)
        return fingerprint()

    assert switched("2026-11", "shadow") == switched("2026-10", "chargeback") == before
    assert [reason for *_, reason in verdicts()] == ["penalty", "reward"]
    assert switched("2026-10", "shadow") != before
    assert [reason for *_, reason in verdicts()] == ["penalty", "neutral"]


def test_tokens_of_a_day_count_as_one_where_nothing_cuts_it() -> None:
    """Within a day that a price cuts, each hour counts by itself; the first and last UTC day of the month are cut, too."""
    ingest_tokens(token_record(1), token_record(2, time="2026-10-01T02:00:00+08:00"))
    noon, moved = datetime(2026, 10, 15, 12, tzinfo=UTC), "UPDATE token_hour_delta SET hour = hour + interval '1 hour'"
    whole, cut = tokens_of(), tokens_of(noon)
    assert rewrite(f"{moved} WHERE hour > '2026-10-15'") == 1
    assert tokens_of() == whole
    assert tokens_of(noon) != cut
    assert rewrite(f"{moved} WHERE hour < '2026-10-15'") == 1
    assert tokens_of() != whole


def test_the_close_number_is_part_of_it(tmp_path: Path) -> None:
    """Another close since is other usage that counts as late."""
    apply(tmp_path, price_versions=[{**SET_UP["price_versions"][0], "valid_from": "2026-01-01"}])
    before = fingerprint()
    period_close(month="2026-09", actor="ops", now=datetime(2026, 10, 1, tzinfo=UTC))
    assert fingerprint() != before


def test_a_month_with_the_largest_counts_that_a_record_may_have_is_closed_to_the_cent(tmp_path: Path) -> None:
    """10**15 tokens of input at 2.00 and as many of output at 8.00 the million, on two days: 2 x 10**9 x 10.00."""
    apply(tmp_path)
    largest = {"input_tokens": 10**15, "cache_read_input_tokens": 0, "output_tokens": 10**15}
    ingest_tokens(token_record(1, **largest), token_record(2, **largest, time="2026-10-16T12:00:00+08:00"))
    before = fingerprint()
    assert rollups_fold() > 0
    assert fingerprint() == before
    closing.close()
    assert closing.issue() == 1
    assert closing.total("nlp") == Decimal("20000000000.00")
    assert closing.proofs_hold("2026-10")
