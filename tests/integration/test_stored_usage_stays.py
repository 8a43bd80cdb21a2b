"""Stored usage is refused for change by the database itself, whoever asks; what its services make of it is not."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from django.db import DatabaseError, connection, transaction

from billing.closing.services.closing import period_close
from billing.closing.services.waivers import WaiverError, exception_waive
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import period_open
from billing.tenancy.models import TagRule
from billing.usage.models import AllocationRevision, GpuAllocation, QuarantinedRecord
from billing.usage.services import (
    Reporter,
    agent_notes_add,
    capacity_ingest,
    capacity_type_rule_put,
    cluster_scans_add,
    efficiency_ingest,
    engine_readings_ingest,
    quarantine_dismiss,
    rollups_fold,
    sequences_fold,
    share_correct,
    share_declare,
    tag_rules_put,
    tier_rule_put,
    token_files_note,
    watch_notes_add,
    watermark_advance,
)
from billing.usage.services.allocations import LEARNED, TIMES
from billing.usage.services.watermarks import Scan
from billing.usage.store.archived import ArchivedMonth, month_note
from metering.intervals import Interval
from metering.records import EfficiencySample, EngineReading, NodeCapacity, TokenUsage, decode_batch
from tests.factories import AFTER, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.closing import window_close
from tests.stored_rows import query

pytestmark = pytest.mark.django_db
START = datetime(2026, 10, 10, tzinfo=UTC)
CHANGING = {
    "usage_gpuallocation": {*TIMES, *LEARNED, "content_sha256"},
    "usage_allocationrevision": {"until"},
    "usage_allocationinterruption": {"ended_at", "end_reason"},
    "usage_nodecapacity": {"until", "content_sha256"},
    "usage_agentwatermark": {"watermark", "watched_since", "reported_at"},
    "usage_tokenfile": {"until"},
    "usage_unknownshare": {"accelerator", "why", "until", "ended", "record", "settled"},
    "token_shard": {"batch", "incarnation"},
    "usage_close": {"withdrawn_at"},
    "usage_quarantinedrecord": {
        "times_received", "status", "resolved_by", "resolution", "resolved_at", "corrected",
    },
}  # fmt: skip
"""The only columns of stored usage that may change at all."""
UNKNOWN = {"device_fraction": None, "share_unknown": "no slice of that name"}
OPEN = {"ended_at": None, "end_reason": None, "observed_until": "2026-10-10T12:00:00Z"}


def refused(statement: str) -> bool:
    """Whether the database refuses it, with a reason of ours."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # TRUNCATE asks nothing while some wait
            cursor.execute(statement)
    except DatabaseError as error:
        return getattr(error.__cause__, "sqlstate", "") == "23001"
    return False


def report(ingest: Callable[..., object], kind: type, raw: bytes) -> None:
    batch = decode_batch(kind, [raw])
    assert not batch.rejected
    ingest(records=[(0, batch.records[0][1], raw)], reporter=Reporter("tests", "d"), now=AFTER)


