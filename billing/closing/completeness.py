"""Exceptions for what should have been reported and was not, and for more devices held than there are.

They take sums or months of hours, and nothing that comes in while a month is closed can make one of them: they are found
before ingest has to wait.
"""

from datetime import datetime
from decimal import Decimal

from billing.closing.exceptions import ReportedException
from billing.tenancy.selectors import consumer_book, namespace_book
from billing.usage.gaps import clusters_reported
from billing.usage.overallocation import Overheld, overheld
from billing.usage.reconciliation import silent_sources
from metering.intervals import Interval, union
from metering.messages import Message

OVERHELD_TOLERANCE = Decimal("0.001")
"""Of the GPU-seconds held on a pool, how many may lie beyond what it offered: a card that fails under a running pod."""


def reports_missing(window: Interval, until: datetime) -> list[ReportedException]:
    """Clusters and sources of which nothing came; `until`: how far the month has passed."""
    if until <= window.start:
        return []
    return clusters_silent(Interval(window.start, until)) + sources_silent(until)


def clusters_silent(passed: Interval) -> list[ReportedException]:
    """Clusters that own or platform rules name and of which nothing was reported in the month, as far as it has passed.

    A rule for a pattern of clusters names none. Only the time of the rules counts.
    """
    ruled = namespace_book().literal_scopes(passed)
    silent = ruled.keys() - clusters_reported(passed, sorted(ruled))
    advice = Message(
        "nothing was reported: start its agent, import its usage with `import_usage gpu`, end its ownership, or waive with "
        "a reason"
    )
    seconds = {cluster: sum(span.microseconds for span in union(ruled[cluster])) // 1_000_000 for cluster in silent}
    return [
        ReportedException("silent_cluster", cluster, Decimal(seconds[cluster]), "seconds", True, advice)
        for cluster in sorted(silent)
    ]


def sources_silent(until: datetime) -> list[ReportedException]:
    """Gateways that were used regularly and then not at all, of which a consumer still has an owner."""
    consumers = consumer_book()
    advice = Message("see whether its reporter runs, import what is missing, end its consumers, or waive with a reason")
    return [
        ReportedException("silent_source", source, Decimal(int((until - last).total_seconds())), "seconds", True, advice)
        for source, last in silent_sources(until)
        if consumers.names_scope(source, until)
    ]


def capacity_exceeded(
    window: Interval, idle: dict[tuple[str, str], Decimal], *, blocks: bool
) -> list[ReportedException]:
    """Pools of which more was held than nodes offered.

    `idle`: GPU-seconds by pool, as far as they are known. Where it is negative though nothing was held beyond what was
    offered at any instant, capacity is unknown for a part of the month, which blocks nothing.
    """
    over = overheld(window)
    found = {pool: max(-idle.get(pool, Decimal(0)), over.get(pool, Overheld()).beyond) for pool in over.keys() | idle.keys()}
    return [
        ReportedException(
            "over_capacity", "/".join(pool), beyond, "gpu_seconds", blocks and _too_much(over.get(pool, Overheld())),
            Message("more was held than nodes offered: check capacity reports and device fractions"),
        )
        for pool, beyond in sorted(found.items()) if beyond > 0
    ]  # fmt: skip


def _too_much(over: Overheld) -> bool:
    return over.beyond > OVERHELD_TOLERANCE * over.held
