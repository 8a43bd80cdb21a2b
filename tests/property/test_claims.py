"""A claim that pods share over time is held once: their parts add up to the time that any of them held it."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from metering.claims import ClaimedDevices
from metering.intervals import Interval, union
from metering.k8s.claim_store import Holder
from metering.k8s.claims import pieces_of

START = datetime(2026, 10, 1, tzinfo=UTC)
CARD = ClaimedDevices("claim", "dra/gpu.nvidia.com", "NVIDIA-H100", 2, Fraction(1, 7))
minutes = st.integers(min_value=0, max_value=600)
bounds = st.dictionaries(st.sampled_from([f"uid-{number}" for number in range(6)]), st.tuples(minutes, minutes), min_size=1)


def holder(uid: str, since: int, until: int | None) -> Holder:
    end = None if until is None else START + timedelta(minutes=until)
    return Holder("claim", uid, START + timedelta(minutes=since), end)


@settings(deadline=None)
@given(bounds)
def test_the_parts_of_all_pods_are_the_time_that_the_claim_was_held(given_bounds: dict[str, tuple[int, int]]) -> None:
    holders = [holder(uid, min(pair), max(pair)) for uid, pair in given_bounds.items()]
    shares = Fraction(0)
    for item in holders:
        assert item.end is not None
        pieces = pieces_of(item.pod, item.start, item.end, [CARD], holders)
        spans = [Interval(piece.start, piece.end or item.end) for piece in pieces]
        assert union(spans) == union([Interval(item.start, item.end)])
        assert sum(span.microseconds for span in spans) == Interval(item.start, item.end).microseconds
        assert all(piece.quantity == 2 and 0 < piece.fraction <= Fraction(1, 7) for piece in pieces)
        shares += sum(2 * piece.fraction * span.microseconds for piece, span in zip(pieces, spans, strict=True))
    held = union(Interval(item.start, item.end) for item in holders if item.end)
    assert shares == Fraction(2, 7) * sum(span.microseconds for span in held)


def test_a_pod_pays_alone_for_the_time_that_it_is_alone() -> None:
    holders = [holder("a", 0, None), holder("b", 60, 120)]
    pieces = pieces_of("a", START, None, [CARD], holders)
    hour = timedelta(hours=1)
    assert [(piece.start - START, piece.end and piece.end - START, piece.fraction) for piece in pieces] == [
        (0 * hour, hour, Fraction(1, 7)), (hour, 2 * hour, Fraction(1, 14)), (2 * hour, None, Fraction(1, 7)),
    ]  # fmt: skip


def test_what_a_pod_holds_through_several_claims_is_the_mean_of_its_parts() -> None:
    """One whole card of its own and one that three pods share: 2 units of (1 + 1/3) / 2."""
    parts = [
        ClaimedDevices(claim, resource, "P", 1, Fraction(share))
        for claim, resource, share in (("own", "dra/x", "1"), ("claim", "dra/x", "1"), ("own", "dra/y", "1/2"))
    ]
    holders = [Holder("own", "a", START, None), *(holder(uid, 0, None) for uid in "abc")]
    assert [(piece.resource, piece.quantity, piece.fraction) for piece in pieces_of("a", START, None, parts, holders)] == [
        ("dra/x", 2, Fraction(2, 3)), ("dra/y", 1, Fraction(1, 2)),
    ]  # fmt: skip
