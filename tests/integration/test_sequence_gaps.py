"""Sources that number their records: what never arrived is reported and blocks the close until it comes. All over HTTP."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from billing.invoices.services.periods import period_open
from billing.usage.services import sequences_fold
from tests.factories import apply, token_record
from tests.factories.api import gateway, program
from tests.gateway_records import cloud_event
from tests.stored_rows import query

pytestmark = pytest.mark.django_db
FAR_AHEAD = 10**9
Post = Callable[..., Any]


@pytest.fixture(scope="module")
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests)
    for month in ("2026-09", "2026-10", "2026-11"):
        period_open(month=month)


@pytest.fixture(autouse=True)
def accepts_them(set_up: None) -> Iterator[None]:
    """On a machine whose clock is behind, the records would lie in the future."""
    with override_settings(FUTURE_TOLERANCE_SECONDS=FAR_AHEAD):
        yield


@pytest.fixture
def post() -> Post:
    send = gateway()
    return lambda body, endpoint="usage/tokens", *kind, **headers: send(endpoint, body, *kind, **headers)


@pytest.fixture
def gaps() -> Callable[..., list[tuple[Any, ...]]]:
    """(subject, missing, reported, blocks) of every sequence gap in the report of a month, with and without folding."""
    reader = program("invoices:read")

    def reported(month: str) -> list[tuple[Any, ...]]:
        answer = reader.get(f"/api/v1/periods/{month}/report")
        assert answer.status_code == 200, answer.content
        return [
            (item["subject"], item["quantity"], item["action"].partition(" never")[0], item["blocks"])
            for item in answer.json()["exceptions"]
            if item["kind"] == "sequence_gap"
        ]

    def both(month: str = "2026-10") -> list[tuple[Any, ...]]:
        before = reported(month)
        sequences_fold()
        assert reported(month) == before, "folding changes nothing that is read"
        return before

    return both


def numbered(numbers: Iterable[int], **changed: Any) -> list[dict[str, Any]]:
    """A record for each number, a minute after the other."""
    run = changed.get("sequence_run", "")
    return [
        token_record(
            number, **{"id": f"{run}-{number}", "time": f"2026-10-15T12:{number % 60:02}:00+08:00", "sequence": number,
                       **changed},
        )
        for number in numbers
    ]  # fmt: skip


def rows() -> int:
    return len(query("SELECT 1 FROM token_sequence"))


def test_numbers_that_never_arrived_are_reported_by_source_until_they_arrive(post: Post, gaps: Any) -> None:
    assert post(numbered([1, 2, 3, 7, 8, 10, 20])).json()["accepted"] == 7
    assert gaps() == [("litellm-hq", 13, "numbers 4-6, 9, 11-19", True)]
    post(numbered([5, 9, 12]))
    assert gaps() == [("litellm-hq", 10, "numbers 4, 6, 11, 13-19", True)]
    post(numbered([4, 6, 11, *range(13, 20)]))
    assert gaps() == []
    assert rows() == 1


def test_records_without_a_number_and_unbroken_numbers_are_no_gap(post: Post, gaps: Any) -> None:
    post([token_record(1), token_record(2)])
    for number in (31, 30, 32, 33):  # a source need not begin with 1, and its records overtake each other
        post(numbered([number]))
    assert gaps() == []


def test_a_source_that_begins_its_numbering_anew_is_no_gap(post: Post, gaps: Any) -> None:
    post(numbered([901, 902, 903], sequence_run="pod-a"))
    post(numbered([1, 2, 3, 4], sequence_run="pod-b"))
    assert gaps() == []
    post(numbered([6], sequence_run="pod-b"))
    post(numbered([8, 9]))
    post(numbered([1, 2]))
    post(numbered([3], id="after its restart"))
    assert gaps() == [("litellm-hq", 4, "numbers 4-7", True), ("litellm-hq/pod-b", 1, "numbers 5", True)]


def test_a_numbering_that_starts_over_without_a_name_is_no_gap(post: Post, gaps: Any) -> None:
    post(numbered(range(1, 6)))
    again = numbered(range(1, 4), consumer="other")
    post([{**record, "id": f"second {record['id']}"} for record in again])
    assert gaps() == []


def test_the_gaps_of_each_source_stand_by_themselves(post: Post, gaps: Any) -> None:
    post(numbered([1, 3], source="a") + numbered([2, 4], source="b"))
    assert gaps() == [("a", 1, "numbers 2", True), ("b", 1, "numbers 3", True)]


def test_a_record_sent_again_under_another_number_is_a_duplicate_and_both_numbers_have_arrived(
    post: Post, gaps: Any
) -> None:
    (first,) = numbered([1])
    post([first, *numbered([3])])
    answer = post([{**first, "sequence": 2}]).json()
    assert (answer["accepted"], answer["duplicates"], answer["conflicts"]) == (0, 1, 0)
    assert gaps() == []


def test_what_went_to_quarantine_has_not_arrived(post: Post, gaps: Any) -> None:
    one, two, three, four = numbered([1, 2, 3, 4])
    post([one])
    answer = post([{**two, "output_tokens": -1}, {**one, "output_tokens": 99, "sequence": 3}, four]).json()
    assert (answer["accepted"], answer["conflicts"], len(answer["rejected"])) == (1, 1, 1)
    assert gaps() == [("litellm-hq", 2, "numbers 2-3", True)]
    post([two, three])
    assert gaps() == []


def test_a_gap_belongs_to_the_months_between_the_records_beside_it(post: Post, gaps: Any) -> None:
    (last,), (next_one,) = numbered([5], time="2026-09-30T23:59:00+08:00"), numbered([8], time="2026-10-01T00:01:00+08:00")
    post([last, next_one, *numbered([9], time="2026-10-31T12:00:00+08:00")])
    reported = [("litellm-hq", 2, "numbers 6-7", True)]
    assert (gaps("2026-09"), gaps("2026-10"), gaps("2026-11")) == (reported, reported, [])


def test_many_gaps_are_counted_and_the_first_are_spelled_out(post: Post, gaps: Any) -> None:
    post(numbered(range(0, 60, 2)))
    ((_, missing, reported, _),) = gaps()
    assert missing == 29
    assert reported == "numbers 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and 19 more gaps"


@pytest.mark.parametrize("number", [-1, 10**18 + 1, "1", 1.5, True])
def test_a_number_that_is_none_is_refused_by_name(post: Post, number: object) -> None:
    (refused,) = post([token_record(1, sequence=number)]).json()["rejected"]
    assert "sequence" in refused["error"]


# CloudEvents: the extension `sequence`


def events(*numbers: object, **changed: Any) -> list[dict[str, Any]]:
    return [cloud_event(id=f"e-{place}", sequence=number, **changed) for place, number in enumerate(numbers)]


def test_the_sequence_of_cloud_events_reports_gaps(post: Post, gaps: Any) -> None:
    kind = "application/cloudevents-batch+json"
    post(events("0000000001", "2", 5), "events", kind)
    assert gaps() == [("litellm-proxy", 2, "numbers 3-4", True)]
    post([cloud_event(id="e-9", sequence="3"), cloud_event(id="e-10", sequence="4")], "events", kind)
    assert gaps() == []
    post([{**event, "id": f"b {event['id']}"} for event in events("10", "12", sequencerun="b")], "events", kind)
    assert gaps() == [("litellm-proxy/b", 1, "numbers 11", True)]


def test_the_sequence_of_a_binary_event_is_its_header(post: Post, gaps: Any) -> None:
    for number in ("7", "9"):
        headers = {f"Ce-{name}": value for name, value in cloud_event(id=number, sequence=number).items() if name != "data"}
        assert post(cloud_event()["data"], "events", **headers).status_code == 204
    assert gaps() == [("litellm-proxy", 1, "numbers 8", True)]


def test_a_sequence_that_is_only_an_order_is_passed_over(post: Post, gaps: Any) -> None:
    orders = events("A0001", "٣", "", "9" * 30, "0" * 40 + "9" * 30, None, 1.5, True)
    answer = post(orders, "events", "application/cloudevents-batch+json")
    assert answer.json()["accepted"] == 8
    assert gaps() == []
    assert rows() == 0
