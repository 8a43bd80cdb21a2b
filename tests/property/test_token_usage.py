"""Usage objects that no vendor documents: renamed, moved, missing, added and random fields never lose tokens silently."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.records import RecordError
from metering.token_usage import TokenClasses, token_classes, without_texts
from metering.usage_parts import TEXTS
from tests.usage_shapes import SHAPES, Shape

TOTALS = {"total_tokens", "totalTokenCount", "total_token_count", "totalTokens", "TotalTokens"}
READ = [shape for shape in SHAPES if not shape.refused]
Place = tuple[str | int, ...]


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*place, name))
    else:
        yield place, value


def stated_total(usage: Any) -> int:
    """The largest number under any name of a total, wherever it is; 0 without one."""
    return max((value for place, value in leaves(usage) if str(place[-1]).rpartition(".")[2] in TOTALS), default=0)


def taken(usage: Any, place: Place) -> Any:
    """Remove the value of a place and return it."""
    for step in place[:-1]:
        usage = usage[step]
    return usage.pop(place[-1])


def put(usage: Any, place: Place, value: Any) -> None:
    for step in place[:-1]:
        usage = usage[step]
    usage[place[-1]] = value


def read(usage: Any, shape: Shape) -> TokenClasses | None:
    try:
        return token_classes(usage, input_only=shape.input_only)
    except RecordError:
        return None


def tokens(classes: TokenClasses) -> int:
    return classes.input_tokens + classes.output_tokens


HOWS = ("renamed", "moved", "nested", "dropped", "added", "changed")
shapes = st.sampled_from(READ)
fresh_names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12).map(lambda name: f"x_{name}")


def counted(usage: Any) -> list[Place]:
    """Where the numbers above 0 are."""
    return [place for place, value in leaves(usage) if type(value) in (int, float) and value and isinstance(place[-1], str)]


@st.composite
def changed(draw: st.DrawFn, *hows: str, of: Any = shapes) -> tuple[Shape, Any]:
    """A known shape of which one number was renamed, moved, nested, dropped, added or changed."""
    shape, how = draw(of), draw(st.sampled_from(hows))
    usage = copy.deepcopy(shape.usage)
    fresh = draw(fresh_names)
    if any(name.startswith(("gen_ai", "llm")) for name in usage):
        fresh = f"{fresh}.cache"  # attributes of a span hold other numbers too: only names that speak of usage are usage
    if how == "added":
        usage[fresh] = draw(st.integers(1, 10**6))
        return shape, usage
    place = draw(st.sampled_from(counted(usage)))
    value = taken(usage, place)
    if how == "renamed":
        usage[fresh] = value
    elif how == "moved":
        usage[fresh] = {place[-1]: value}
    elif how == "nested":
        put(usage, place, draw(st.sampled_from([{"value": value}, [value], {str(place[-1]): value}])))
    elif how == "changed":
        put(usage, place, value + draw(st.integers(1, 1000)))
    return shape, usage


@given(changed(*HOWS))
def test_nothing_is_accepted_with_fewer_tokens_than_its_stated_total(given_: tuple[Shape, Any]) -> None:
    shape, usage = given_
    classes = read(usage, shape)
    if classes is not None:
        assert tokens(classes) >= stated_total(usage)


@given(changed("renamed", "moved", "added", "nested"))
def test_a_number_that_is_renamed_moved_nested_or_added_leaves_the_counts_or_is_refused(given_: tuple[Shape, Any]) -> None:
    shape, usage = given_
    classes, before = read(usage, shape), read(shape.usage, shape)
    assert before is not None
    if classes is not None:
        assert classes.counts == before.counts


@given(changed("dropped", of=st.sampled_from([shape for shape in READ if stated_total(shape.usage)])))
def test_a_part_that_is_missing_below_a_stated_total_is_noticed(given_: tuple[Shape, Any]) -> None:
    shape, usage = given_
    classes = read(usage, shape)
    if classes is not None and stated_total(usage):
        assert tokens(classes) == stated_total(usage)


names = st.sampled_from(sorted({str(step) for shape in SHAPES for place, _ in leaves(shape.usage) for step in place}))
numbers = st.integers(0, 40) | st.sampled_from([None, True, -1, 0.5, "7", 3.0])
objects = st.recursive(
    st.dictionaries(names, numbers, max_size=6),
    lambda inner: st.dictionaries(names, numbers | inner | st.lists(inner, max_size=2), max_size=6),
    max_leaves=12,
)


@given(objects)
def test_any_object_is_refused_or_read_to_its_total(usage: dict[str, Any]) -> None:
    totals = [value for place, value in leaves(usage) if str(place[-1]) in TOTALS and type(value) is int]
    try:
        classes = token_classes(usage)
    except RecordError:
        return
    assert tokens(classes) >= max(totals, default=0)


@given(shapes)
def test_what_quarantine_keeps_of_a_usage_object_has_all_its_numbers(shape: Shape) -> None:
    kept = without_texts(shape.usage)
    # The words that are kept say that a summary is billed beside the counts, or by which tier, modality or lifetime.
    assert dict(leaves(kept)) == {
        place: value if not isinstance(value, str) or value.isdigit() or value == "compaction" or place[-1] in TEXTS else ""
        for place, value in leaves(shape.usage)
    }
    assert read(kept, shape) == read(shape.usage, shape)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "10", "1e3", float("nan"), float("inf"), 10**15 + 1])
def test_a_count_that_is_no_whole_number_is_refused_wherever_it_is(wrong: object) -> None:
    for shape in READ:
        total = next((place for place, _ in leaves(shape.usage) if str(place[-1]) in TOTALS), None)
        if total is not None:
            usage = copy.deepcopy(shape.usage)
            put(usage, total, wrong)
            with pytest.raises(RecordError):
                token_classes(usage, input_only=shape.input_only)
