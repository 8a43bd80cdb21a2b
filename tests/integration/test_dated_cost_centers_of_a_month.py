"""Dated cost centres in months of their own: the smallest amounts, and time that has none."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing.closing.report import build_report
from billing.invoices.selectors import period_of
from billing.setup.file import SetUpFileError
from tests.factories import apply, ingest_allocations
from tests.factories.corrections import bill
from tests.factories.cost_centers import posted, teams, used

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]


def test_a_line_is_split_by_largest_remainder(tmp_path: Path) -> None:
    """1 device for 9 s before and 18 s after at 10.0000: 0.08, a third of it 0.0266..., which has the larger remainder."""
    apply(tmp_path, teams=teams())
    ingest_allocations(used(1, "2026-10-10T15:59:51Z", "2026-10-10T16:00:18Z", quantity=1))
    bill()
    assert [str(amount) for _, _, amount in posted(tmp_path)] == ["0.03", "0.05"]


def test_time_before_the_first_date_has_no_cost_centre_and_the_report_says_so(tmp_path: Path) -> None:
    apply(tmp_path, teams=teams([{"value": "CC-210", "valid_from": "2026-10-20"}]))
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))
    report = build_report(period_of("2026-10"), now=datetime(2026, 11, 1, tzinfo=UTC))
    assert [item.subject for item in report.exceptions if item.kind == "no_cost_center"] == ["nlp"]


def test_a_text_becomes_a_list_where_it_says_what_closed_months_were_charged_to(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))
    bill()
    apply(tmp_path, teams=teams("CC-9"))
    with pytest.raises(SetUpFileError, match="changes 2026-10, which is closed and was charged to CC-210"):
        apply(tmp_path, teams=teams([{"value": "CC-9"}]))
    moves = [{"value": "CC-210"}, {"value": "CC-9", "valid_from": "2026-11-01"}]
    assert apply(tmp_path, teams=teams(moves)).changes
