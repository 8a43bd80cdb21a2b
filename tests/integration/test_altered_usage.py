"""Usage that somebody changed in the database, past its services and triggers: it is not billed, and found once it is."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from billing.closing.report import build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.selectors import period_of
from billing.invoices.services.invoices import invoices_issue
from billing.tenancy.models import AuditEntry
from billing.usage.contents import ALLOCATION, content_sha256
from billing.usage.services import rollups_fold
from tests import factories
from tests.factories import AFTER, allocation_record, ingest_allocations, ingest_sample, ingest_tokens, money, token_record
from tests.factories.commands import Manage
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db
LATER = datetime(2026, 12, 3, tzinfo=UTC)
DAY = allocation_record(1, started_at="2026-10-10T00:00:00Z", ended_at="2026-10-11T00:00:00Z", observed_until=None)
CAPACITY = {"cluster": "hq-1", "node": "n", "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu", "quantity": 16,
            "from": "2026-10-01T00:00:00Z", "until": "2026-10-31T00:00:00Z"}  # fmt: skip
SAMPLE = {"cluster": "hq-1", "pod_uid": "uid-1", "start": "2026-10-10T00:00:00Z", "end": "2026-10-11T00:00:00Z",
          "gpu_seconds": "691200", "mfu": "0.40", "hfu": "0.45", "dtype": "bf16", "coverage": "1"}  # fmt: skip


@pytest.fixture
def october(tmp_path: Path) -> Iterator[None]:
    """8 GPUs for 24 hours at 10: 1,920.00. One hour more before, preempted; a request; capacity; a sample."""
    factories.apply(tmp_path)
    ingest_allocations(DAY, allocation_record(2, ended_at="2026-10-10T01:00:00Z", observed_until=None, quantity=1,
                                              end_reason="preempted", namespace="nlp-dev"))  # fmt: skip
    ingest_tokens(token_record())
    rollups_fold()
    factories.ingest_capacity(**CAPACITY)
    ingest_sample(**SAMPLE)
    yield
    # that may refer to nothing any more
    rewrite("DELETE FROM usage_allocationrevision; DELETE FROM usage_allocationinterruption")


def failing() -> list[str]:
    report = build_report(period_of("2026-10"), now=AFTER)
    assert report.closable == all(check.ok for check in report.checks)
    return [check.detail for check in report.checks if not check.ok]


def close() -> None:
    period_close(month="2026-10", actor="ops", now=AFTER)


def faults() -> list[str]:
    return [proof.recomputed for proof in period_verify(month="2026-10") if not proof.holds and proof.of_usage]


def test_what_a_superuser_made_of_eight_gpus_is_neither_a_duplicate_nor_billed(october: None) -> None:
    """Quantity 1 instead of 8: the file that is imported again conflicts, the report says so, the close is refused."""
    rewrite("UPDATE usage_gpuallocation SET quantity = 1 WHERE allocation_id = 'alloc-1'")
    said = "1 allocations not as reported, such as alloc-1"
    assert failing() == [said]
    with pytest.raises(CloseRefusedError, match=f"stored usage = reported usage: {said}"):
        close()
    assert (BillingPeriod.objects.get().status, Invoice.objects.count()) == ("open", 0)
    again = ingest_allocations(DAY)
    assert (again.duplicates, again.conflicts) == (0, 1)
    assert "alloc-1' is not stored as it was reported" in again.refusals[0].error
    rewrite("UPDATE usage_gpuallocation SET quantity = 8 WHERE allocation_id = 'alloc-1'")
    rewrite("DELETE FROM usage_quarantinedrecord")
    assert ingest_allocations(DAY).duplicates == 1
    close()
    assert (Invoice.objects.get().total, faults()) == (money("1930.00"), [])


TAMPERED = {
    "less of a day": (
        """UPDATE usage_gpuallocation SET ended_at = '2026-10-10T01:00:00Z', observed_until = '2026-10-10T01:00:00Z'
           WHERE allocation_id = 'alloc-1'""",
        "1 allocations not as reported, such as alloc-1; 1 pieces of allocations not as reported, such as alloc-1",
    ),
    "a job that is called otherwise": (
        "UPDATE usage_gpuallocation SET workload_name = 'x' WHERE allocation_id = 'alloc-1'",
        "1 allocations not as reported, such as alloc-1",
    ),
    "a hash of one's own": (
        "UPDATE usage_gpuallocation SET content_sha256 = '' WHERE allocation_id = 'alloc-1'",
        "1 allocations not as reported, such as alloc-1",
    ),
    "a shorter piece": (
        "UPDATE usage_allocationrevision SET until = until - interval '1 hour' WHERE until = '2026-10-11T00:00:00Z'",
        "1 pieces of allocations not as reported, such as alloc-1",
    ),
    "no piece": (
        "DELETE FROM usage_allocationrevision WHERE until = '2026-10-11T00:00:00Z'",
        "1 pieces of allocations not as reported, such as alloc-1",
    ),
    "no allocation": (
        "DELETE FROM usage_gpuallocation WHERE allocation_id = 'alloc-1'",
        "1 pieces of allocations not as reported, such as one that is gone; 2 allocations were accepted, 1 are stored",
    ),
    "no trace of an allocation": (
        """DELETE FROM usage_allocationrevision WHERE until = '2026-10-11T00:00:00Z';
           DELETE FROM usage_gpuallocation WHERE allocation_id = 'alloc-1'""",
        "2 allocations were accepted, 1 are stored",
    ),
    "an end that was nobody's doing": (
        "UPDATE usage_allocationinterruption SET end_reason = 'node-lost'",
        "1 ends of allocations not as reported, such as alloc-2",
    ),
    "less capacity": ("UPDATE usage_nodecapacity SET quantity = 9", "1 reports of capacity not as reported, such as hq-1/n"),
    "no capacity": ("DELETE FROM usage_nodecapacity", "1 reports of capacity were accepted, 0 are stored"),
    "a better score": (
        "UPDATE usage_efficiencysample SET mfu = 0.99", "1 efficiency samples not as reported, such as hq-1/uid-1",
    ),
    "no score": ("DELETE FROM usage_efficiencysample", "1 efficiency samples were accepted, 0 are stored"),
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERED)
def test_usage_that_was_changed_or_removed_before_the_close_is_not_billed(october: None, what: str) -> None:
    statement, said = TAMPERED[what]
    rewrite(statement)
    assert [detail for detail in failing() if "reported" in detail or "accepted" in detail] == [said]
    with pytest.raises(CloseRefusedError):
        close()
    assert (BillingPeriod.objects.get().status, Invoice.objects.count()) == ("open", 0)


ROLLED = {
    "another consumer": """INSERT INTO token_dimension (digest, source, consumer, model)
        VALUES ('x', 'litellm-hq', 'other', 'llama-3-8b');
        UPDATE token_hour SET dimension = dimension + 1; UPDATE token_day SET dimension = dimension + 1""",
    "fewer tokens in the roll-up": "UPDATE token_hour SET output_tokens = 1; UPDATE token_day SET output_tokens = 1",
    "fewer tokens in a day": "UPDATE token_day SET output_tokens = 1",
    "fewer tokens in the event": "UPDATE token_entry SET output_tokens = 1",
    "no event": "DELETE FROM token_entry",
}


@pytest.mark.parametrize("what", ROLLED)
def test_tokens_that_are_not_the_same_in_events_and_roll_ups_hold_the_report(october: None, what: str) -> None:
    rewrite(ROLLED[what])
    (detail,) = [check.detail for check in build_report(period_of("2026-10"), now=AFTER).checks if "events" in check.name]
    assert "sums" in detail
    assert not build_report(period_of("2026-10"), now=AFTER).closable


@pytest.mark.parametrize("what", [*TAMPERED, *ROLLED])
def test_usage_that_was_changed_after_the_close_is_found(october: None, what: str, capsys: Any) -> None:
    close()
    invoices_issue(month="2026-10", actor="ops", now=AFTER)
    assert faults() == []
    rewrite(TAMPERED[what][0] if what in TAMPERED else ROLLED[what])
    assert faults() != []
    verify = partial(Manage(capsys), "period_verify", "2026-10")
    said = verify()
    assert (said.status, "FAIL the usage of 2026-10: " in said.out) == (3, True)
    assert "of 1 documents follow from their usage" in said.out
    answer = json.loads(verify("--json").out)
    assert (len(answer["proofs"]), len(answer["usage"])) == (1, len(faults()))


def test_a_change_that_brings_its_own_hash_is_found_by_the_digest_of_the_close(october: None) -> None:
    """Who knows how hashes are made changes them too; the close noted what it saw, where it is chained."""
    close()
    forged = content_sha256(ALLOCATION, "a", {"quantity": "1"})
    rewrite(f"UPDATE usage_gpuallocation a SET quantity = 1, content_sha256 = {forged} WHERE allocation_id = 'alloc-1'")
    noted = AuditEntry.objects.get(action="period_close").detail["usage"]["gpu"]
    proofs = {proof.team: (proof.stored, proof.recomputed[:4]) for proof in period_verify(month="2026-10")}
    assert proofs[""] == (f"gpu {noted}", "gpu ")


def test_what_is_learned_after_a_close_changes_nothing_of_its_digest(october: None) -> None:
    """One that was seen in November ended on the first; late usage, a watched hold in place of a reconstructed, a sample."""
    seen = {"started_at": "2026-10-31T00:00:00Z", "ended_at": None, "end_reason": None}
    ingest_allocations(
        allocation_record(3, **seen, observed_until="2026-11-02T00:00:00Z"),
        allocation_record(4, **seen | {"ended_at": "2026-10-31T02:00:00Z"}, observed_until=None, node="",
                          reconstructed_from="prometheus"),
    )  # fmt: skip
    close()
    reported = seen | {"ended_at": "2026-11-01T00:00:00Z", "end_reason": "completed"}
    ingest_allocations(
        allocation_record(3, **reported, observed_until=None), allocation_record(5, end_reason="evicted"),
        allocation_record(4, **seen | {"ended_at": "2026-10-31T02:00:00Z"}, observed_until=None, queue="gold"),
        now=LATER,
    )  # fmt: skip
    ingest_tokens(token_record(9), now=LATER)
    rollups_fold()
    ingest_sample(**SAMPLE | {"pod_uid": "uid-5"})
    assert faults() == []
    period_close(month="2026-11", actor="ops", now=LATER)
    assert [proof for proof in period_verify(month="2026-11") if not proof.holds] == []
    rewrite("UPDATE token_hour SET output_tokens = 1; UPDATE token_day SET output_tokens = 1")
    late = [proof.stored.split()[0] for proof in period_verify(month="2026-11") if not proof.holds and proof.of_usage]
    assert "tokens" in late
