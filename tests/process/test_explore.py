"""`make test` says the same to everybody; `make explore` looks further and keeps what it finds."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests import explore
from tests.hypothesis_profile import EXPLORES

RARE = """
from hypothesis import given, strategies as st

@given(st.integers(0, 100_000))
def test_all_numbers_are_small(number):
    assert number < 99_000
"""


def test_examples_are_the_same_in_each_run_unless_somebody_explores() -> None:
    assert settings.default is not None
    assert settings.default.derandomize is not EXPLORES


def test_exploring_fails_and_shows_the_smallest_example(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_rare.py").write_text(RARE)
    assert explore.run_pass([str(tmp_path)], 7, 600) == "failed"
    assert "number=99000" in capfd.readouterr().out


def test_exploring_stops_when_the_time_is_up() -> None:
    assert explore.run_pass(["tests/property"], 7, 0.5) == "stopped"
