"""A price is agreed for time that is billed already: notes put every team's account right, and documents stay."""

import pytest

from billing.corrections.note_lines import NoteError
from billing.corrections.services.retroactive import effect_of
from billing.rating.models import RetroactiveChange
from tests.scenarios.company import Company, part, whole

OCTOBER = "2026-10-01"


@pytest.fixture
def october(company: Company) -> Company:
    """nlp was billed 100 GPU-hours at 10 and 8.00 for tokens, cv 21 GPU-hours."""
    company.uses("nlp-train", gpus=10, since="2026-10-10 08:00", until="2026-10-10 18:00")
    company.uses("cv", gpus=3, since="2026-10-10 08:00", until="2026-10-10 15:00")
    company.writes(output=1, on="2026-10-15")
    company.bills("2026-10")
    return company


def effect(change: RetroactiveChange) -> list[str]:
    """What each team would owe of a month."""
    rows = effect_of(change).by_team_and_month()
    return [f"{row.team} {row.month}: {row.charged} -> {row.should_be} ({row.difference})" for row in rows]


def test_a_price_of_a_closed_month_is_corrected_for_every_team(october: Company) -> None:
    """F07 without anybody writing a note: 1000.00 -> 950.00 and 210.00 -> 199.50; the tokens stay."""
    change = october.proposes_price("9.5", since=OCTOBER)
    assert effect(change) == [
        "cv 2026-10: 210.00 -> 199.50 (-10.50)", "nlp 2026-10: 1000.00 -> 950.00 (-50.00)",
    ]  # fmt: skip
    assert october.notes() == []
    october.approves_change(change)
    assert october.notes() == [
        "AI-INFRA-CN-2026-000001 cv -210.00",
        "AI-INFRA-CN-2026-000002 nlp -1000.00",
        "AI-INFRA-RB-2026-000001 cv 199.50",
        "AI-INFRA-RB-2026-000002 nlp 950.00",
    ]
    assert october.document_line("AI-INFRA-RB-2026-000002")["price_version"] == "2026+fix"
    assert october.note("AI-INFRA-RB-2026-000002") == ["rebill: 100 GPU-Hours of NVIDIA-H800 at 9.5000: 950.00"]
    assert (october.owes("nlp"), october.owes("cv")) == ("958.00", "199.50")


def test_late_usage_is_billed_at_the_price_that_is_known_now(october: Company) -> None:
    """F08 with a corrected price: 12 GPU-hours of October that come in November cost 9.5, not 10."""
    october.approves_change(october.proposes_price("9.5", since=OCTOBER))
    october.uses("nlp-train", gpus=4, since="2026-10-10 08:00", until="2026-10-10 11:00")
    october.bills("2026-11")
    assert october.invoice("nlp", "2026-11") == [
        "12 GPU-Hours of NVIDIA-H800 at 9.5000: 114.00 (used in 2026-10)", "total 114.00",
    ]  # fmt: skip
    assert october.proven("2026-10", "2026-11")


def test_late_usage_that_was_billed_already_is_corrected_too(october: Company) -> None:
    """A price agreed two months later reaches the October usage of both the October and the November invoice."""
    october.uses("nlp-train", gpus=4, since="2026-10-10 08:00", until="2026-10-10 11:00")
    october.uses("nlp-train", gpus=1, since="2026-11-05 08:00", until="2026-11-05 09:00")
    october.bills("2026-11")
    assert october.owes("nlp") == "1138.00"  # 1000 + 8, then 120 + 10
    change = october.proposes_price("9.5", since=OCTOBER, until="2026-11-01", on="2026-12-09")
    assert effect(change)[1] == "nlp 2026-10: 1120.00 -> 1064.00 (-56.00)"
    october.approves_change(change, on="2026-12-09")
    assert october.notes()[-2:] == ["AI-INFRA-RB-2026-000002 nlp 950.00", "AI-INFRA-RB-2026-000003 nlp 114.00"]
    assert october.owes("nlp") == "1082.00"  # 50 and 6 less
    october.bills("2026-12")
    assert october.proven("2026-10", "2026-11", "2026-12")


