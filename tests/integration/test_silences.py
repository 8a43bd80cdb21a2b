"""What nobody watched is listed by cause: all that one cluster did not report over one time is one row."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from billing.closing.report import build_report
from billing.invoices.selectors import period_of
from billing.portal.sources import Sources
from billing.usage.models import AgentWatermark
from billing.usage.services import watch_notes_add, watermark_advance
from metering.intervals import Interval
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in

pytestmark = pytest.mark.django_db
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)


def test_namespaces_of_one_silence_are_one_row(tmp_path: Path) -> None:
    apply(tmp_path, watched=False)
    for number, namespace in enumerate(("nlp-a", "nlp-b", "nlp-a"), 1):
        open_one = {"started_at": "2026-10-10T00:00:00Z", "ended_at": None, "observed_until": "2026-10-20T00:00:00Z"}
        ingest_allocations(allocation_record(number, cluster="hq-1", namespace=namespace, **open_one))
    watermark_advance(agent="gpu", cluster="hq-1", watermark=datetime(2026, 10, 20, tzinfo=UTC))
    other = Interval(datetime(2026, 10, 2, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC))
    watch_notes_add(agent="gpu", cluster="hq-1", kind="unwatched", stretches=[other])
    silences = Sources(period_of("2026-10"), NOVEMBER).silences
    (silent,) = [one for one in silences if one.stretches[0].start == datetime(2026, 10, 20, tzinfo=UTC)]
    assert ([item.subject for item in silent.stretches], silent.allocations) == (["nlp-a", "nlp-b", "agent gpu"], 3)
    person("ann", "admin")
    text = signed_in("ann").get("/sources/?month=2026-10").content.decode()
    assert "3 namespaces and agents" in text
    assert text.count("<li>nlp-a</li>") == 1


@pytest.mark.parametrize(("minutes", "silent", "gaps"), [(59, False, set()), (61, True, {"agent gpu"})])
def test_an_agent_is_silent_where_it_is_a_gap_for_the_close(
    tmp_path: Path, minutes: int, silent: bool, gaps: set[str]
) -> None:
    apply(tmp_path, watched=False)
    now = datetime(2026, 10, 20, tzinfo=UTC)
    heard = now - timedelta(minutes=minutes)
    watermark_advance(agent="gpu", cluster="hq-1", watermark=heard)
    AgentWatermark.objects.update(reported_at=heard)
    period = period_of("2026-10")
    found = Sources(period, now)
    assert [one.silent for one in found.agents] == [silent]
    assert {item.subject for item in found.stretches} == gaps
    blocking = build_report(period, now=now, thorough=False).blocking
    assert {item.subject for item in blocking if item.kind == "metering_gap"} == {f"hq-1/{name}" for name in gaps}