@pytest.fixture
def something_of_everything() -> None:
    """One row at least in every table of usage, before any close."""
    ingest_allocations(allocation_record(1, end_reason="preempted"), allocation_record(2, **OPEN), {"allocation_id": "x"})
    ingest_allocations(allocation_record(3, **UNKNOWN))
    share_declare(
        cluster="hq-2", resource="r", device_fraction=None, actor="ops", reason="no accelerator", now=AFTER
    )
    share_correct(
        cluster="hq-2", resource="s", device_fraction=Decimal("0.5"), valid_from=START, actor="ops", reason="two a card"
    )
    tag_rules_put(rules=[TagRule(source="litellm-hq", key="product", origin="tags.product", longest=8, values_a_day=2)],
                  actor="ops")  # fmt: skip
    ingest_tokens(token_record(1, sequence=1, sequence_run="a"))
    rollups_fold()
    ingest_tokens(token_record(2, sequence=2, sequence_run="a", service_tier="flex", tags={"product": "a"}))
    report(capacity_ingest, NodeCapacity, b"""{"cluster": "hq-1", "node": "n", "accelerator": "NVIDIA-H800",
        "resource": "nvidia.com/gpu", "quantity": 8, "from": "2026-10-01T00:00:00Z", "until": "2026-10-02T00:00:00Z"}""")
    report(efficiency_ingest, EfficiencySample, b"""{"cluster": "hq-1", "pod_uid": "uid-1", "start": "2026-10-10T00:00:00Z",
        "end": "2026-10-10T01:00:00Z", "gpu_seconds": "28800", "mfu": "0.4", "hfu": "0.5", "dtype": "bf16",
        "coverage": "1"}""")
    report(engine_readings_ingest, EngineReading, b"""{"source": "gw", "replica": "r", "model": "m",
        "time": "2026-10-10T00:00:00Z", "prompt_tokens": 1, "generation_tokens": 1}""")
    watermark_advance(agent="a", cluster="hq-1", watermark=START)
    tier_rule_put(source="gw", service_tier="flex", treat_as="standard", valid_from=START, actor="ops")
    capacity_type_rule_put(
        cluster="hq-1", conditions={"queue": "low"}, capacity_type="spot", priority=0, valid_from=START, actor="ops"
    )
    token_files_note([decode_batch(TokenUsage, [msgspec.json.encode(token_record(3))]).records[0][1]])
    stretch = Interval(START, START + timedelta(hours=1))
    watch_notes_add(agent="a", cluster="hq-1", kind="unwatched", stretches=[stretch])
    agent_notes_add(agent="a", cluster="hq-1", kind="problem", notes={"pod": "1.5"}, now=START)
    cluster_scans_add(agent="a", cluster="hq-1", scans=[Scan(START, 1, 1, 0)])
    window_close(START - timedelta(days=30), START - timedelta(days=20))
    month_note(ArchivedMonth("2026-09", Interval(START - timedelta(days=30), START - timedelta(days=20)), 1, 1, "2026-09"))
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO token_sealed VALUES (1, decode(repeat('07', 32), 'hex'))")
        cursor.execute("INSERT INTO token_open_batch VALUES (0, 3, 3), (0, 7, 9)")
        cursor.execute("INSERT INTO token_shard VALUES (0, 5, '')")


TABLES = """SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition AND relname ~ '^(usage|token)_'
    ORDER BY 1"""


def tables() -> list[str]:
    return [name for (name,) in query(TABLES)]


def columns(table: str) -> set[str]:
    return {name for (name,) in query("SELECT column_name FROM information_schema.columns WHERE table_name = %s", table)}


def test_every_column_that_may_change_is_there() -> None:
    assert set(CHANGING) <= set(tables())
    assert {table: names - columns(table) for table, names in CHANGING.items() if names - columns(table)} == {}


@pytest.mark.postgresql("its fixture fills every table, also that of the shards")
def test_the_database_refuses_to_change_empty_or_remove_stored_usage(something_of_everything: None) -> None:
    """Every column that is not declared to change, set to what it is not; no row of any table is missing."""
    unguarded = []
    for table in tables():
        assert query(f"SELECT 1 FROM {table} LIMIT 1"), table
        unguarded += [f"TRUNCATE {table}"] if not refused(f"TRUNCATE {table} CASCADE") else []
        for column in sorted(columns(table) - CHANGING.get(table, set())):
            changed = f'UPDATE {table} SET "{column}" = {another(table, column)}'
            unguarded += [] if refused(changed) else [changed]
        removed = f"DELETE FROM {table}"
        unguarded += [] if refused(removed) or table == "token_hour_delta" else [removed]
    # pieces of allocations that no close has billed may go: an end before what was seen cuts them
    assert unguarded == ["DELETE FROM usage_allocationrevision"]


def another(table: str, column: str) -> str:
    """An expression of the column's type that is another value than each row has."""
    ((kind, identity),) = query(
        "SELECT data_type, is_identity FROM information_schema.columns WHERE table_name = %s AND column_name = %s",
        table, column,
    )  # fmt: skip
    quoted = f'"{column}"'
    return {
        "boolean": f"NOT {quoted}", "jsonb": """'{"x": 1}'""", "bytea": f"{quoted} || 'x'", "uuid": "gen_random_uuid()",
        "timestamp with time zone": f"coalesce({quoted}, now()) + interval '1 second'",
        "text": f"{quoted} || 'x'", "character varying": f"left({quoted} || 'x', 10) || 'y'",
    }.get(kind, "DEFAULT" if identity == "YES" and table.startswith("token_") else f"{quoted} + 1")