def test_a_second_change_corrects_what_the_first_one_billed(october: Company) -> None:
    october.approves_change(october.proposes_price("9.5", since=OCTOBER))
    october.approves_change(october.proposes_price("9", since=OCTOBER, name="again"))
    assert october.note("AI-INFRA-CN-2026-000004") == ["reversal: -100 GPU-Hours of NVIDIA-H800 at 9.5000: -950.00"]
    assert october.credits_of("AI-INFRA-CN-2026-000004") == (
        october.number("nlp", "2026-10"), "AI-INFRA-RB-2026-000002", 1,
    )  # fmt: skip
    assert october.owes("nlp") == "908.00"
    october.bills("2026-11")
    assert october.proven("2026-10", "2026-11")


def test_what_was_credited_before_is_kept(october: Company) -> None:
    october.credits(october.number("nlp", "2026-10"), part("640.00"), because="sla", approved_by="lea")
    october.approves_change(october.proposes_price("9.5", since=OCTOBER))
    assert october.owes("nlp") == "318.00"  # 950 + 8 - 640
    october.bills("2026-11")
    assert october.proven("2026-10", "2026-11")


def test_a_line_that_was_taken_back_by_hand_stops_the_change(october: Company) -> None:
    october.credits(october.number("nlp", "2026-10"), whole(), because="duplicate")
    change = october.proposes_price("9.5", since=OCTOBER)
    with pytest.raises(NoteError, match="credited in full by hand"):
        october.approves_change(change)
    change.refresh_from_db()
    assert (change.status, october.notes()) == ("proposed", ["AI-INFRA-CN-2026-000001 nlp -1000.00"])


@pytest.mark.parametrize("instead", [{"rebill_quantity": "90"}, {"rebill_price": "9.8"}])
def test_a_line_that_was_billed_again_by_hand_stops_the_change(october: Company, instead: dict[str, str]) -> None:
    """90 hours were 900.00. The change would have shown 1000.00 -> 950.00, taken back 900.00 and billed 100 hours, 950.00.

    Once the line is billed as its close billed it, the change is 1000.00 -> 950.00; then 90 hours of it are 855.00.
    """
    october.credits(october.number("nlp", "2026-10"), whole(**instead), because="quantity")
    change, before = october.proposes_price("9.5", since=OCTOBER), october.notes()
    with pytest.raises(NoteError, match="its line was billed again by hand"):
        october.approves_change(change)
    assert october.notes() == before
    october.credits("AI-INFRA-RB-2026-000001", whole(rebill_quantity="100", rebill_price="10"), because="quantity")
    october.approves_change(change)
    assert october.owes("nlp") == "958.00"
    october.credits("AI-INFRA-RB-2026-000004", whole(rebill_quantity="90"), because="quantity")
    assert october.owes("nlp") == "863.00"
    october.bills("2026-11")
    assert october.proven("2026-10", "2026-11")


def test_hours_that_do_not_come_out_even_are_billed_again_as_they_are_printed(company: Company) -> None:
    """8 GPUs for 9,433 s, 20.9622... hours, were billed again by hand as 20; then as printed, for 209.62.

    The change bills the exact hours: 75,464 s / 3,600 x 9.5 = 199.1411.
    """
    company.uses("nlp-train", gpus=8, since="2026-10-10 08:00:00", until="2026-10-10 10:37:13")
    company.bills("2026-10")
    company.credits(company.number("nlp", "2026-10"), whole(rebill_quantity="20"), because="quantity")
    change = company.proposes_price("9.5", since=OCTOBER)
    with pytest.raises(NoteError, match=r"bill that line again with 20\.962222 at 10\.0000, as its close did"):
        company.approves_change(change)
    company.credits("AI-INFRA-RB-2026-000001", whole(rebill_quantity="20.962222"), because="quantity")
    assert (company.owes("nlp"), effect(change)) == ("209.62", ["nlp 2026-10: 209.62 -> 199.14 (-10.48)"])
    company.approves_change(change)
    assert company.owes("nlp") == "199.14"
    company.bills("2026-11")
    assert company.proven("2026-10", "2026-11")
