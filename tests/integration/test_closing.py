"""Closing a month: everything billed once, at the price of its own time, and never changed again."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command

from billing.closing.report import build_report
from billing.closing.services.closing import CloseRefusedError
from billing.closing.services.waivers import exception_waive
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.services.periods import period_open
from billing.rating.models import Charge
from billing.usage.models import AllocationRevision, QuarantinedRecord
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, money, person, token_record
from tests.factories.closing import blocking, close, issue, lines, proofs_hold, shown, total, version
from tests.factories.months import NOVEMBER_OVER, OCTOBER_OVER

pytestmark = pytest.mark.django_db

# The worked example


@pytest.fixture(autouse=True, scope="module")
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests)


def test_the_worked_example_is_billed_to_the_cent() -> None:
    ingest_allocations(allocation_record())
    ingest_tokens(
        token_record(input_tokens=1_000_000, cache_read_input_tokens=250_000, output_tokens=123_456),
        token_record(2, input_tokens=0, cache_read_input_tokens=0, output_tokens=0, reasoning_output_tokens=0),
    )
    closed = close()
    assert (closed.changed, closed.invoices) == (True, 1)
    assert shown("nlp") == [
        ("NVIDIA-H800", "2026-10", "20.962222", "10.0000", "209.62"),
        ("cache_read", "2026-10", "0.250000", "0.2000", "0.05"),
        ("input", "2026-10", "0.750000", "2.0000", "1.50"),
        ("output", "2026-10", "0.123456", "8.0000", "0.99"),
    ]
    assert total("nlp") == money("212.16")
    assert (issue(), proofs_hold("2026-10")) == (1, True)
    recipient = json.loads(Invoice.objects.get().document)["recipient"]
    assert recipient == {"team": "nlp", "name": "NLP Research", "cost_center": "CC-210"}


# What blocks


def test_an_unowned_consumer_blocks(tmp_path: Path) -> None:
    ingest_tokens(token_record(consumer="stranger"))
    assert blocking() == [("unowned_consumer", "litellm-hq/stranger", Decimal(1100), "tokens")]
    with pytest.raises(CloseRefusedError):
        close()
    owner = {"source": "litellm-hq", "consumer": "stranger", "team": "cv", "valid_from": "2026-10-01"}
    apply(tmp_path, consumers=[*SET_UP["consumers"], owner])
    close()
    assert shown("cv") == [
        ("cache_read", "2026-10", "0.000200", "0.2000", "0.00"),
        ("input", "2026-10", "0.000800", "2.0000", "0.00"),
        ("output", "2026-10", "0.000100", "8.0000", "0.00"),
    ]


def test_the_same_consumer_of_another_source_has_its_own_owner() -> None:
    ingest_tokens(token_record(source="elsewhere"))
    assert blocking() == [("unowned_consumer", "elsewhere/nlp-key-1", Decimal(1100), "tokens")]


def test_a_month_that_is_not_over_blocks() -> None:
    one_second_before = datetime(2026, 10, 31, 15, 59, 59, tzinfo=UTC)
    assert blocking(now=one_second_before) == [("period_not_ended", "2026-10", Decimal(1), "seconds")]
    assert blocking(now=datetime(2026, 10, 31, 16, tzinfo=UTC)) == []


def test_an_open_allocation_not_seen_until_the_end_blocks() -> None:
    ingest_allocations(allocation_record(ended_at=None, end_reason=None, observed_until="2026-10-31T15:00:00Z"))
    assert blocking() == [("metering_gap", "hq-1/nlp-train", Decimal(3600), "seconds")]
    ingest_allocations(allocation_record(ended_at=None, end_reason=None, observed_until="2026-10-31T16:00:00Z"))
    assert blocking() == []


def test_a_quarantined_record_of_the_month_blocks_until_dismissed() -> None:
    ingest_tokens(token_record(output_tokens=-1))
    assert blocking() == [("quarantine", "tests via usage/tokens", Decimal(1), "records")]
    record = QuarantinedRecord.objects.get()
    person("ops", "admin")
    call_command("quarantine", dismiss=record.pk, reason="a test of the gateway", by="ops")
    assert blocking() == []


def test_a_record_quarantined_after_the_close_of_its_month_holds_the_next_close() -> None:
    """Late usage is billed in the next close; so late usage that could not be read must hold that close."""
    ingest_allocations(allocation_record())
    close()
    ingest_tokens(token_record(output_tokens=-1))
    assert blocking("2026-11", NOVEMBER_OVER) == [("quarantine", "tests via usage/tokens", Decimal(1), "records")]


def test_the_platforms_own_usage_is_not_invoiced_but_accounted_for() -> None:
    ingest_allocations(allocation_record(), allocation_record(2, namespace="serving"))
    report = build_report(period_open(month="2026-10"), now=OCTOBER_OVER)
    assert report.gpu_seconds["platform"] == report.gpu_seconds["charged"] == Decimal(8 * 9433)
    close()
    assert list(Invoice.objects.values_list("team__code", "total")) == [("nlp", money("209.62"))]
    assert list(Charge.objects.filter(platform=True).values_list("team", "namespace")) == [("platform", "serving")]


# Once


def test_a_second_close_changes_nothing() -> None:
    ingest_allocations(allocation_record())
    close()
    issue()
    before = list(Invoice.objects.values_list()), list(Charge.objects.values_list()), list(BillingPeriod.objects.values())
    again = close(now=NOVEMBER_OVER)
    assert (again.changed, again.invoices, issue(now=NOVEMBER_OVER)) == (False, 1, 0)
    after = list(Invoice.objects.values_list()), list(Charge.objects.values_list()), list(BillingPeriod.objects.values())
    assert before == after


def test_invoices_are_numbered_by_team_and_chained_by_hash() -> None:
    ingest_allocations(allocation_record(), allocation_record(2, namespace="cv"))
    close()
    assert issue() == 2
    first, second = Invoice.objects.order_by("sequence")
    assert (first.number, first.team.code, first.previous_sha256) == ("AI-INFRA-2026-000001", "cv", "")
    assert (second.number, second.team.code, second.previous_sha256) == ("AI-INFRA-2026-000002", "nlp", first.sha256)
    assert proofs_hold("2026-10")


def test_usage_of_a_closed_month_that_is_reported_again_under_another_name_blocks_the_close_that_would_bill_it() -> None:
    """2 h 37 min 13 s of October, 209.62, come again in November; what October itself holds twice was decided there."""
    pod = "0b4f2c1e-5d3a-4c57-9a10-3f2e6d7c8b90"
    ingest_allocations(allocation_record(pod_uid=pod), *(
        allocation_record(number, pod_uid="uid-2", started_at=f"2026-10-11T0{number}:00:00Z", quantity=1,
                          ended_at="2026-10-11T04:00:00Z", observed_until=None) for number in (2, 3)
    ))  # fmt: skip
    exception_waive(
        period=period_open(month="2026-10"), kind="overlap", subject="hq-1/uid-2", reason="two queues", actor="lin",
        now=OCTOBER_OVER,
    )  # fmt: skip
    close()
    issue()
    assert blocking("2026-11", NOVEMBER_OVER) == []
    ingest_allocations(allocation_record(4, pod_uid=pod, cluster="hq-new", namespace="train"), now=NOVEMBER_OVER)
    found = blocking("2026-11", NOVEMBER_OVER)
    assert [item[0] for item in found] == ["unowned_namespace", "overlap"]
    assert found[1] == ("overlap", f"hq-new/{pod}, 2026-10", Decimal(9433), "seconds")


# Slices, zones and cuts


def test_slices_are_priced_per_slice_hour() -> None:
    mig = {"resource": "nvidia.com/mig-1g.10gb", "quantity": 3, "device_fraction": "0.142857142857"}
    ingest_allocations(allocation_record(**mig))
    close()
    assert [(line["unit"], line["quantity"], line["amount"]) for line in lines("nlp")] == [
        ("Slice-Hours", "7.860833", "13.48")  # 3 x 9433 s / 3600 x 1.7143 = 13.4758...
    ]


def test_a_slice_without_a_price_of_its_own_costs_its_fraction_of_the_accelerator() -> None:
    mig = {"resource": "nvidia.com/mig-2g.20gb", "quantity": 2, "device_fraction": "0.25"}
    ingest_allocations(allocation_record(**mig))
    close()
    assert shown("nlp") == [("NVIDIA-H800", "2026-10", "1.310139", "10.0000", "13.10")]


def test_tokens_at_the_bounds_of_a_month_are_counted_once(tmp_path: Path) -> None:
    billing = {**SET_UP["billing"], "zone": "Europe/Berlin"}
    apply(tmp_path, billing=billing, price_versions=[version("2026", "2026-01-01T00:00:00Z", "10.0000")])
    only_output = {"input_tokens": 0, "cache_read_input_tokens": 0, "reasoning_output_tokens": 0}
    ingest_tokens(
        token_record(1, time="2026-09-30T21:59:59.999999Z", output_tokens=1, **only_output),
        token_record(2, time="2026-09-30T22:00:00Z", output_tokens=10, **only_output),
        token_record(3, time="2026-10-31T22:59:59.999999Z", output_tokens=100, **only_output),
        token_record(4, time="2026-10-31T23:00:00Z", output_tokens=1000, **only_output),
    )
    close()
    assert [line["quantity"] for line in lines("nlp")] == ["0.000110"]


def test_a_sub_microsecond_hold_does_not_exist_and_one_of_no_length_is_free() -> None:
    instant = "2026-10-15T14:00:00Z"
    ingest_allocations(allocation_record(started_at=instant, ended_at=instant, observed_until=instant))
    assert AllocationRevision.objects.count() == 0
    assert close().invoices == 0
