"""Random histories of a cluster with crashes of the agent, lost volumes, outages of both servers, broken watches, lost
events and skewed clocks.

What the platform ends up with is compared with what really happened, to the second: exact, or the difference lies within a
gap that the platform notes, and never twice. Only where the API server never sent an event may a hold be wrong beside the
gaps; then it is flagged and within its bounds. Pods request devices or claim them, alone and together; what all pods of a
claim are reported to hold of it is the time that any of them held it. `SUANPAN_HISTORIES` says how many; the large run is
`make histories`.
"""

import tempfile
from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from metering.allocation import Rule
from metering.intervals import Interval, union, without
from metering.records import EARLIEST
from tests.agent.cluster import stamp
from tests.agent.histories import HISTORIES, NODES_CLOCK, OPERATIONS, SHARED, History, MortalRig, Truth

Shares = dict[str, dict[str, Any]]
pytestmark = pytest.mark.timeout(max(600, 4 * HISTORIES))


histories = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 200)), min_size=30, max_size=80)


@settings(
    max_examples=HISTORIES, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink)
)
@given(operations=histories, skew_s=st.sampled_from([0, 0, 2, -4, 3600, -7200]), page=st.sampled_from([1, 3, 500]))
def test_the_platform_holds_the_truth(operations: list[tuple[str, int]], skew_s: int, page: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rig = MortalRig(Path(folder) / "agent.sqlite", skew_s=skew_s, page=page, claims=True)
        try:
            history = History(rig)
            for name, number in operations:
                getattr(history, name)(number)
            history.end()
            judge(history)
        finally:
            rig.stop()


def judge(history: History) -> None:
    platform = history.rig.platform
    gaps = noted(history)
    judge_conflicts(history)
    reported = by_product(history, gaps)
    for uid, truth in history.pods.items():
        records = reported.pop(uid, {})
        if truth.bound is None:
            assert records == {}, f"{uid} never held anything"
            continue
        assert records.keys() <= truth.products.keys()
        for product, units in truth.products.items():
            nothing = product not in records or records[product]["ended_at"] == records[product]["started_at"]
            if product != "requested" and truth.end == truth.bound and nothing:
                continue  # a claim that was held for no time has no piece
            if product in records:
                assert records[product]["quantity"] == units
                judge_one(history, uid, truth, product, records[product], gaps)
            elif product == "requested" or not records:
                judge_untold(history, uid, truth, gaps)
            elif unnoted_hold(history, truth, gaps):
                assert flagged(history, uid, truth), f"{uid} is reported without its claim, and no problem says so"
    assert reported == {}
    if not history.overlapping:
        judge_shared(history, gaps)
    before = dict(platform.holds)
    platform.replay()
    assert platform.holds == before, "replaying changes nothing"


def noted(history: History) -> list[Interval]:
    """Time of which the platform says that nobody watched: before the first report, gaps, and holds left open."""
    platform = history.rig.platform
    beginning = [Interval(EARLIEST, instant(platform.watched_since[0]))]
    gaps = [Interval(instant(item["from"]), instant(item["until"])) for item in platform.unwatched]
    watermark = instant(platform.watermark)
    open_holds = [instant(item["observed_until"]) for item in platform.holds.values() if item["ended_at"] is None]
    left_open = [Interval(seen_until, watermark) for seen_until in open_holds if seen_until < watermark]
    slack = uncorrected(history)
    return [Interval(gap.start - slack, gap.end + slack) for gap in union(beginning + gaps + left_open)]


def judge_conflicts(history: History) -> None:
    """Who begins anew may know less of shared claims, or more of a node; the ledger finds the conflict, which blocks."""
    if history.volumes_lost:
        event("volume lost")
    for conflict in history.rig.platform.conflicts:
        assert history.volumes_lost, conflict
        assert "dra/" in conflict or "the node was never seen" in conflict, conflict


def unnoted(differing: list[Interval], gaps: list[Interval], least: timedelta) -> list[Interval]:
    """What differs outside of every gap, as far as clocks can tell."""
    return [left for left in without(differing, gaps) if left.end - left.start > least]


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def by_product(history: History, gaps: list[Interval]) -> dict[str, Shares]:
    """What is reported of each pod and product as one record; pieces of a claimed device follow each other.

    Who begins anew cuts shared claims without those who held them before: the ledger finds the overlap, which blocks.
    """
    pieces: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in history.rig.platform.holds.values():
        product = record["accelerator"] if record["resource"].startswith("dra/") else "requested"
        pieces[record["pod_uid"], product].append(record)
    reported: dict[str, Shares] = defaultdict(dict)
    for (uid, product), found in pieces.items():
        assert product != "requested" or len(found) == 1, "a pod is held once"
        ordered = sorted(found, key=lambda item: (item["started_at"], item["ended_at"] is None, item["ended_at"]))
        lasting = [item for item in ordered if item["ended_at"] != item["started_at"]]
        if not lasting:  # all were taken back: it was held for no time
            final = next((item for item in ordered if item["end_rule"] != Rule.SHARE_CHANGED), ordered[0])
            lasting = [{**final, "started_at": ordered[0]["started_at"], "ended_at": ordered[0]["started_at"]}]
        for earlier, later in pairwise(lasting):
            until, since = instant(earlier["ended_at"] or earlier["observed_until"]), instant(later["started_at"])
            if until > since:
                assert history.volumes_lost, "pieces do not overlap"
                assert product in SHARED
                history.overlapping = True
            else:
                assert not unnoted([Interval(until, since)], gaps, timedelta(0)), "what lies between pieces is a gap"
        reported[uid][product] = {**lasting[-1], "started_at": ordered[0]["started_at"]}
        if doubtful := [item["end_earliest"] for item in lasting if item.get("end_estimated")]:
            reported[uid][product]["end_earliest"] = min(doubtful)
    return reported


def judge_shared(history: History, gaps: list[Interval]) -> None:
    """The parts of all pods of a shared claim add up to the time that any of them is reported to have held it.

    Where a volume was lost, they do outside the gaps.
    """
    for claim in SHARED:
        found = [item for item in history.rig.platform.holds.values() if item["accelerator"] == claim]
        spans = [
            Interval(datetime.fromisoformat(item["started_at"]),
                     datetime.fromisoformat(item["ended_at"] or item["observed_until"]))
            for item in found
        ]  # fmt: skip
        watched = [unnoted([span], gaps, timedelta(0)) if history.volumes_lost else [span] for span in spans]
        parts = [
            Decimal(item["device_fraction"]) * sum(span.microseconds for span in some)
            for item, some in zip(found, watched, strict=True)
        ]
        whole = union([span for some in watched for span in some])
        assert abs(sum(parts, Decimal(0)) - sum(span.microseconds for span in whole)) < 1000 * max(len(spans), 1)
        if any(item["device_fraction"] != "1" for item in found):
            event("shared")


def judge_untold(history: History, uid: str, truth: Truth, gaps: list[Interval]) -> None:
    """A pod that was never reported: it is gone, nothing showed it, and the platform notes all of its time as a gap."""
    if not truth.products:
        return
    lost = truth.versions & history.lost
    if not truth.gpus and (not lost or truth.reserved != truth.reserved_shown) and flagged(history, uid, truth):
        event("a claim is missing")
        return
    assert truth.gone_version is not None, f"{uid} is still there and was never told"
    assert not truth.certain, f"{uid} was shown and never told"
    assert truth.bound is not None
    assert truth.end is not None
    if lost:
        return
    event("unwatched")
    assert not (left := unnoted_hold(history, truth, gaps)), f"{uid}: {left} is in no gap of {gaps}"


def unnoted_hold(history: History, truth: Truth, gaps: list[Interval]) -> list[Interval]:
    """What of the pod's time lies in no gap."""
    assert truth.bound is not None
    held = Interval(truth.bound, max(truth.bound, truth.end or history.cluster.now))
    return unnoted([held], gaps, clock_of_its_node(truth))


def clock_of_its_node(truth: Truth) -> timedelta:
    """How far an end may be ahead of the API server's clock: a node wrote it, unless the pod was taken away by force."""
    return timedelta(0) if truth.forced else NODES_CLOCK


def flagged(history: History, uid: str, truth: Truth) -> bool:
    """Whether the agent has reported that it cannot meter claims of that pod; none is missing that was shown."""
    assert truth.reserved != truth.reserved_shown, "every claim of the pod was shown"
    return any(subject.startswith(f"pod nlp/{truth.name} ({uid}), ") for subject in history.rig.platform.problems)


def judge_one(
    history: History, uid: str, truth: Truth, product: str, record: dict[str, Any], gaps: list[Interval]
) -> None:
    assert truth.bound is not None
    assert record["started_at"] == stamp(truth.bound)
    reported = instant(record["ended_at"] or record["observed_until"])
    real = truth.end if truth.end is not None else max(history.cluster.now, truth.bound)
    differing = [Interval(min(reported, real), max(reported, real))]
    slack = uncorrected(history) + clock_of_its_node(truth)
    never_sent = any(history.cluster.uids.get(version) == uid for version in history.lost)
    if record["ended_at"] is None:
        assert truth.end is None or history.volumes_lost, f"{uid} has ended"
        left = unnoted(differing, gaps, slack if truth.end else uncorrected(history))
        assert never_sent or not left, f"{uid} is open, and {left} is in no gap"
    elif product in SHARED and history.volumes_lost:  # an agent with fresh state cuts the pieces of a claim otherwise
        event("shared after a loss")
        if conflicting(history, uid, product):
            history.overlapping = True
        else:
            assert never_sent or not unnoted(differing, gaps, slack), f"{uid}: {differing} is in no gap of {gaps}"
    elif not record["end_estimated"]:
        event("exact")
        assert truth.end is not None, f"{uid} still runs"
        assert reported == truth.end
    else:
        event("estimated")
        assert truth.end is not None, f"{uid} still runs"
        assert not truth.certain, f"{uid}: its end was shown, and is estimated all the same"
        assert instant(record["end_earliest"]) - slack <= truth.end
        assert truth.end <= instant(record["end_latest"]) + slack
        assert never_sent or not unnoted(differing, gaps, slack), f"{uid}: {differing} is in no gap of {gaps}"


def conflicting(history: History, uid: str, product: str) -> bool:
    """Whether the platform shows that of a claim of the pod more was reported than it believes."""
    platform = history.rig.platform
    pieces = [item for item in platform.holds.values() if (item["pod_uid"], item["accelerator"]) == (uid, product)]
    return any(repr(item["allocation_id"]) in text for item in pieces for text in platform.conflicts)


def uncorrected(history: History) -> timedelta:
    """How far the agent's clock is off that of the API server, where that is too little to be noticed."""
    skew = abs(history.rig.skew)
    return skew if skew <= timedelta(seconds=2) else timedelta(0)
