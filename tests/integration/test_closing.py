"""Closing a month: everything billed once, at the price of its own time, and never changed again."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command

from billing.closing.report import build_report
from billing.closing.services.closing import CloseRefusedError
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.services.periods import period_open
from billing.rating.models import Charge
from billing.setup.file import SetUpFileError
from billing.usage.models import AllocationRevision, QuarantinedRecord
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, money, person, token_record
from tests.factories.closing import blocking, close, close_cut_off, issue, lines, proofs_hold, shown, total, version
from tests.factories.months import NOVEMBER_OVER, OCTOBER_OVER

pytestmark = pytest.mark.django_db

# The worked example


def test_the_worked_example_is_billed_to_the_cent(tmp_path: Path) -> None:
    apply(tmp_path)
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


def test_a_team_without_usage_gets_no_invoice(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    close()
    assert list(Invoice.objects.values_list("team__code", flat=True)) == ["nlp"]


def test_a_month_without_usage_closes_without_invoices(tmp_path: Path) -> None:
    apply(tmp_path)
    assert (close().invoices, issue()) == (0, 0)


# What blocks


def test_an_unowned_consumer_blocks(tmp_path: Path) -> None:
    apply(tmp_path)
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


def test_the_same_consumer_of_another_source_has_its_own_owner(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(source="elsewhere"))
    assert blocking() == [("unowned_consumer", "elsewhere/nlp-key-1", Decimal(1100), "tokens")]


def test_an_unpriced_model_blocks_with_every_class(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(model="qwen"))
    assert blocking() == [
        ("unpriced", "qwen cache_read", Decimal(200), "tokens"),
        ("unpriced", "qwen input", Decimal(800), "tokens"),
        ("unpriced", "qwen output", Decimal(100), "tokens"),
    ]


def test_a_month_that_is_not_over_blocks(tmp_path: Path) -> None:
    apply(tmp_path)
    one_second_before = datetime(2026, 10, 31, 15, 59, 59, tzinfo=UTC)
    assert blocking(now=one_second_before) == [("period_not_ended", "2026-10", Decimal(1), "seconds")]
    assert blocking(now=datetime(2026, 10, 31, 16, tzinfo=UTC)) == []


def test_an_open_allocation_not_seen_until_the_end_blocks(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(ended_at=None, end_reason=None, observed_until="2026-10-31T15:00:00Z"))
    assert blocking() == [("metering_gap", "hq-1/nlp-train", Decimal(3600), "seconds")]
    ingest_allocations(allocation_record(ended_at=None, end_reason=None, observed_until="2026-10-31T16:00:00Z"))
    assert blocking() == []


def test_a_quarantined_record_of_the_month_blocks_until_dismissed(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(output_tokens=-1))
    assert blocking() == [("quarantine", "tests via usage/tokens", Decimal(1), "records")]
    record = QuarantinedRecord.objects.get()
    person("ops", "admin")
    call_command("quarantine", dismiss=record.pk, reason="a test of the gateway", by="ops")
    assert blocking() == []


def test_a_record_quarantined_after_the_close_of_its_month_holds_the_next_close(tmp_path: Path) -> None:
    """Late usage is billed in the next close; so late usage that could not be read must hold that close."""
    apply(tmp_path)
    ingest_allocations(allocation_record())
    close()
    ingest_tokens(token_record(output_tokens=-1))
    assert blocking("2026-11", NOVEMBER_OVER) == [("quarantine", "tests via usage/tokens", Decimal(1), "records")]


def test_the_platforms_own_usage_is_not_invoiced_but_accounted_for(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(), allocation_record(2, namespace="serving"))
    report = build_report(period_open(month="2026-10"), now=OCTOBER_OVER)
    assert report.gpu_seconds["platform"] == report.gpu_seconds["charged"] == Decimal(8 * 9433)
    close()
    assert list(Invoice.objects.values_list("team__code", "total")) == [("nlp", money("209.62"))]
    assert list(Charge.objects.filter(platform=True).values_list("team", "namespace")) == [("platform", "serving")]


# Commands say what blocks the close


def test_the_close_command_exits_3_and_names_subject_and_quantity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(tmp_path, price_versions=[version("2024", "2024-01-01", "10.0000")])
    long_ago = {"started_at": "2024-10-10T00:00:00Z", "ended_at": "2024-10-10T02:37:13Z", "observed_until": None}
    owned_then = [{**SET_UP["ownership"][0], "valid_from": "2024-01-01"}]
    apply(tmp_path, price_versions=None, ownership=owned_then)
    ingest_allocations(allocation_record(namespace="lost", **long_ago), allocation_record(2, accelerator="X9", **long_ago))
    with pytest.raises(SystemExit) as stopped:
        call_command("period_close", "2024-10")
    assert stopped.value.code == 3
    said = capsys.readouterr()
    assert "unowned_namespace hq-1/lost: 75,464 gpu_seconds" in said.out
    assert "unpriced X9: 75,464 gpu_seconds" in said.out
    assert said.err.startswith("refused: ")


# Once


def test_a_second_close_changes_nothing(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    close()
    issue()
    before = list(Invoice.objects.values_list()), list(Charge.objects.values_list()), list(BillingPeriod.objects.values())
    again = close(now=NOVEMBER_OVER)
    assert (again.changed, again.invoices, issue(now=NOVEMBER_OVER)) == (False, 1, 0)
    after = list(Invoice.objects.values_list()), list(Charge.objects.values_list()), list(BillingPeriod.objects.values())
    assert before == after


def test_invoices_are_numbered_by_team_and_chained_by_hash(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(), allocation_record(2, namespace="cv"))
    close()
    assert issue() == 2
    first, second = Invoice.objects.order_by("sequence")
    assert (first.number, first.team.code, first.previous_sha256) == ("AI-INFRA-2026-000001", "cv", "")
    assert (second.number, second.team.code, second.previous_sha256) == ("AI-INFRA-2026-000002", "nlp", first.sha256)
    assert proofs_hold("2026-10")


def test_a_close_that_died_between_cut_off_and_bill_is_finished_with_the_same_result(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    period_open(month="2026-10")
    close_cut_off()
    ingest_allocations(allocation_record(2))
    closed = close()
    assert (closed.changed, total("nlp")) == (True, money("209.62"))
    assert proofs_hold("2026-10")


def test_ownership_that_ends_between_cut_off_and_bill_loses_no_usage(tmp_path: Path) -> None:
    """What the cut-off found owned must not fall out of the bill in silence."""
    apply(tmp_path)
    ingest_allocations(allocation_record())
    period_open(month="2026-10")
    close_cut_off()
    ended = {**SET_UP["ownership"][0], "valid_until": "2026-02-01"}
    refused = False
    try:
        apply(tmp_path, ownership=[ended, SET_UP["ownership"][1]])
        close()
    except (SetUpFileError, CloseRefusedError):
        refused = True
    assert refused or total("nlp") == money("209.62")


# Slices, zones and cuts


def test_slices_are_priced_per_slice_hour(tmp_path: Path) -> None:
    apply(tmp_path)
    mig = {"resource": "nvidia.com/mig-1g.10gb", "quantity": 3, "device_fraction": "0.142857142857"}
    ingest_allocations(allocation_record(**mig))
    close()
    assert [(line["unit"], line["quantity"], line["amount"]) for line in lines("nlp")] == [
        ("Slice-Hours", "7.860833", "13.48")  # 3 x 9433 s / 3600 x 1.7143 = 13.4758...
    ]


def test_a_slice_without_a_price_of_its_own_costs_its_fraction_of_the_accelerator(tmp_path: Path) -> None:
    apply(tmp_path)
    mig = {"resource": "nvidia.com/mig-2g.20gb", "quantity": 2, "device_fraction": "0.25"}
    ingest_allocations(allocation_record(**mig))
    close()
    assert shown("nlp") == [("NVIDIA-H800", "2026-10", "1.310139", "10.0000", "13.10")]


@pytest.mark.parametrize(
    ("zone", "first", "last", "hours"),
    [
        ("Asia/Shanghai", "2026-09-30T16:00:00Z", "2026-10-31T16:00:00Z", 744),
        ("Europe/Berlin", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z", 745),
        ("Asia/Kolkata", "2026-09-30T18:30:00Z", "2026-10-31T18:30:00Z", 744),
        ("Asia/Kathmandu", "2026-09-30T18:15:00Z", "2026-10-31T18:15:00Z", 744),
    ],
)
def test_a_month_has_the_hours_of_its_zone_and_tokens_at_its_bounds_are_counted_once(
    tmp_path: Path, zone: str, first: str, last: str, hours: int
) -> None:
    apply(
        tmp_path, billing={**SET_UP["billing"], "zone": zone},
        price_versions=[version("2026", "2026-01-01T00:00:00Z", "10.0000")],
    )  # fmt: skip
    ingest_allocations(
        allocation_record(started_at="2026-09-01T00:00:00Z", ended_at="2026-11-29T00:00:00Z",
                          observed_until="2026-11-29T00:00:00Z", quantity=1)
    )  # fmt: skip
    only_output = {"input_tokens": 0, "cache_read_input_tokens": 0, "reasoning_output_tokens": 0}

    def before(instant: str) -> str:
        moment = datetime.fromisoformat(instant).timestamp() - 1
        return datetime.fromtimestamp(moment, UTC).replace(microsecond=999_999).isoformat()

    ingest_tokens(
        token_record(1, time=before(first), output_tokens=1, **only_output),
        token_record(2, time=first, output_tokens=10, **only_output),
        token_record(3, time=before(last), output_tokens=100, **only_output),
        token_record(4, time=last, output_tokens=1000, **only_output),
    )
    now = datetime(2026, 11, 30, tzinfo=UTC)
    close(now=now)
    assert [(line["kind"], line["quantity"], line["amount"]) for line in lines("nlp")] == [
        ("gpu", f"{hours}.000000", f"{hours * 10}.00"),
        ("tokens", "0.000110", "0.00"),
    ]
    period = BillingPeriod.objects.get()
    assert (period.end - period.start).total_seconds() == hours * 3600
    assert proofs_hold("2026-10")


def test_a_sub_microsecond_hold_does_not_exist_and_one_of_no_length_is_free(tmp_path: Path) -> None:
    apply(tmp_path)
    instant = "2026-10-15T14:00:00Z"
    ingest_allocations(allocation_record(started_at=instant, ended_at=instant, observed_until=instant))
    assert AllocationRevision.objects.count() == 0
    assert close().invoices == 0
