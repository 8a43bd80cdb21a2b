"""A claim that pods share over time is held once: their parts add up to the time that any of them held it."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from metering.claims import split_over_time
from metering.intervals import Interval, union

START = datetime(2026, 10, 1, tzinfo=UTC)
minutes = st.integers(min_value=0, max_value=600)
holds = st.dictionaries(st.sampled_from([f"uid-{number}" for number in range(6)]), st.tuples(minutes, minutes), min_size=1)


@given(holds)
def test_the_parts_of_all_pods_are_the_time_that_the_claim_was_held(bounds: dict[str, tuple[int, int]]) -> None:
    held = {
        uid: Interval(START + timedelta(minutes=min(pair)), START + timedelta(minutes=max(pair)))
        for uid, pair in bounds.items()
    }
    parts = split_over_time(held)
    assert sum(piece.microseconds * part for pieces in parts.values() for piece, part in pieces) == sum(
        piece.microseconds for piece in union(held.values())
    )
    for uid, pieces in parts.items():
        assert sum(piece.microseconds for piece, _ in pieces) == held[uid].microseconds
        assert all(0 < part <= 1 for _, part in pieces)


def test_a_pod_pays_alone_for_the_time_that_it_is_alone() -> None:
    hour = timedelta(hours=1)
    parts = split_over_time({"a": Interval(START, START + 3 * hour), "b": Interval(START + hour, START + 2 * hour)})
    assert parts["a"] == [
        (Interval(START, START + hour), Fraction(1)),
        (Interval(START + hour, START + 2 * hour), Fraction(1, 2)),
        (Interval(START + 2 * hour, START + 3 * hour), Fraction(1)),
    ]
    assert parts["b"] == [(Interval(START + hour, START + 2 * hour), Fraction(1, 2))]
