"""Idle time of pools and shared cost: shown to everybody, billed by a dated policy, to the cent and never twice."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from billing.closing.report import build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.invoices.line_rollups import StatementLine
from billing.invoices.models import Invoice
from billing.invoices.selectors import document_of, period_of
from billing.invoices.services.periods import period_open
from billing.portal.bridge import bridge_of
from billing.rates.models import AllocationPolicy
from billing.rating.models import IdleShare
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry
from pricing.rating import LineKey
from tests.factories import allocation_record, apply, ingest_allocations, ingest_capacity, person, signed_in
from tests.factories.corrections import NOVEMBER_OVER, proofs_hold
from tests.factories.corrections import bill as close
from tests.factories.months import OCTOBER_OVER
from tests.factories.pages import file_rows, rows_of, statements_of
from tests.factories.usage import capacity

pytestmark = pytest.mark.django_db

POOL = {"cluster": "hq-1", "accelerator": "NVIDIA-H800", "price_per_gpu_hour": "6.0000"}
PARTS = ("Adjustments", "Idle capacity", "Shared cost")
THIRDS = {"name": "idle-v1", "valid_from": "2026-10-01", "idle": [{**POOL, "method": "proportional"}]}


def hold(number: int, namespace: str, hours: int, gpus: int = 1, day: int = 10) -> None:
    start, end = f"2026-10-{day:02d}T00:00:00Z", f"2026-10-{day:02d}T{hours:02d}:00:00Z"
    ingest_allocations(
        allocation_record(
            number, namespace=namespace, quantity=gpus, started_at=start, ended_at=end, observed_until=end
        )
    )


STORE = {
    "name": "datasets", "method": "proportional",
    "storage": [{"tier": "hot", "tb_months": "2", "price_per_tb_month": "150"}],
    "requests": [{"class": "PUT", "count": "10000000", "price_per_1000": "0.005"}],
}  # fmt: skip


def test_what_a_store_keeps_and_is_asked_for_is_shared_at_its_prices(tmp_path: Path) -> None:
    """2 x 150 + 10,000 x 0.005 = 350.00, shared as 3 to 1 GPU-hours."""
    apply(tmp_path, allocation_policies=[{"name": "store-v1", "valid_from": "2026-10-01", "shared": [STORE]}])
    hold(1, "nlp-train", 3)
    hold(2, "cv", 1)
    close()
    shares = {}
    for invoice in Invoice.objects.all():
        lines = document_of(invoice)["lines"]
        shares[invoice.team.code] = [one["amount"] for one in lines if one["kind"] == "shared"]
    assert shares == {"nlp": ["262.50"], "cv": ["87.50"]}
    rule = AuditEntry.objects.get(action="allocation_policy_publish").detail["rules"]["shared"][0]
    assert (rule["amount"], rule["storage"], rule["requests"]) == ("350.00", STORE["storage"], STORE["requests"])
    assert proofs_hold("2026-10")


def test_last_months_terabytes_are_never_billed_for_this_month(tmp_path: Path) -> None:
    """October kept 2 TB: 350.00. November is closed once somebody has said that it kept 4: 600 + 50 = 650.00."""
    october = {"name": "store-2026-10", "valid_from": "2026-10-01", "shared": [STORE]}
    apply(tmp_path, allocation_policies=[october])
    hold(1, "nlp-train", 3)
    close()
    over = datetime(2026, 12, 1, 1, tzinfo=UTC)
    report = build_report(period_open(month="2026-11"), now=over)
    assert [(item.kind, item.subject, item.amount, item.blocks) for item in report.exceptions] == [
        ("shared_cost_unknown", "datasets", None, True)
    ]
    with pytest.raises(CloseRefusedError) as refused:
        period_close(month="2026-11", actor="ops", now=over)
    assert [item.kind for item in refused.value.report.blocking] == ["shared_cost_unknown"]
    kept = {**STORE, "storage": [{**STORE["storage"][0], "tb_months": "4"}]}
    november = {"name": "store-2026-11", "valid_from": "2026-11-01", "shared": [kept]}
    apply(tmp_path, allocation_policies=[october, november])
    ingest_allocations(
        allocation_record(2, quantity=1, started_at="2026-11-10T00:00:00Z", ended_at="2026-11-10T01:00:00Z",
                          observed_until="2026-11-10T01:00:00Z")
    )  # fmt: skip
    close("2026-11", over)
    assert lines("nlp", "shared", month="2026-11") == [("shared", "datasets", "proportional", "store-2026-11", "650.00")]
    assert lines("nlp", "shared") == [("shared", "datasets", "proportional", "store-2026-10", "350.00")]
    assert proofs_hold("2026-10", "2026-11")


def test_a_flat_amount_per_month_needs_no_figures(tmp_path: Path) -> None:
    flat = {"name": "gateway", "amount_per_month": "1000.00", "method": "even"}
    apply(tmp_path, allocation_policies=[{"name": "flat", "valid_from": "2026-10-01", "shared": [flat]}])
    hold(1, "nlp-train", 3)
    close()
    assert build_report(period_open(month="2026-11"), now=datetime(2026, 12, 1, 1, tzinfo=UTC)).exceptions == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"amount_per_month": "5"}, "amount_per_month: is given beside storage and requests"),
        ({"requests": [{"class": "PUT", "count": "many", "price_per_1000": "1"}]}, "requests.0..count: 'many'"),
        ({"storage": [{"tier": "a", "tb_months": "0", "price_per_tb_month": "1"}], "requests": None}, "costs nothing"),
    ],
)
def test_a_bad_store_is_refused_with_its_field(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    rule = {name: value for name, value in {**STORE, **changed}.items() if value is not None}
    with pytest.raises(SetUpFileError, match=says):
        apply(tmp_path, allocation_policies=[{"name": "store-v1", "valid_from": "2026-10-01", "shared": [rule]}])


def test_bytes_are_kept_over_the_seconds_of_the_policys_own_month(tmp_path: Path) -> None:
    """2 TB over 30 of November's 30 days are 2 TB-months; over October's 31 days they would be 1.935."""
    kept = {"tier": "hot", "byte_seconds": 2 * 10**12 * 2_592_000, "price_per_tb_month": "150"}
    rule = {"name": "datasets", "method": "even", "storage": [kept], "month_seconds": 2_678_400}
    policy = {"name": "store-2026-11", "valid_from": "2026-11-01", "shared": [rule]}
    says = r"shared\[0\].month_seconds: 2678400 must be 2592000, the seconds of 2026-11, with which the policy begins"
    with pytest.raises(SetUpFileError, match=says):
        apply(tmp_path, allocation_policies=[policy])
    for _ in range(2):  # what is stored may be declared again
        apply(tmp_path, allocation_policies=[{**policy, "shared": [{**rule, "month_seconds": 2_592_000}]}])
    assert AllocationPolicy.objects.get().rules["shared"][0]["amount"] == "300.00"


def lines(team: str, *kinds: str, month: str = "2026-10") -> list[tuple[str, str, str, str, str]]:
    document = document_of(Invoice.objects.get(period__month=month, team__code=team))
    return [
        (line["kind"], line["sku"], line["reason"], line["policy"], line["amount"])
        for line in document["lines"] if line["kind"] in kinds
    ]  # fmt: skip


def used_ten_and_twenty(tmp_path: Path, **sections: Any) -> None:
    """A pool of 100 GPU-hours: nlp holds 10 (100.00), cv 20 (200.00), the platform 9; 61 are idle."""
    apply(tmp_path, **sections)
    capacity()
    hold(1, "nlp-train", 10)
    hold(2, "cv", 10, gpus=2)
    hold(3, "serving", 9)


def test_without_a_policy_idle_time_is_shown_and_billed_to_nobody(tmp_path: Path) -> None:
    """61 idle hours in proportion to 10 and 20: 20.333333 and 40.666667."""
    used_ten_and_twenty(tmp_path)
    (pool,) = build_report(period_of("2026-10"), now=OCTOBER_OVER).pools
    assert {team: round(Decimal(value) / 3600, 6) for team, value in pool["idle_shares"].items()} == {
        "nlp": Decimal("20.333333"), "cv": Decimal("40.666667"),
    }  # fmt: skip
    assert pool["idle_billed"] is None
    close()
    assert {invoice.team.code: invoice.total for invoice in Invoice.objects.select_related("team")} == {
        "nlp": Decimal("100.00"), "cv": Decimal("200.00"),
    }  # fmt: skip


def test_idle_time_of_a_pool_whose_capacity_is_known_from_mid_month_on_blocks_a_close_that_bills_it(tmp_path: Path) -> None:
    """10 devices are known for 10 hours of the 10th. 3 devices were used for 10 hours then, and 2 for 9 hours on the 5th:
    70 hours were idle on the 10th, and 100 - 30 - 18 = 52 are billed.
    """
    apply(tmp_path, allocation_policies=[THIRDS])
    capacity()
    hold(1, "nlp-train", 10)
    hold(2, "cv", 10, gpus=2)
    assert build_report(period_of("2026-10"), now=OCTOBER_OVER).blocking == []
    hold(3, "cv", 9, gpus=2, day=5)
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert report.gpu_seconds["idle"] == 52 * 3600
    (found,) = report.blocking
    assert (found.kind, found.subject, found.quantity, found.unit) == (
        "idle_capacity_unknown", "hq-1/NVIDIA-H800", 18 * 3600, "gpu_seconds"
    )  # fmt: skip
    assert "taken off the idle time that is billed" in str(found.action)
    (check,) = [check for check in report.checks if str(check.name) == "charged + platform + idle = capacity"]
    assert "capacity unknown for a part of the month in hq-1/NVIDIA-H800, whose idle time is too low" in str(check.detail)
    with pytest.raises(CloseRefusedError):
        close()
    capacity(day=5, hours=9, units=2)
    assert build_report(period_of("2026-10"), now=OCTOBER_OVER).blocking == []


def test_of_a_pool_that_no_policy_bills_unknown_capacity_is_shown_and_blocks_nothing(tmp_path: Path) -> None:
    apply(tmp_path)
    capacity()
    hold(1, "nlp-train", 10)
    hold(3, "cv", 9, gpus=2, day=15)
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert report.blocking == []
    (check,) = [check for check in report.checks if str(check.name) == "charged + platform + idle = capacity"]
    assert "capacity unknown for a part of the month in hq-1/NVIDIA-H800" in str(check.detail)


def test_by_policy_idle_time_is_split_in_proportion_to_use_to_the_cent(tmp_path: Path) -> None:
    """61 h at 6 are 366.00: 122.00 and 244.00. The account of capacity does not change."""
    used_ten_and_twenty(tmp_path, allocation_policies=[THIRDS])
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    hours = {name: int(value or 0) / 3600 for name, value in report.gpu_seconds.items()}
    assert hours == {"charged": 30, "platform": 9, "unowned": 0, "unpriced": 0, "idle": 61, "capacity": 100}
    assert report.pools[0]["idle_billed"] == "366.00"
    close()
    assert lines("nlp", "idle") == [("idle", "NVIDIA-H800", "proportional", "idle-v1", "122.00")]
    assert lines("cv", "idle") == [("idle", "NVIDIA-H800", "proportional", "idle-v1", "244.00")]
    assert proofs_hold("2026-10")


def test_evenly_and_by_fixed_shares_the_parts_add_up_to_the_whole(tmp_path: Path) -> None:
    """Idle 61 h at 6.0005 are 366.0305, so 366.03: evenly 183.02 (the earlier name) and 183.01.

    Shared: 100.00 by 2/3 and 1/3 as ratios of six digits is 66.67 and 33.33; 99.99 in proportion to 100 and 200 charged
    is 33.33 and 66.66.
    """
    policy = {
        "name": "all-v1", "valid_from": "2026-10-01",
        "idle": [{**POOL, "price_per_gpu_hour": "6.0005", "method": "even"}],
        "shared": [
            {"name": "gateway", "amount_per_month": "100.00", "method": "fixed",
             "shares": {"nlp": "0.666667", "cv": "0.333333"}},
            {"name": "registry", "amount_per_month": "99.99", "method": "proportional"},
        ],
    }  # fmt: skip
    used_ten_and_twenty(tmp_path, allocation_policies=[policy])
    close()
    assert lines("cv", "idle", "shared") == [
        ("idle", "NVIDIA-H800", "even", "all-v1", "183.02"),
        ("shared", "gateway", "fixed", "all-v1", "33.33"), ("shared", "registry", "proportional", "all-v1", "66.66"),
    ]  # fmt: skip
    assert lines("nlp", "idle", "shared") == [
        ("idle", "NVIDIA-H800", "even", "all-v1", "183.01"),
        ("shared", "gateway", "fixed", "all-v1", "66.67"), ("shared", "registry", "proportional", "all-v1", "33.33"),
    ]  # fmt: skip
    assert proofs_hold("2026-10")


def test_a_pool_that_nobody_used_stays_with_the_platform(tmp_path: Path) -> None:
    apply(tmp_path, allocation_policies=[THIRDS])
    capacity()
    close()
    assert not Invoice.objects.exists()


def test_what_comes_late_changes_nothing_that_was_billed(tmp_path: Path) -> None:
    """Capacity that a node reports after the close, and usage: the usage is a correction, the idle line stays."""
    used_ten_and_twenty(tmp_path, allocation_policies=[THIRDS])
    close()
    capacity(units=90, node="n2")
    hold(4, "nlp-train", 5, day=11)
    assert proofs_hold("2026-10")
    ingest_capacity(cluster="hq-1", node="n1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=1,
                    **{"from": "2026-11-10T00:00:00Z", "until": "2026-11-10T01:00:00Z"})  # fmt: skip
    close("2026-11", NOVEMBER_OVER)
    document = document_of(Invoice.objects.get(period__month="2026-11"))
    assert [(line["kind"], line["charge_class"], line["amount"]) for line in document["lines"]] == [
        ("gpu", "Correction", "50.00")
    ]
    assert proofs_hold("2026-10", "2026-11")


def test_the_preview_is_the_invoice_and_the_pages_say_what_it_is(tmp_path: Path) -> None:
    used_ten_and_twenty(tmp_path, allocation_policies=[THIRDS])
    client = signed_in(person("fin", "finance"))
    preview = client.get("/teams/nlp/", {"month": "2026-10"}).content.decode()
    before = statements_of()
    close()
    after = statements_of()
    assert [(x.key, x.amount) for x in before.statements[0].lines] == [(x.key, x.amount) for x in after.statements[0].lines]
    issued = client.get("/teams/nlp/", {"month": "2026-10"}).content.decode()
    for page in (preview, issued):
        assert "Idle capacity of the pools in use" in page
        assert "61.0" in page
        assert "20.3" in page
        assert "122.00" in page
    line = next(x for x in after.statements[0].lines if x.key.kind == "idle")
    shown = client.get(f"/teams/nlp/lines/{line.digest}/", {"month": "2026-10"}).content.decode()
    for text in ("split to the cent", "61.0", "at 6.0000 CNY each", "20.3"):
        assert text in shown
    assert IdleShare.objects.get(team="nlp").pool_idle_us == 61 * 3_600_000_000


def test_idle_time_and_shared_cost_are_parts_of_their_own_on_every_page(tmp_path: Path) -> None:
    """61 idle GPU-hours at 6.00 as 10 to 20 (122.00, 244.00), a store of 350.00 as 116.67 and 233.33, devices at 10.00."""
    used_ten_and_twenty(tmp_path, allocation_policies=[{**THIRDS, "shared": [STORE]}])
    client = signed_in(person("fin", "finance"))
    names = ("gpu", "tokens", "adjustments", "idle", "shared", "total")
    nlp = ["100.00", "0.00", "0.00", "122.00", "116.67", "338.67"]
    cv = ["200.00", "0.00", "0.00", "244.00", "233.33", "677.33"]

    def figures(path: str) -> dict[str, list[str]]:
        return {row["team"]: [row[name] for name in names] for row in rows_of(client, path)}

    def shown() -> None:
        for path in ("/overview/?month=2026-10&table=teams&as=csv", "/spending/?month=2026-10&table=split&as=csv"):
            assert figures(path) == {"nlp": nlp, "cv": cv}
        for path in ("/overview/?month=2026-10", "/spending/?month=2026-10", "/recovery/?month=2026-10"):
            page = client.get(path).content.decode()
            heads = re.findall(r'<th scope="col" class="n wide">([^<]*)</th>', page)
            assert tuple(head for head in heads if head in PARTS) == PARTS

    close()
    shown()
    (month,) = rows_of(client, "/recovery/?month=2026-10&table=months&as=csv")
    assert [month[name] for name in ("gpu", "tokens", "adjustments", "idle", "shared", "noted", "net")] == [
        "300.00", "0.00", "0.00", "366.00", "350.00", "0.00", "1016.00",
    ]  # fmt: skip


def test_the_month_before_is_compared_by_kinds_of_line() -> None:
    """Idle 100.00 to 60.00, shared 0.00 to 30.00, an unused commitment 0.00 to 5.00: no step is called other."""

    def line(kind: str, amount: str, **facts: Any) -> StatementLine:
        key = LineKey(team="nlp", platform=False, correction=False, charge_period="2026-10", kind=kind, **facts)
        return StatementLine(key, 0, Decimal(1), Decimal(amount), Decimal(amount), None)

    found = bridge_of([line("idle", "100.00")], [line("idle", "60.00"), line("shared", "30.00"), line("commitment", "5.00")])
    assert [(step.name, step.amount) for step in found.effects] == [
        ("commitment", Decimal("5.00")), ("idle", Decimal("-40.00")), ("shared", Decimal("30.00")),
    ]  # fmt: skip
    assert found.change == Decimal("-5.00")


def test_focus_and_journal_carry_the_parts_with_ratios_that_add_up_to_one(tmp_path: Path) -> None:
    used_ten_and_twenty(tmp_path, allocation_policies=[THIRDS])
    close()
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    rows = file_rows(tmp_path / "focus-cost-and-usage-2026-10.csv")
    parts = [row for row in rows if row["AllocatedMethodId"]]
    names = ("BillingAccountId", "ChargeCategory", "BilledCost", "AllocatedResourceId")
    assert [tuple(row[name] for name in names) for row in parts] == [
        ("cv", "Adjustment", "244.00", "hq-1/NVIDIA-H800"), ("nlp", "Adjustment", "122.00", "hq-1/NVIDIA-H800"),
    ]  # fmt: skip
    assert {row["AllocatedTags"] for row in parts} == {'{"suanpan/accelerator":"NVIDIA-H800","suanpan/cluster":"hq-1"}'}
    assert {row["AllocatedTags"] for row in rows if not row["AllocatedMethodId"]} == {""}
    ratios = [
        json.loads(row["AllocatedMethodDetails"], parse_float=Decimal)["Elements"][0]["AllocatedRatio"] for row in parts
    ]
    assert ratios == [Decimal("0.666666666667"), Decimal("0.333333333333")]
    assert sum(ratios) == 1
    call_command("export_journal", "2026-10", "--out", str(tmp_path / "journal.csv"))
    assert "allocated idle capacity" in (tmp_path / "journal.csv").read_text()
    call_command("export_invoices", "2026-10", "--out", str(tmp_path))
    assert len(list(tmp_path.glob("*.pdf"))) == 2


def test_a_policy_is_published_once_audited_and_never_changes(tmp_path: Path) -> None:
    apply(tmp_path, allocation_policies=[THIRDS])
    assert apply(tmp_path, allocation_policies=[THIRDS]).changes == []
    assert AuditEntry.objects.filter(action="allocation_policy_publish").count() == 1
    with pytest.raises(SetUpFileError, match="differs in rules"):
        apply(tmp_path, allocation_policies=[{**THIRDS, "idle": [{**POOL, "method": "even"}]}])
    with pytest.raises(DatabaseError, match="never changes"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE rates_allocationpolicy SET rules = '{}'")


def test_a_policy_that_would_change_a_closed_month_is_refused(tmp_path: Path) -> None:
    used_ten_and_twenty(tmp_path)
    close()
    with pytest.raises(SetUpFileError, match="2026-10"):
        apply(tmp_path, allocation_policies=[THIRDS])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"valid_from": "2026-10-02"}, "start of a billing month"),
        ({"idle": []}, "the policy says nothing"),
        ({"idle": [{**POOL, "method": "by weight"}]}, "idle[0].method"),
        ({"idle": [{**POOL, "method": "fixed"}]}, "shares are given"),
        ({"idle": [{**POOL, "method": "fixed", "shares": {"nlp": "0.5", "cv": "0.4"}}]}, "add up to 1"),
        ({"idle": [{**POOL, "method": "fixed", "shares": {"nobody": "1"}}]}, "not declared"),
        ({"idle": [{**POOL, "method": "even"}, {**POOL, "method": "even"}]}, "twice"),
    ],
)
def test_a_policy_that_says_nothing_clear_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SetUpFileError) as refused:
        apply(tmp_path, allocation_policies=[{**THIRDS, **changed}])
    assert message in str(refused.value)
