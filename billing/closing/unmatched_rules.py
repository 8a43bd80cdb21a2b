"""Rules in force that matched nothing of a month: an unused name, or a misspelled one.

They block nothing: a reader of the report sees if a price, owner, budget or policy was meant for something else.
Commitments and idle rules about an unknown accelerator are refused where they are stored.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.apps import apps
from django.utils.module_loading import import_string

from billing.closing.exceptions import Context
from billing.rates.selectors import PolicyBook, allocation_policy_at, interruption_rules, rate_card
from billing.tenancy.ownership import OwnershipBook, OwnershipRow
from billing.tenancy.selectors import consumer_book, namespace_book
from metering.intervals import Interval
from pricing.commitments import KIND, UNUSED, USED
from pricing.rating import LineKey


@dataclass(frozen=True, slots=True, order=True)
class UnmatchedRule:
    """Rule without a match. `kind`: its section in the set-up file; `subject`: its name, or the name in it."""

    kind: str
    subject: str


Reader = Callable[[Context], Iterable[UnmatchedRule]]


def unmatched_rules(context: Context) -> list[UnmatchedRule]:
    """Return the rules in force at some time of the month that matched nothing of it, by kind and name.

    An application above this package names a reader of its own rules as `unmatched_rules` of its configuration.
    """
    others: list[Reader] = [
        import_string(config.unmatched_rules) for config in apps.get_app_configs() if hasattr(config, "unmatched_rules")
    ]
    return sorted({rule for reader in (*READERS, *others) for rule in reader(context)})


def _keys(context: Context) -> list[LineKey]:
    """Return the line keys charged for the month's own use, the platform's included."""
    return [charge.key for charge in context.rated.charges if not charge.key.correction]


def _in_force(window: Interval, valid_from: datetime | None, valid_until: datetime | None) -> bool:
    return (valid_from is None or valid_from < window.end) and (valid_until is None or window.start < valid_until)


def _prices(context: Context) -> Iterator[UnmatchedRule]:
    """Yield unused accelerators, resources and models; an unused token class of a used model is no mistake."""
    # unused hours of a commitment are no use of its accelerator
    used = {key.sku for key in _keys(context) if (key.kind, key.reason) != (KIND, UNUSED)}
    for version in rate_card().versions:
        if _in_force(context.period.window, version.valid_from, version.valid_until):
            listed = {price.sku for price in version.gpu} | {model for model, _ in version.tokens}
            yield from (UnmatchedRule("price_versions", sku) for sku in listed - used)


def _owners(context: Context) -> Iterator[UnmatchedRule]:
    namespaces = {(key.cluster, key.namespace) for key in _keys(context) if key.namespace}
    yield from _unmatched_owners(context, "ownership", namespace_book(), namespaces)
    consumers, book = {key.consumer for key in _keys(context) if key.consumer}, consumer_book()
    # a line does not name its source: it may be of any scope of the book
    pairs = {(row.scope, name) for row in book.rows for name in consumers}
    yield from _unmatched_owners(context, "consumers", book, pairs)


def _unmatched_owners(
    context: Context, kind: str, book: OwnershipBook, used: set[tuple[str, str]]
) -> Iterator[UnmatchedRule]:
    """Yield rows that own no usage; usage that a more specific row owns all the time is not theirs."""
    window, matched = context.period.window, set[OwnershipRow]()
    for scope, name in used:
        rows = book.rows_of(scope, name)
        changes = {at for row in rows for at in (row.valid_from, row.valid_until) if at and window.start < at < window.end}
        matched |= {row for at in (window.start, *changes) if (row := next((r for r in rows if r.covers(at)), None))}
    for row in book.rows:
        if row not in matched and _in_force(window, row.valid_from, row.valid_until):
            yield UnmatchedRule(kind, f"{row.scope}/{row.name}")


def _shared(context: Context) -> Iterator[UnmatchedRule]:
    policy = allocation_policy_at(context.period.start)
    billed = {key.sku for key in _keys(context) if policy and key.policy == policy.name}
    for rule in policy.shared if policy else ():
        if rule.name not in billed:
            yield UnmatchedRule("allocation_policies", f"{policy.name}: {rule.name}" if policy else "")


def _commitments(context: Context) -> Iterator[UnmatchedRule]:
    used = {key.policy for key in _keys(context) if (key.kind, key.reason) == (KIND, USED)}
    bought = {key.policy for key in _keys(context) if key.kind == KIND}
    yield from (UnmatchedRule("commitments", name) for name in bought - used)


def _efficiency(context: Context) -> Iterator[UnmatchedRule]:
    window, book = context.period.window, PolicyBook()
    judged = {(verdict.policy, verdict.workload_class) for verdict in context.rated.verdicts}
    judging = {policy for policy, _ in judged}
    changes = {at for at in book.changes() if window.start < at < window.end}
    for policy in {p.name: p for at in (window.start, *changes) if (p := book.at(at)) is not None}.values():
        if policy.name not in judging:
            yield UnmatchedRule("efficiency_policies", policy.name)
            continue
        for one in policy.classes:
            if (policy.name, one.name) not in judged:
                yield UnmatchedRule("efficiency_policies", f"{policy.name}: {one.name}")


def _interruptions(context: Context) -> Iterator[UnmatchedRule]:
    carried = {(key.policy, key.reason) for key in _keys(context) if key.reason}
    for rule in interruption_rules():
        if (rule.policy, rule.reason) not in carried and _in_force(
            context.period.window, rule.valid_from, rule.valid_until
        ):
            yield UnmatchedRule("interruption_policies", f"{rule.policy}: {rule.reason}")


READERS: Final[tuple[Reader, ...]] = (_prices, _owners, _shared, _commitments, _efficiency, _interruptions)
