"""Usage that is told after its month was closed: billed once, as a correction, at owner and price of its own time."""

from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command

from billing.invoices.models import Invoice
from billing.usage.services import Reporter
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, money, token_record
from tests.factories.closing import blocking, close, issue, lines, prices, proofs_hold, shown, total, version
from tests.factories.months import DECEMBER_OVER, NOVEMBER_OVER

pytestmark = pytest.mark.django_db


def test_late_usage_is_billed_in_the_next_close_as_a_correction_at_the_price_of_its_time(tmp_path: Path) -> None:
    apply(tmp_path, **prices(version("2026-11", "2026-11-01T00:00:00+08:00", "20.0000", "16.0000")))
    ingest_allocations(allocation_record())
    close()
    issue()
    ingest_allocations(
        allocation_record(2),
        allocation_record(3, started_at="2026-11-05T00:00:00Z", ended_at="2026-11-05T01:00:00Z",
                          observed_until="2026-11-05T01:00:00Z"),
    )  # fmt: skip
    ingest_tokens(token_record(input_tokens=0, cache_read_input_tokens=0, output_tokens=1_000_000))
    close("2026-11", NOVEMBER_OVER)
    issue("2026-11", NOVEMBER_OVER)
    assert [
        (line["charge_class"], line["charge_period"], line["quantity"], line["unit_price"], line["amount"])
        for line in lines("nlp", "2026-11")
    ] == [
        (None, "2026-11", "8.000000", "20.0000", "160.00"),
        ("Correction", "2026-10", "20.962222", "10.0000", "209.62"),
        ("Correction", "2026-10", "1.000000", "8.0000", "8.00"),
    ]
    assert total("nlp") == money("209.62")
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def test_late_usage_is_billed_exactly_once_over_several_closes(tmp_path: Path) -> None:
    apply(tmp_path)
    close()
    ingest_allocations(allocation_record(1))
    close("2026-11", NOVEMBER_OVER)
    ingest_allocations(allocation_record(2))
    close("2026-12", DECEMBER_OVER)
    assert (total("nlp", "2026-11"), total("nlp", "2026-12")) == (money("209.62"), money("209.62"))
    assert not Invoice.objects.filter(period__month="2026-10").exists()
    assert proofs_hold("2026-11")
    assert proofs_hold("2026-12")


def test_months_closed_out_of_order_bill_everything_once(tmp_path: Path) -> None:
    apply(tmp_path)
    november = {"started_at": "2026-11-05T00:00:00Z", "ended_at": "2026-11-05T01:00:00Z", "observed_until": None}
    ingest_allocations(allocation_record(1, **november), allocation_record(2))
    close("2026-11", NOVEMBER_OVER)
    ingest_allocations(allocation_record(3, **november), allocation_record(4))
    close("2026-10", NOVEMBER_OVER)
    assert shown("nlp", "2026-11") == [("NVIDIA-H800", "2026-10", "8.000000", "10.0000", "80.00")]
    assert shown("nlp", "2026-10") == [
        ("NVIDIA-H800", "2026-10", "41.924444", "10.0000", "419.24"),
        ("NVIDIA-H800", "2026-10", "8.000000", "10.0000", "80.00"),
    ]
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def test_a_late_extension_of_an_allocation_is_a_correction_of_its_own_time(tmp_path: Path) -> None:
    apply(tmp_path)
    running = {"ended_at": None, "end_reason": None, "started_at": "2026-10-31T14:00:00Z"}
    reporter = Reporter("tests", "usage/gpu-allocations")
    ingest_allocations(allocation_record(**running, observed_until="2026-10-31T15:00:00Z"), reporter=reporter)
    call_waive("metering_gap", "hq-1/nlp-train")
    close()
    assert shown("nlp") == [("NVIDIA-H800", "2026-10", "8.000000", "10.0000", "80.00")]
    ended = {"started_at": "2026-10-31T14:00:00Z", "ended_at": "2026-10-31T17:00:00Z",
             "observed_until": "2026-10-31T17:00:00Z"}  # fmt: skip
    assert ingest_allocations(allocation_record(**ended)).accepted == 1
    close("2026-11", NOVEMBER_OVER)
    assert [(line["charge_class"], line["charge_period"], line["amount"]) for line in lines("nlp", "2026-11")] == [
        (None, "2026-11", "80.00"),
        ("Correction", "2026-10", "80.00"),
    ]
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def call_waive(kind: str, subject: str, month: str = "2026-10") -> None:
    call_command("exception_waive", month, kind, subject, reason="seen on the node itself", by="boss")


def test_an_end_inside_a_billed_month_is_a_conflict_and_changes_nothing(tmp_path: Path) -> None:
    apply(tmp_path)
    running = {"ended_at": None, "end_reason": None}
    ingest_allocations(allocation_record(**running, observed_until="2026-10-31T16:00:00Z"))
    close()
    outcome = ingest_allocations(allocation_record())
    assert (outcome.accepted, outcome.conflicts) == (0, 1)
    assert proofs_hold("2026-10")


def test_an_end_after_the_closed_month_but_before_the_last_observation_is_taken(tmp_path: Path) -> None:
    """The pod was seen until 2 November and is then told to have ended on 1 November: nothing of that is billed yet."""
    apply(tmp_path)
    start = "2026-10-31T14:00:00Z"
    ingest_allocations(
        allocation_record(started_at=start, ended_at=None, end_reason=None, observed_until="2026-11-02T00:00:00Z")
    )
    close()
    assert shown("nlp") == [("NVIDIA-H800", "2026-10", "16.000000", "10.0000", "160.00")]
    end = "2026-10-31T17:00:00Z"
    outcome = ingest_allocations(allocation_record(started_at=start, ended_at=end, observed_until=end))
    assert (outcome.accepted, outcome.conflicts) == (1, 0)
    close("2026-11", NOVEMBER_OVER)
    assert shown("nlp", "2026-11") == [("NVIDIA-H800", "2026-10", "8.000000", "10.0000", "80.00")]
    assert proofs_hold("2026-10")
    assert proofs_hold("2026-11")


def test_late_usage_without_owner_holds_the_next_close_and_is_billed_once_owned(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    close()
    ingest_allocations(allocation_record(2, namespace="lost"))
    assert blocking("2026-11", NOVEMBER_OVER) == [("unowned_namespace", "hq-1/lost", Decimal(8 * 9433), "gpu_seconds")]
    owner = {"cluster": "hq-1", "namespace": "lost", "team": "cv", "valid_from": "2026-10-01"}
    apply(tmp_path, ownership=[*SET_UP["ownership"], owner])
    close("2026-11", NOVEMBER_OVER)
    assert [(line["charge_class"], line["amount"]) for line in lines("cv", "2026-11")] == [("Correction", "209.62")]
    assert proofs_hold("2026-10")