def ends() -> list[tuple[str, datetime | None]]:
    return list(GpuAllocation.objects.order_by("id").values_list("allocation_id", "ended_at"))


def test_an_allocation_is_changed_only_as_its_reports_change_it() -> None:
    """alloc-1 ended, alloc-2 is open, the end of alloc-3 is an estimate that nobody watched."""
    estimate = {
        "end_estimated": True, "end_earliest": "2026-10-10T02:00:00Z", "end_latest": "2026-10-10T03:00:00Z",
        "reconstructed_from": "prometheus", "end_reason": "unknown",
    }  # fmt: skip
    ingest_allocations(allocation_record(1), allocation_record(2, **OPEN), allocation_record(3, **estimate))
    update = "UPDATE usage_gpuallocation SET "
    for change in (
        "ended_at = '2026-10-10T01:00:00Z', observed_until = '2026-10-10T01:00:00Z' WHERE allocation_id = 'alloc-1'",
        "ended_at = NULL, end_reason = '' WHERE allocation_id = 'alloc-1'",
        "end_reason = 'preempted' WHERE allocation_id = 'alloc-1'",
        "end_estimated = true WHERE allocation_id = 'alloc-1'",
        "observed_until = '2026-10-10T11:00:00Z' WHERE allocation_id = 'alloc-2'",
        "ended_at = '2026-10-10T13:00:00Z' WHERE allocation_id = 'alloc-2'",
        "queue = 'x' WHERE allocation_id = 'alloc-1'",
        "reconstructed_from = 'prometheus' WHERE allocation_id = 'alloc-1'",
        "queue = 'x' WHERE allocation_id = 'alloc-3'",
        "ended_at = NULL WHERE allocation_id = 'alloc-3'",
    ):
        assert refused(update + change), change
    ingest_allocations(allocation_record(2, **OPEN | {"observed_until": "2026-10-10T13:00:00Z"}))
    ingest_allocations(allocation_record(2, ended_at="2026-10-10T11:00:00Z", observed_until=None))
    ingest_allocations(allocation_record(3, queue="gold", ended_at="2026-10-10T02:30:00Z", observed_until=None))
    assert ends() == [
        ("alloc-1", datetime(2026, 10, 10, 2, 37, 13, tzinfo=UTC)), ("alloc-2", datetime(2026, 10, 10, 11, tzinfo=UTC)),
        ("alloc-3", datetime(2026, 10, 10, 2, 30, tzinfo=UTC)),
    ]  # fmt: skip


@pytest.mark.postgresql("its fixture fills every table, also that of the shards")
def test_not_even_a_report_that_nobody_made_extends_an_allocation_or_capacity(something_of_everything: None) -> None:
    """What a report may do, without what a report brings: the hash of its content."""
    later = "'2026-10-20T00:00:00Z'"
    for change in (
        f"usage_gpuallocation SET observed_until = {later} WHERE ended_at IS NULL",
        f"usage_gpuallocation SET observed_until = {later}, ended_at = {later} WHERE ended_at IS NULL",
        "usage_gpuallocation SET content_sha256 = ''", f"usage_nodecapacity SET until = {later}",
    ):  # fmt: skip
        assert refused(f"UPDATE {change}"), change


def test_what_a_close_has_billed_of_an_allocation_stays_and_the_rest_is_cut(tmp_path: Path) -> None:
    """Open from 31 October 12:00 UTC to 2 November; October ends at 16:00. Ended on 1 November: only November is cut."""
    apply(tmp_path)
    seen = {"started_at": "2026-10-31T12:00:00Z", "ended_at": None, "end_reason": None}
    ingest_allocations(allocation_record(1, **seen, observed_until="2026-11-02T00:00:00Z"))
    window_close(datetime(2026, 9, 30, 16, tzinfo=UTC), datetime(2026, 10, 31, 16, tzinfo=UTC))
    update = "UPDATE usage_allocationrevision SET until = "
    for change in ("'2026-10-31T15:59:59Z'", "'2026-11-02T00:00:01Z'"):
        assert refused(update + change), change
    assert refused("DELETE FROM usage_allocationrevision")
    ended = seen | {"ended_at": "2026-11-01T00:00:00Z", "observed_until": None, "end_reason": "completed"}
    assert ingest_allocations(allocation_record(1, **ended)).accepted == 1
    assert list(AllocationRevision.objects.values_list("epoch", "until")) == [(0, datetime(2026, 11, 1, tzinfo=UTC))]


