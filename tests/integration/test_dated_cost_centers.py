"""A cost centre has a date: each hour is posted to the one of its own time, also late usage and credit notes.

nlp moves from CC-210 to CC-211 on 11 October 2026, 00:00 in Shanghai, which is 16:00 UTC of the 10th. It held 8 H800 from
14:00 to 20:00 at 10.0000: 160.00 before and 320.00 after, and sent 1,000,000 input tokens before and 500,000 after at 2.00
per million: 2.00 and 1.00.
"""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from billing.corrections.services.corrections import LineCredit
from billing.corrections.services.proof import period_verify
from billing.exports.journal import Chart
from billing.invoices.models import Invoice
from billing.invoices.selectors import document_of
from billing.setup.file import SetUpFileError
from billing.setup.owners import teams_declared
from billing.tenancy.models import Team
from billing.tenancy.services import cost_centers_refresh
from tests.factories import (
    apply,
    ingest_allocations,
    ingest_tokens,
    person,
    signed_in,
    token_record,
)
from tests.factories.corrections import FIRST, NOVEMBER_OVER, bill, credit, people
from tests.factories.cost_centers import MOVES, posted, teams, used

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
LISTED = [
    {"value": "CC-210", "valid_from": None}, {"value": "CC-211", "valid_from": "2026-10-11T00:00:00+08:00"}
]  # fmt: skip


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> Path:
    people()
    apply(for_all_tests, teams=teams())
    ingest_allocations(used(1, "2026-10-10T14:00:00Z", "2026-10-10T20:00:00Z"))
    no_cache: dict[str, Any] = {"cache_read_input_tokens": 0, "output_tokens": 0, "reasoning_output_tokens": 0}
    ingest_tokens(
        token_record(1, time="2026-10-10T15:59:59Z", input_tokens=1_000_000, **no_cache),
        token_record(2, time="2026-10-10T16:00:00Z", input_tokens=500_000, **no_cache),
    )
    bill()
    return for_all_tests


def test_the_journal_splits_lines_by_time_of_use_and_the_document_lists_the_centres(october: Path) -> None:
    assert posted(october) == [
        (FIRST, "CC-210", Decimal("160.00")), (FIRST, "CC-211", Decimal("320.00")),
        (FIRST, "CC-210", Decimal("2.00")), (FIRST, "CC-211", Decimal("1.00")),
    ]  # fmt: skip
    recipient = document_of(Invoice.objects.get())["recipient"]
    assert (recipient["cost_center"], recipient["cost_centers"]) == ("CC-211", LISTED)
    assert all(proof.holds for proof in period_verify(month="2026-10"))
    page = signed_in("sam").get(f"/invoices/{Invoice.objects.get().pk}/").content.decode()
    assert "from 2026-10-11 00:00" in page
    assert {center for _, center, _ in posted(october, chart=Chart(cost_centers={"nlp": "CC-7"}))} == {"CC-7"}


def test_late_usage_and_notes_follow_the_time_of_use(october: Path) -> None:
    """8 H800 for one hour of 9 October, reported in November: 80.00 to CC-210; one hour of November: 80.00 to CC-211.
    A tenth of line 1 credited: 48.00, of which 16.00 and 32.00."""
    ingest_allocations(
        used(2, "2026-10-09T10:00:00Z", "2026-10-09T11:00:00Z"), used(3, "2026-11-09T10:00:00Z", "2026-11-09T11:00:00Z")
    )
    (note,) = credit(LineCredit(1, amount=Decimal("48.00")))
    bill("2026-11", NOVEMBER_OVER)
    second = str(Invoice.objects.get(period__month="2026-11").number)
    assert posted(october, "2026-11") == [
        (second, "CC-210", Decimal("80.00")), (second, "CC-211", Decimal("80.00")),
        (note.number, "CC-210", Decimal("-16.00")), (note.number, "CC-211", Decimal("-32.00")),
    ]  # fmt: skip
    assert all(proof.holds for proof in period_verify(month="2026-11"))


def test_a_month_after_the_move_has_one_cost_centre_and_lists_none(october: Path) -> None:
    ingest_allocations(used(3, "2026-11-09T10:00:00Z", "2026-11-09T11:00:00Z"))
    bill("2026-11", NOVEMBER_OVER)
    recipient = document_of(Invoice.objects.get(period__month="2026-11"))["recipient"]
    assert (recipient["cost_center"], "cost_centers" in recipient) == ("CC-211", False)
    assert posted(october, "2026-11")[0][1:] == ("CC-211", Decimal("80.00"))


@pytest.mark.parametrize(
    ("cost_center", "text"),
    [
        ([*MOVES, {"value": "CC-9", "valid_from": "2026-10-20"}], "changes 2026-10, which is closed and was charged to "
         "CC-210, CC-211"),
        ("CC-210", "changes 2026-10, which is closed"),
        ([], "cost_center: must name at least one `value`"),
        ([{"value": "A"}, {"value": "B"}], "valid_from: always is stated twice"),
        ([{"value": "", "valid_from": "2026-01-01"}], "value: is empty"),
        ([{"value": "A", "valid_from": "soon"}], "valid_from: 'soon' must be a date"),
        ([{"value": "A", "from": "2026-01-01"}], "from: is no field here"),
    ],
)  # fmt: skip
def test_dates_that_reach_into_a_closed_month_or_say_nothing_are_refused(
    october: Path, cost_center: Any, text: str
) -> None:
    with pytest.raises(SetUpFileError, match=text):
        apply(october, teams=teams(cost_center))
    assert len(Team.objects.get(code="nlp").dated_cost_centers) == 2


def test_a_later_move_is_added_and_the_same_list_again_changes_nothing(october: Path) -> None:
    assert not apply(october, teams=teams()).changes
    later = [*MOVES, {"value": "CC-212", "valid_from": "2026-12-01"}]
    (change,) = apply(october, teams=teams(later)).changes
    assert change.startswith("team nlp: NLP Research, cost centres CC-210 from ")
    (nlp,) = teams_declared(Team.objects.filter(code="nlp"))
    assert [item["value"] for item in nlp["cost_center"]] == ["CC-210", "CC-211", "CC-212"]
    assert apply(october, teams=teams(nlp["cost_center"])).changes == []


@pytest.mark.usefixtures("october")
def test_pages_show_the_cost_centre_of_now() -> None:
    cost_centers_refresh(now=datetime(2026, 10, 10, 15, 59, tzinfo=UTC))
    assert Team.objects.get(code="nlp").cost_center == "CC-210"
    moved = datetime(2026, 10, 10, 16, tzinfo=UTC)
    assert [cost_centers_refresh(now=moved), cost_centers_refresh(now=moved)] == [1, 0]
    assert Team.objects.get(code="nlp").cost_center == "CC-211"


@pytest.mark.usefixtures("october")
def test_the_form_of_a_team_keeps_the_dates() -> None:
    cost_centers_refresh(now=datetime(2026, 12, 1, tzinfo=UTC))
    form = {"code": "nlp", "name": "Language", "cost_center": "CC-211"}
    answer = signed_in(person("adam", "admin")).post("/ownership/look/team/", form)
    (written,) = yaml.safe_load(answer.context["text"])["teams"]
    assert [item["value"] for item in written["cost_center"]] == ["CC-210", "CC-211"]
