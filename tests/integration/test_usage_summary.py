"""Usage by day, team and model: by local days, by who owned it then, and nobody sees another team's."""

from pathlib import Path
from typing import Any

import pytest

from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.api import program

pytestmark = pytest.mark.django_db
MOVED = [
    {"source": "litellm-hq", "consumer": "nlp-key-1", "team": "nlp", "valid_from": "2026-01-01",
     "valid_until": "2026-10-15T12:30:00Z"},
    {"source": "litellm-hq", "consumer": "nlp-key-1", "team": "cv", "valid_from": "2026-10-15T12:30:00Z"},
]  # fmt: skip
ONLY = {"input_tokens": 0, "cache_read_input_tokens": 0, "reasoning_output_tokens": 0}


def summary(query: str, team: str = "", status: int = 200) -> Any:
    answer = program("usage:read", team=team).get(f"/api/v1/usage/summary?{query}")
    assert answer.status_code == status, answer.content
    return answer.json()


@pytest.fixture(scope="module")
def used(for_all_tests: Path) -> None:
    """Five records around a local midnight (16:00 UTC) and a change of owner (12:30 UTC), one of nobody."""
    apply(for_all_tests, consumers=MOVED)
    for number, (time, output, facts) in enumerate(
        [
            ("2026-10-15T12:29:59.999999Z", 1, {}), ("2026-10-15T12:30:00Z", 20, {}),
            ("2026-10-15T15:59:59Z", 300, {"model": "other"}), ("2026-10-15T16:00:00Z", 4000, {}),
            ("2026-10-15T13:00:00Z", 50_000, {"consumer": "stranger"}),
        ]
    ):  # fmt: skip
        ingest_tokens(token_record(number, time=time, output_tokens=output, **{**ONLY, **facts}))


def rows(answer: Any) -> list[tuple[Any, ...]]:
    return [(r["day"], r["team"], r["model"], r["requests"], r["output_tokens"]) for r in answer["tokens"]]


def test_device_time_is_exact(tmp_path: Path) -> None:
    apply(tmp_path, ownership=SET_UP["ownership"])
    ingest_allocations(
        allocation_record(
            namespace="nlp-train", quantity=3, device_fraction="0.5", started_at="2026-10-15T15:59:58Z",
            ended_at="2026-10-15T16:00:01Z", observed_until="2026-10-15T16:00:01Z",
        )
    )  # fmt: skip
    answer = summary("from=2026-10-15&until=2026-10-17")
    assert [(r["day"], r["team"], r["accelerator"], float(r["device_seconds"])) for r in answer["devices"]] == [
        ("2026-10-15", "nlp", "NVIDIA-H800", 3.0), ("2026-10-16", "nlp", "NVIDIA-H800", 1.5),
    ]  # fmt: skip


@pytest.mark.usefixtures("used")
def test_days_are_local_and_owners_those_of_the_time() -> None:
    assert rows(summary("from=2026-10-15&until=2026-10-17")) == [
        ("2026-10-15", None, "llama-3-8b", 1, 50_000), ("2026-10-15", "cv", "llama-3-8b", 1, 20),
        ("2026-10-15", "cv", "other", 1, 300), ("2026-10-15", "nlp", "llama-3-8b", 1, 1),
        ("2026-10-16", "cv", "llama-3-8b", 1, 4000),
    ]  # fmt: skip
    assert rows(summary("from=2026-10-16&until=2026-10-17")) == [("2026-10-16", "cv", "llama-3-8b", 1, 4000)]


@pytest.mark.usefixtures("used")
def test_it_is_filtered_by_team_and_model() -> None:
    assert rows(summary("from=2026-10-15&until=2026-10-16&team=cv&model=other")) == [
        ("2026-10-15", "cv", "other", 1, 300)
    ]


def test_a_question_about_a_model_has_no_device_time(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    assert len(summary("from=2026-10-10&until=2026-10-11")["devices"]) == 1
    assert summary("from=2026-10-10&until=2026-10-11&model=llama-3-8b")["devices"] == []


@pytest.mark.usefixtures("used")
def test_a_token_of_a_team_sees_that_team_alone_and_nothing_of_nobody() -> None:
    assert rows(summary("from=2026-10-15&until=2026-10-16", team="nlp")) == [("2026-10-15", "nlp", "llama-3-8b", 1, 1)]
    assert rows(summary("from=2026-10-15&until=2026-10-16&team=cv", team="nlp")) == []


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize(
    "query",
    ["", "from=2026-10-15", "from=x&until=y", "from=2026-10-15&until=2026-10-15", "from=2026-01-01&until=2026-10-01"],
)
def test_days_that_make_no_sense_are_refused(query: str) -> None:
    assert summary(query, status=400)["status"] == 400