def test_what_was_reported_of_an_unknown_share_follows_its_reports_until_it_is_known() -> None:
    """Open until noon, then until one o'clock; declared to be half a device it is in the ledger, and stays as it was."""
    ingest_allocations(allocation_record(1, **OPEN, **UNKNOWN))
    update = "UPDATE usage_unknownshare SET "
    for change in ("quantity = 1", "until = '2026-10-10T11:00:00Z'", "started_at = now()"):
        assert refused(update + change), change
    ingest_allocations(allocation_record(1, **OPEN | {"observed_until": "2026-10-10T13:00:00Z"}, **UNKNOWN))
    share_declare(
        cluster="hq-1", resource="nvidia.com/gpu", device_fraction=Decimal("0.5"), actor="ops", reason="half", now=AFTER
    )
    assert list(GpuAllocation.objects.values_list("device_fraction", "observed_until")) == [
        (Decimal("0.5"), datetime(2026, 10, 10, 13, tzinfo=UTC))
    ]
    for change in ("settled = ''", "until = '2026-10-10T14:00:00Z'"):
        assert refused(update + change), change


def test_deleting_what_waits_for_the_roll_up_is_folding_it() -> None:
    """Two requests of 1,000 and 100 tokens in one hour: whoever deletes their deltas has added them up."""
    ingest_tokens(token_record(1), token_record(2))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM token_hour_delta")
    for table in ("token_hour", "token_day"):
        assert query(f"SELECT requests, input_tokens, output_tokens FROM {table}") == [(2, 2000, 200)]
    for statement in ("INSERT INTO token_hour SELECT * FROM token_hour", "INSERT INTO token_day SELECT * FROM token_day",
                      "UPDATE token_hour SET requests = 1", "DELETE FROM token_day"):  # fmt: skip
        assert refused(statement), statement


def test_numbers_that_have_arrived_are_joined_and_never_lost() -> None:
    ingest_tokens(token_record(1, sequence=1, sequence_run="a"))
    ingest_tokens(token_record(2, sequence=2, sequence_run="a"))
    assert refused("DELETE FROM token_sequence WHERE first = 2")
    assert sequences_fold() == 2
    assert query("SELECT first, last FROM token_sequence") == [(1, 2)]
    assert refused("DELETE FROM token_sequence")


def test_a_quarantined_record_is_decided_and_stays(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations({"allocation_id": "x"})
    update = "UPDATE usage_quarantinedrecord SET "
    assert refused(update + "status = 'replayed', corrected = 'x', resolved_at = now() WHERE status = 'dismissed'") is False
    assert refused(update + "corrected = 'x'")
    assert refused(update + "resolved_by = 'x'")
    quarantine_dismiss(record_id=QuarantinedRecord.objects.get().pk, actor="ops", resolution="a test")
    assert refused(update + "status = 'open'")
    assert refused(update + "status = 'replayed'")
    assert refused(update + "times_received = 0")


def test_the_waiver_of_a_close_stays_and_that_of_an_open_month_is_given_again(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(1), token_record(2, input_tokens=-1))
    period = period_open(month="2026-10")
    given = {"kind": "quarantine", "subject": "tests via usage/tokens", "actor": "ops", "now": AFTER}
    for reason in ("first", "again"):
        exception_waive(period=period, reason=reason, **given)
    assert refused("DELETE FROM closing_exceptionwaiver")
    assert refused("UPDATE closing_exceptionwaiver SET subject = 'x'")
    period_close(month="2026-10", actor="ops", now=AFTER)
    period.refresh_from_db()
    with pytest.raises(WaiverError, match="2026-10 is closed: its waiver of quarantine tests via usage/tokens stays"):
        exception_waive(period=period, reason="later", **given)
    assert refused("UPDATE closing_exceptionwaiver SET quantity = 99")
    assert refused("DELETE FROM closing_exceptionwaiver")
    invoices_issue(month="2026-10", actor="ops", now=AFTER)
    assert refused("UPDATE invoices_numberseries SET last_number = 0")
    for table in ("invoices_invoice", "invoices_numberseries", "rating_charge", "rating_efficiencyverdict"):
        assert refused(f"TRUNCATE {table} CASCADE"), table
