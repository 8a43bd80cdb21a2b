"""Checks for usage that is missing, only partly known, or more than was offered.

A check is a function of a `Context` that yields exceptions.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo

from billing.closing.exceptions import Context, ReportedException
from billing.invoices.selectors import known_before
from billing.rates.selectors import allocation_policy_at, rate_card
from billing.rating.reference_data import gpu_seconds
from billing.tenancy.selectors import consumer_book, namespace_book
from billing.usage.gaps import Gap, clusters_reported, metering_gaps
from billing.usage.overallocation import Overallocation, overallocations, time_without_capacity
from billing.usage.reached import Reached
from billing.usage.reconciliation import estimated_ends, sequence_gaps, silent_sources
from billing.usage.selectors import allocated_twice_by_pod, close_before, late_windows, not_taken_in
from billing.usage.unknown_shares import UnknownUse, unknown_shares
from metering.intervals import Interval, month_of, union
from metering.messages import Message
from pricing.meters import MICROSECONDS_PER_HOUR
from pricing.money import EXACT, round_amount
from pricing.rate_card import RateCard

OVERHELD_TOLERANCE: Final = Decimal("0.001")
"""Share of the GPU-seconds allocated in a pool that may exceed its offer: a card may fail under a running pod."""
SCAN_TOLERANCE: Final = Decimal("0.001")
"""Share of all units listed by scans that may differ from the watched ones."""
EARLY: Final = timedelta(days=1)
"""Time before the end of its month at which a file may end without a question."""
SHOWN_GAPS: Final = 10
"""Gaps of a source that an exception lists."""


def unwatched(context: Context) -> Iterator[ReportedException]:
    """Yield metering gaps: seconds of the month so far that no agent watched and no later report filled."""
    passed = context.passed
    if passed is None:
        return
    for gap in metering_gaps(passed.end, period_end=context.period.end):
        # rounded up to whole seconds below: a shorter gap must not vanish
        missing_us = sum(cut.microseconds for piece in gap.unwatched if (cut := piece.overlap(passed)))
        if missing_us:
            subject, seconds = f"{gap.cluster}/{gap.subject}", Decimal(-(-missing_us // 1_000_000))
            yield ReportedException("metering_gap", subject, seconds, "seconds", True, _unseen(gap))


def _unseen(gap: Gap) -> Message:
    """Return the advice for a gap, after the number of allocations it left open."""
    if not gap.allocations:
        return gap.advice
    return Message.counted(
        "%(n)s open allocation was not seen after that: %(advice)s",
        "%(n)s open allocations were not seen after that: %(advice)s", gap.allocations, n=gap.allocations, advice=gap.advice,
    )


def in_quarantine(context: Context) -> Iterator[ReportedException]:
    """Yield records in quarantine, and what agents could not meter: both are usage in no charge."""
    for what, whose, count, text in not_taken_in(context.period.window):
        quantity = Decimal(count)
        if what == "agent problem":
            advice = Message("%(text)s: is not metered: mend what the agent names, or waive it", text=text)
            yield ReportedException("agent_problem", whose, quantity, "objects", True, advice)
        elif what == "agent unknown":
            option = "--claim-driver" if "/dra/" in whose else "--gres" if "/slurm/" in whose else "--resource"
            advice = Message(
                "this extended resource is unknown: if it is a device, configure the agent with %(option)s; if it is none, "
                "declare it with `manage.py gpu_share`", option=option,
            )
            units = Decimal(text) if text.isascii() and text.isdecimal() else quantity
            yield ReportedException("unknown_resource", whose, units, "resources", True, advice)
        elif what == "paid_by_call":
            advice = Message(
                "these requests have no tokens, and nothing here prices a call: charge them elsewhere, then dismiss them "
                "all on the page Quarantine"
            )
            yield ReportedException("paid_by_call", whose, quantity, "records", True, advice)
        else:
            kind = "conflict" if what == "conflict" else "quarantine"
            advice = Message("look at it with `manage.py quarantine`, then correct or dismiss it")
            yield ReportedException(kind, whose, quantity, "records", True, advice)


def shares_unknown(context: Context) -> Iterator[ReportedException]:
    """Yield usage whose share of a device is unknown, by namespace, resource and accelerator: it is in no charge.

    `amount`: its highest possible cost, as if each unit were a device.
    """
    found = unknown_shares(context.period.window)
    card = rate_card() if found else RateCard(())
    for use in found:
        yield ReportedException(
            "unknown_share", use.subject, EXACT.scaleb(use.unit_us, -6), "unit_seconds", True,
            Message("%(text)s: declare it with `manage.py gpu_share`, or waive it", text="; ".join(use.reasons)),
            amount=_at_most(use, card, context.period.window),
        )  # fmt: skip


def _at_most(use: UnknownUse, card: RateCard, window: Interval) -> Decimal | None:
    """Return the units as whole devices at the highest price of the window; None if some of it has no price."""
    instants = [window.start, *(at for at in card.changes() if window.start < at < window.end)]
    prices = [price for at in instants if (price := card.list_price(use.accelerator, at)) is not None]
    if len(prices) < len(instants):
        return None
    return round_amount(Fraction(use.unit_us) * Fraction(max(prices)) / MICROSECONDS_PER_HOUR)


def clusters_silent(context: Context) -> Iterator[ReportedException]:
    """Yield clusters named by ownership or platform rules without any report in the month so far.

    A rule for a pattern of clusters names none. Only the time of the rules counts.
    """
    passed = context.passed
    if passed is None:
        return
    ruled = namespace_book().literal_scopes(passed)
    advice = Message(
        "nothing was reported: start its agent, import its usage with `import_usage gpu`, end its ownership, or waive with "
        "a reason"
    )
    for cluster in sorted(ruled.keys() - clusters_reported(passed, sorted(ruled))):
        seconds = sum(span.microseconds for span in union(ruled[cluster])) // 1_000_000
        yield ReportedException("silent_cluster", cluster, Decimal(seconds), "seconds", True, advice)


def sources_silent(context: Context) -> Iterator[ReportedException]:
    """Yield gateways that reported regularly and then stopped, if one of their consumers still has an owner."""
    passed, consumers = context.passed, consumer_book()
    if passed is None:
        return
    advice = Message("see whether its reporter runs, import what is missing, end its consumers, or waive with a reason")
    for source, last in silent_sources(passed.end):
        if consumers.names_scope(source, passed.end):
            seconds = Decimal(int((passed.end - last).total_seconds()))
            yield ReportedException("silent_source", source, seconds, "seconds", True, advice)


def files_ending_early(context: Context, reached: Iterable[Reached]) -> Iterator[ReportedException]:
    """Yield clusters and sources whose files end before the month did; not blocking, but to be confirmed as complete."""
    end = context.period.end
    for one in reached if context.now >= end else ():
        if one.from_file and one.through < end - EARLY:
            at = one.through.astimezone(ZoneInfo(context.period.zone)).strftime("%Y-%m-%d %H:%M")
            advice = Message("its files end %(at)s: import the rest, or confirm that this is all", at=at)
            seconds = Decimal(int((end - one.through).total_seconds()))
            yield ReportedException("ends_early", f"{one.kind}/{one.name}", seconds, "seconds", False, advice)


def numbers_missing(context: Context) -> Iterator[ReportedException]:
    """Yield numbered records that never arrived: lost on the way, or in quarantine."""
    for gaps in sequence_gaps(context.period.window):
        shown_gaps = [str(first) if first == last else f"{first}-{last}" for first, last in gaps.stretches[:SHOWN_GAPS]]
        more = len(gaps.stretches) - len(shown_gaps)
        numbers = Message("%(numbers)s", numbers=", ".join(shown_gaps))
        if more:
            numbers = Message("%(numbers)s and %(n)s more gaps", numbers=numbers, n=more)
        subject = f"{gaps.source}/{gaps.run}" if gaps.run else gaps.source
        advice = Message(
            "numbers %(numbers)s never arrived: have the source send them again, or waive them", numbers=numbers
        )
        yield ReportedException("sequence_gap", subject, Decimal(gaps.missing), "records", True, advice)


def scans_differing(context: Context) -> Iterator[ReportedException]:
    """Yield clusters whose scans differ from the watched allocations by more than the tolerance."""
    for scan in context.scans:
        if scan.differing > SCAN_TOLERANCE * scan.scanned:
            advice = Message.counted(
                "%(n)s unit was listed by %(scans)s scans: look for what the agent missed",
                "%(n)s units were listed by %(scans)s scans: look for what the agent missed", scan.scanned,
                n=f"{scan.scanned:,}", scans=scan.scans,
            )
            yield ReportedException("scan_difference", scan.cluster, Decimal(scan.differing), "units", True, advice)


def allocated_twice(context: Context) -> Iterator[ReportedException]:
    """Yield pods reported with one resource twice at a time, also by late usage of a closed month."""
    advice = Message("one pod is reported to hold the same resource twice at a time: correct it at its source, or waive it")
    number, zone = known_before(context.period), context.period.zone
    # the close also bills late usage of closed months
    windows = [(context.period.window, 0, "")] + [
        (Interval(late.start, late.end), close_before(number), f", {month_of(late.start, zone)}")
        for late in late_windows(number, of_tokens=False)
    ]
    for window, since, month in windows:
        for cluster, pod_uid, overlap in allocated_twice_by_pod(window, since):
            seconds = Decimal(overlap).scaleb(-6)
            yield ReportedException("overlap", f"{cluster}/{pod_uid}{month}", seconds, "seconds", context.blocks, advice)


def ends_estimated(context: Context) -> Iterator[ReportedException]:
    """Yield allocations whose end was not reported: the quantity is the largest possible error of the bill, either way."""

    def local(at: datetime) -> str:
        return at.astimezone(ZoneInfo(context.period.zone)).strftime("%Y-%m-%d %H:%M:%S")

    for end in estimated_ends(context.period.window):
        between = {"earliest": local(end.earliest), "latest": local(end.latest)}
        words = Message(
            "ended between %(earliest)s and %(latest)s (%(rule)s); billed until %(until)s",
            **between, rule=end.rule, until=local(end.ended_at),
        ) if end.pod else Message.counted(
            "%(n)s more allocation, which ended between %(earliest)s and %(latest)s",
            "%(n)s more allocations, which ended between %(earliest)s and %(latest)s", end.holds, **between, n=end.holds,
        )  # fmt: skip
        subject = f"{end.cluster}/{end.pod or 'others'}"
        yield ReportedException("estimated_end", subject, gpu_seconds(end.device_us), "gpu_seconds", False, words)


def used_without_capacity(context: Context) -> dict[tuple[str, str], Decimal]:
    """Return GPU-seconds used while nobody reported the capacity of their pool, where they are more than a tolerance.

    They are taken off the idle time of the hours whose capacity is known, which then is too low.
    """
    found = time_without_capacity(context.period.window, over=context.now >= context.period.end)
    return {pool: beyond for pool, beyond in found.items() if beyond > OVERHELD_TOLERANCE * _used(context, pool)}


def _used(context: Context, pool: tuple[str, str]) -> Decimal:
    time = context.rated.device_time.get(pool)
    return gpu_seconds(time.charged + time.platform + time.unowned + time.unpriced) if time else Decimal(0)


def idle_partly_unknown(context: Context, used: Mapping[tuple[str, str], Decimal]) -> Iterator[ReportedException]:
    """Yield pools whose idle time a policy bills, and of whose capacity a part of the month is unknown.

    `used`: GPU-seconds of that part, by pool.
    """
    policy = allocation_policy_at(context.period.start)
    advice = Message(
        "used while no capacity was reported, and taken off the idle time that is billed: report the capacity of that time"
    )
    for pool, beyond in used.items():
        if policy is not None and policy.rule_of(*pool) is not None:
            yield ReportedException("idle_capacity_unknown", "/".join(pool), beyond, "gpu_seconds", context.blocks, advice)


def capacity_exceeded(context: Context, idle: dict[tuple[str, str], Decimal]) -> Iterator[ReportedException]:
    """Yield pools in which more was allocated than nodes offered.

    `idle`: GPU-seconds by pool, as far as they are known. If it is negative though at no instant more was allocated than
    offered, capacity is unknown for a part of the month, which blocks nothing.
    """
    found, none, zero = overallocations(context.period.window), Overallocation(), Decimal(0)
    advice = Message("more was allocated than nodes offered: check capacity reports and device fractions")
    for pool in sorted(found.keys() | idle.keys()):
        over = found.get(pool, none)
        beyond, blocks = max(-idle.get(pool, zero), over.beyond), over.beyond > OVERHELD_TOLERANCE * over.held
        if beyond > 0:
            subject = "/".join(pool)
            yield ReportedException("over_capacity", subject, beyond, "gpu_seconds", context.blocks and blocks, advice)
