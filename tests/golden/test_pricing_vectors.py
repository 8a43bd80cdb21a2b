"""Golden numbers of pricing: each case of `pricing_vectors.json` that a pure room covers is a test of its own.

Keys: `_amount` and `_total` have 2 decimals, `_list` 4, all others are exact or rounded to 12 decimals; where the vector
gives an exact rational, the answer must be that rational.
"""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pricing.money import round_to
from tests.golden import (  # noqa: F401 - importing registers the cases
    cases_amounts,
    cases_budgets,
    cases_efficiency,
    cases_tco,
    cases_time,
    cases_tokens,
    cases_training,
)
from tests.golden.registry import CASES, ELSEWHERE, VECTORS


@pytest.mark.parametrize("identifier", sorted(VECTORS.keys() - ELSEWHERE.keys()))
def test_vector(identifier: str) -> None:
    vector = VECTORS[identifier]
    answers = CASES[identifier](vector["inputs"])
    expected = vector["expected"]
    assert expected, identifier
    for key in expected:
        assert _text(answers[key], expected[key]) == _wanted(expected[key]), key
    for key, rational in vector.get("exact", {}).items():
        assert answers[key] == Fraction(rational), key


def test_every_vector_has_a_test_of_its_own() -> None:
    assert len(VECTORS) == 100
    assert CASES.keys() | ELSEWHERE.keys() == VECTORS.keys()
    assert not CASES.keys() & ELSEWHERE.keys()
    for identifier, module in ELSEWHERE.items():
        text = Path(__file__).with_name(module).read_text(encoding="utf-8")
        assert f"\ndef test_{identifier.lower()}_" in text, f"{identifier} is named by its test"


def _wanted(expected: Any) -> Any:
    return [str(item) for item in expected] if isinstance(expected, list) else str(expected)


def _text(answer: object, expected: Any) -> Any:
    """The answer as the vectors write it: with as many decimals as they have."""
    if isinstance(answer, list):
        return [_text(item, wanted) for item, wanted in zip(answer, expected, strict=True)]
    if isinstance(answer, str):
        return answer
    assert isinstance(answer, Fraction | Decimal | int)
    places = len(str(expected).partition(".")[2])
    if places < 12:
        assert round_to(answer, places) == answer, f"{answer} has more than {places} decimals"
    return format(round_to(answer, places), "f")
