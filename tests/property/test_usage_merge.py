"""`merge`: any order and any repetition of the same truthful reports of an allocation end in the same state."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from billing.usage.services.allocations import Known, end_of, merge
from billing.usage.services.outcome import Meaning
from metering.records import GpuAllocation

START = datetime(2026, 10, 10, tzinfo=UTC)
moments = st.integers(min_value=0, max_value=40 * 86_400 * 10**6).map(lambda us: START + timedelta(microseconds=us))


def seen(until: datetime) -> GpuAllocation:
    return GpuAllocation(
        allocation_id="a", cluster="hq-1", namespace="nlp-train", pod="p", pod_uid="u", resource="nvidia.com/gpu",
        quantity=8, device_fraction=Decimal(1), accelerator="NVIDIA-H800", node="n", started_at=START,
        observed_until=until,
    )  # fmt: skip


def ended(at: datetime, reason: str | None = "completed") -> GpuAllocation:
    return msgspec.structs.replace(seen(at), ended_at=at, end_reason=reason)


def first_known(report: GpuAllocation) -> Known:
    """What the ledger holds after the first report of an unknown allocation."""
    return Known(report.identity, report.ended_at, report.known_until, report.end_reason or "")


def reported(reports: list[GpuAllocation]) -> Known:
    state = first_known(reports[0])
    for report in reports[1:]:
        _, state, _ = merge(state, report)
    return replace(state, changed=False)


@st.composite
def truthful_reports(draw: st.DrawFn) -> list[GpuAllocation]:
    """Open observations, then perhaps the end, which may lie before the last observation."""
    reports = [seen(until) for until in draw(st.lists(moments, max_size=6))]
    if draw(st.booleans()) or not reports:
        reports.append(ended(draw(moments)))
    return reports


@given(truthful_reports(), st.data())
def test_any_order_and_duplication_ends_in_the_same_state(reports: list[GpuAllocation], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(reports), max_size=6))
    shuffled = data.draw(st.permutations(reports + again))
    assert reported(shuffled) == reported(reports)


@given(truthful_reports())
def test_the_state_is_the_end_if_there_is_one_else_the_furthest_observation(reports: list[GpuAllocation]) -> None:
    end = reports[-1].ended_at
    state = reported(reports)
    assert state.ended_at == end
    assert state.observed_until == (end or max(report.known_until for report in reports))


@given(truthful_reports(), st.data())
def test_truthful_reports_never_conflict(reports: list[GpuAllocation], data: st.DataObject) -> None:
    order = data.draw(st.permutations(reports))
    state = first_known(order[0])
    for report in order[1:]:
        meaning, state, why = merge(state, report)
        assert meaning is not Meaning.CONFLICT, why


@given(moments, st.lists(moments, min_size=1, max_size=6))
def test_ended_stays_ended(end: datetime, later: list[datetime]) -> None:
    state = first_known(ended(end))
    for until in later:
        meaning, after, _ = merge(state, seen(until))
        assert (meaning, after) == (Meaning.DUPLICATE, state)


@given(moments, moments)
def test_another_end_conflicts_and_the_first_stays(first: datetime, second: datetime) -> None:
    state = first_known(ended(first))
    meaning, after, _ = merge(state, ended(second))
    assert after == state
    assert meaning is (Meaning.DUPLICATE if first == second else Meaning.CONFLICT)


@given(moments)
def test_the_same_end_with_another_reason_conflicts(end: datetime) -> None:
    meaning, _, why = merge(first_known(ended(end)), ended(end, "evicted"))
    assert meaning is Meaning.CONFLICT
    assert why


@given(truthful_reports(), moments)
def test_other_content_conflicts_whatever_is_known(reports: list[GpuAllocation], until: datetime) -> None:
    state = reported(reports)
    for other in (seen(until), ended(until)):
        meaning, after, _ = merge(state, msgspec.structs.replace(other, quantity=4))
        assert (meaning, after) == (Meaning.CONFLICT, state)


@given(moments, moments, moments)
def test_no_end_before_time_that_a_close_has_billed(observed: datetime, frozen: datetime, end: datetime) -> None:
    frozen = min(frozen, observed)
    state = replace(first_known(seen(observed)), frozen_until=frozen)
    meaning, after, _ = merge(state, ended(end))
    if end < frozen:
        assert (meaning, after) == (Meaning.CONFLICT, state)
    else:
        assert meaning is Meaning.UPDATE
        assert (after.ended_at, after.observed_until, after.changed) == (end, end, True)


@given(moments, moments)
def test_an_older_observation_says_nothing_new(first: datetime, second: datetime) -> None:
    meaning, after, _ = merge(first_known(seen(first)), seen(second))
    assert after.observed_until == max(first, second)
    assert meaning is (Meaning.UPDATE if second > first else Meaning.DUPLICATE)


# What was reconstructed afterwards beside what was watched


def reconstructed(until: datetime, end: datetime | None = None, width: int = 0) -> GpuAllocation:
    """What a backfill makes of the hold: it knows less of it, and not its end."""
    bounds = {"end_earliest": end, "end_latest": end + timedelta(seconds=width)} if end else {}
    return msgspec.structs.replace(
        seen(until), ended_at=end, end_reason="unknown" if end else None, end_estimated=end is not None, node="",
        reconstructed_from="prometheus", **bounds,
    )  # fmt: skip


def known_first(report: GpuAllocation) -> Known:
    watched = report.reconstructed_from is None
    return replace(first_known(report), end=end_of(report), reconstructed=not watched, facts=report.billing_facts)


def all_told(reports: list[GpuAllocation]) -> tuple[object, ...]:
    state = known_first(reports[0])
    for report in reports[1:]:
        meaning, state, why = merge(state, report)
        assert meaning is not Meaning.CONFLICT, why
    return state.identity, state.end, state.observed_until, state.reconstructed


@st.composite
def watched_and_reconstructed(draw: st.DrawFn) -> list[GpuAllocation]:
    """Observations of an agent, whose end is reported, and estimates of a backfill that agree on how far nothing was
    known.
    """
    end = draw(moments)
    last = draw(moments)
    reports = [reconstructed(last), reconstructed(last, draw(moments), draw(st.integers(0, 5)))]
    if draw(st.booleans()):
        reports.append(ended(end))
    return reports + [seen(until) for until in draw(st.lists(moments, max_size=4))]


@given(watched_and_reconstructed(), st.data())
def test_a_reported_end_goes_before_an_estimate_in_any_order(reports: list[GpuAllocation], data: st.DataObject) -> None:
    told_end = next((report.ended_at for report in reports if report.ended_at and not report.end_estimated), None)
    shuffled = data.draw(st.permutations(reports))
    identity, end, until, still_reconstructed = all_told(shuffled)
    watched = [report for report in reports if report.reconstructed_from is None]
    if told_end is not None:
        assert (end.at, end.estimated, until) == (told_end, False, told_end)
    if watched:
        assert (identity, still_reconstructed) == (watched[0].identity, False)


@given(st.lists(st.tuples(moments, st.integers(0, 5)), min_size=1, max_size=5), st.data())
def test_of_several_estimates_the_narrowest_stays(ends: list[tuple[datetime, int]], data: st.DataObject) -> None:
    reports = [reconstructed(end, end, width) for end, width in data.draw(st.permutations(ends))]
    _, end, until, _ = all_told(reports)
    width, at = min((width, end) for end, width in ends)
    assert (end.at, end.latest - end.earliest, until) == (at, timedelta(seconds=width), at)


@given(moments, moments)
def test_an_estimated_end_is_dropped_where_the_hold_was_seen_after_it(end: datetime, seen_until: datetime) -> None:
    orders = ([reconstructed(end, end), seen(seen_until)], [seen(seen_until), reconstructed(end, end)])
    states = [all_told(order) for order in orders]
    assert states[0] == states[1]
    assert (states[0][1] is None) == (seen_until > end)


@given(moments)
def test_a_backfill_that_counts_other_devices_conflicts(until: datetime) -> None:
    other = msgspec.structs.replace(reconstructed(until), quantity=7)
    assert merge(known_first(seen(until)), other)[0] is Meaning.CONFLICT
    assert merge(known_first(other), seen(until))[0] is Meaning.CONFLICT


# Pieces of a claim that pods share


def cut(at: datetime) -> GpuAllocation:
    """From then on another share of the claim is reported by another allocation."""
    return msgspec.structs.replace(ended(at, "share of a claim changed"), end_rule="share of a claim changed")


@given(st.lists(moments, min_size=1, max_size=4), st.booleans(), moments, st.lists(moments, max_size=3), st.data())
def test_of_changes_of_share_and_an_end_the_earliest_stays_in_any_order(
    cuts: list[datetime], has_end: bool, end: datetime, sights: list[datetime], data: st.DataObject
) -> None:
    ends = [cut(at) for at in cuts] + ([ended(end)] if has_end else [])
    reports = data.draw(st.permutations(ends + [seen(until) for until in sights]))
    state = known_first(reports[0])
    for report in reports[1:]:
        meaning, state, why = merge(state, report)
        assert meaning is not Meaning.CONFLICT or "a change of share ended it" in why
    earliest = min([*cuts, end] if has_end else cuts)
    last = state.end
    assert last is not None
    assert (last.at, state.observed_until) == (earliest, earliest)
    assert last.reason == ("completed" if has_end and end == earliest else "share of a claim changed")


@given(moments, moments, moments)
def test_a_share_does_not_change_in_time_that_a_close_has_billed(end: datetime, frozen: datetime, at: datetime) -> None:
    frozen = min(frozen, end)
    state = replace(known_first(ended(end)), frozen_until=frozen)
    meaning, after, _ = merge(state, cut(at))
    if at >= end:
        assert (meaning, after) == (Meaning.DUPLICATE, state)
    elif at < frozen:
        assert (meaning, after) == (Meaning.CONFLICT, state)
    else:
        assert (meaning, after.ended_at) == (Meaning.UPDATE, at)


@given(moments, moments)
def test_time_beyond_a_change_of_share_is_a_conflict_that_somebody_is_shown(at: datetime, until: datetime) -> None:
    """An agent that lost its volume does not know of the change, and reports on what another allocation carries."""
    state = known_first(cut(at))
    expected = Meaning.CONFLICT if until > at else Meaning.DUPLICATE
    for report in (seen(until), ended(until), cut(until)):
        meaning, after, why = merge(state, report)
        if report.ended_at is None or until > at:
            assert (meaning, after) == (expected, state)
        if expected is Meaning.CONFLICT:
            assert why == (
                f"reports time after {at.isoformat()}, when a change of share ended it, as was reported before; what is "
                "billed may be too little: see which pods shared the claim, import what is missing, and dismiss this"
            )
