"""FOCUS of a month is written document by document: the hours of a few documents are in memory, never those of all."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import ref

import pyarrow.parquet as pq
import pytest

from billing.exports.focus.hours import HourlyUsage, UsageOfClose
from billing.exports.services import focus
from billing.exports.services.focus import focus_export
from pricing.rating import LineKey
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import NOVEMBER_OVER, bill, credit, part, people

pytestmark = pytest.mark.django_db

CODES = ("nlp", "cv", "asr")
MOVED = "2026-10-10T01:00:00Z"
"""Within the hold of `shared`, 8 devices for 2 h 37 min 13 s from midnight: cv pays for the first hour, asr for the rest."""


@dataclass(frozen=True)
class Handed:
    """What a reader handed out at one time: for whom, of whom, and at how many places."""

    teams: frozenset[str]
    found: frozenset[str]
    places: int


@pytest.fixture
def handed_out(monkeypatch: pytest.MonkeyPatch) -> list[Handed]:
    """Everything that is handed out from now on; nothing may be while what was before is still held."""
    reported: list[Handed] = []
    held: list[Callable[[], HourlyUsage | None]] = []
    read = UsageOfClose.of

    def of(self: UsageOfClose, teams: Set[str], only: Set[LineKey] | None = None) -> HourlyUsage:
        assert [usage() for usage in held] == [None] * len(held)
        usage = read(self, teams, only)
        held.append(ref(usage))
        found = frozenset(key.team for key, places in usage.places.items() if places)
        reported.append(Handed(frozenset(teams), found, sum(map(len, usage.places.values()))))
        return usage

    monkeypatch.setattr(UsageOfClose, "of", of)
    return reported


@pytest.fixture
def billed(tmp_path: Path) -> None:
    """October of three teams: nlp used 3 hours of a job and three classes of tokens, cv and asr one hold after another."""
    people()
    owned = [
        *SET_UP["ownership"],
        {"cluster": "hq-1", "namespace": "shared", "team": "cv", "valid_from": "2026-01-01", "valid_until": MOVED},
        {"cluster": "hq-1", "namespace": "shared", "team": "asr", "valid_from": MOVED},
    ]
    teams = [{"code": code, "name": code.upper(), "cost_center": f"CC-{code}"} for code in CODES]
    apply(tmp_path, teams=teams, ownership=owned)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="shared"))
    ingest_tokens(token_record(input_tokens=1_000_000, cache_read_input_tokens=200_000, output_tokens=100_000))
    bill()


def exported(directory: Path, month: str = "2026-10") -> dict[str, Any]:
    """The rows of Parquet and the bytes of CSV, by name."""
    files = focus_export(month=month, directory=directory, with_1_0=True).files
    return {path.name: pq.read_table(path) if path.suffix == ".parquet" else path.read_bytes() for path in files}


@pytest.mark.usefixtures("billed")
def test_the_hours_of_one_group_are_held_at_a_time(
    handed_out: list[Handed], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """nlp: 3 hours of the job, 3 classes of tokens; cv 1 hour; asr 2 hours of the same namespace."""
    monkeypatch.setattr(focus, "DOCUMENTS_AT_ONCE", 1)
    exported(tmp_path / "f")
    places = {"asr": 2, "cv": 1, "nlp": 6}
    assert handed_out == [Handed(frozenset({code}), frozenset({code}), places[code]) for code in sorted(CODES)]


@pytest.mark.usefixtures("billed")
@pytest.mark.parametrize("at_once", [1, 2])
def test_groups_of_any_size_write_the_same_files(
    handed_out: list[Handed], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at_once: int
) -> None:
    whole = exported(tmp_path / "whole")
    assert [(item.teams, item.places) for item in handed_out] == [(frozenset(CODES), 9)]
    monkeypatch.setattr(focus, "DOCUMENTS_AT_ONCE", at_once)
    assert exported(tmp_path / "parts") == whole
    assert len(whole) == 8
    assert sum(item.places for item in handed_out[1:]) == 9  # each hour is read once


@pytest.mark.usefixtures("billed")
def test_hours_behind_notes_are_those_of_the_lines_that_they_name(
    handed_out: list[Handed], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """9.62 of the first line of the first invoice, asr's, is credited in November, whose invoices are of late usage."""
    ingest_allocations(allocation_record(3, namespace="cv"), now=NOVEMBER_OVER)
    credit(part("9.62"))
    bill("2026-11", NOVEMBER_OVER)
    monkeypatch.setattr(focus, "DOCUMENTS_AT_ONCE", 1)
    parts = exported(tmp_path / "parts", "2026-11")
    assert handed_out == [
        Handed(frozenset({"cv"}), frozenset({"cv"}), 3), Handed(frozenset({"asr"}), frozenset({"asr"}), 2),
    ]  # fmt: skip
    monkeypatch.setattr(focus, "DOCUMENTS_AT_ONCE", 20)
    assert exported(tmp_path / "whole", "2026-11") == parts
