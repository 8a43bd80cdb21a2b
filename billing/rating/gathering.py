"""Gathered token lines: one line per model and class for a team with many consumers, shared out to them again.

A line is rounded to the cent. Most of a team's 20,000 consumers use less than half a cent of a model, and their lines
would add up to less than the tokens are worth. So above `gather_consumers_above` consumers the team's tokens are summed
first, and what each consumer used is a part of the line, to the cent by largest remainder (ADR 0041).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal

from msgspec import structs

from billing.rating.models import TokenLayout
from billing.rating.readings import NamesByTeam
from billing.rating.reference_data import ReferenceData
from billing.rating.rules import rules_of
from billing.rating.selectors import reference_data_known
from billing.rating.walk import Slice, token_usage
from billing.tenancy.models import GATHER_CONSUMERS_ABOVE, BillingSetup
from billing.usage.models import Close
from billing.usage.scope import EpochFilter
from billing.usage.selectors import late_epochs, late_windows
from billing.usage.store.sums import TokenSums
from metering.intervals import Interval, month_of
from pricing.meters import TOKENS, line_kind
from pricing.money import EXACT, split_amount
from pricing.rate_card import UnpricedError
from pricing.rating import LineKey, TokenSum, token_line

Used = tuple[TokenSum, TokenSums]


def gather_limit() -> int:
    """Return the largest number of consumers of a team that have lines of their own."""
    stored = BillingSetup.objects.values_list("gather_consumers_above", flat=True).first()
    return GATHER_CONSUMERS_ABOVE if stored is None else stored


def layouts_of(window: Interval, as_of: int, usage: Iterable[Used], *, correction: bool) -> Mapping[str, bool]:
    """Return for each team whether its token lines of a month are gathered, as close `as_of` sees it.

    The month's own close decided it; before that close the `usage` does. A team without a stored decision, also because
    older rules made the close, is not gathered.
    """
    own = Close.objects.filter(start=window.start, withdrawn_at=None, close_seq__lte=as_of).order_by("close_seq").last()
    if own is not None:
        decided = dict(TokenLayout.objects.filter(close_seq=own.close_seq).values_list("team", "gathered"))
        # no decisions: the close is being made, or older rules made it
        if decided:
            return decided
    if correction or not rules_of(as_of).gathers_consumers:
        return {}
    consumers: dict[str, set[str]] = defaultdict(set)
    for item, row in usage:
        if item.team:
            consumers[item.team].add(row.consumer)
    limit = gather_limit()
    return {team: len(names) > limit for team, names in consumers.items()}


def teams_decided(window: Interval, close_seq: int) -> frozenset[str]:
    """Return the teams whose token lines of a month are gathered, as close `close_seq` billed it."""
    return frozenset(team for team, yes in layouts_of(window, close_seq, (), correction=True).items() if yes)


def gathered(usage: Iterable[Used], teams: Collection[str]) -> list[Used]:
    """Return the usage with the consumers of these teams removed; the rows still name them."""
    return [(structs.replace(item, consumer="") if item.team in teams else item, row) for item, row in usage]


def gathered_teams(keys: Iterable[LineKey]) -> frozenset[str]:
    """Return the teams whose token lines are gathered: lines without a consumer."""
    return frozenset(key.team for key in keys if is_gathered(key))


def is_gathered(key: LineKey) -> bool:
    """Return True if a token line combines all consumers of its team."""
    return line_kind(key.kind).meter is TOKENS and not key.consumer


def layouts_write(layouts: Mapping[str, bool], close_seq: int) -> None:
    """Store the decisions of a close, in the transaction that writes its charges."""
    TokenLayout.objects.bulk_create(
        TokenLayout(close_seq=close_seq, team=team, gathered=yes) for team, yes in sorted(layouts.items())
    )


def consumer_usage(
    keys: Collection[LineKey], part: Slice, reference_data: ReferenceData, dimensions: Collection[int] | None = None
) -> dict[LineKey, dict[str, Decimal]]:
    """Sum the tokens of gathered lines of a slice by consumer; lines without tokens are left out."""
    wanted, teams = set(keys), {key.team for key in keys}
    found: dict[LineKey, dict[str, Decimal]] = defaultdict(dict)
    for item, row in token_usage(part, reference_data, dimensions=dimensions):
        if item.team not in teams:
            continue
        whole = structs.replace(item, consumer="")
        for token_class, count in item.tokens.items():
            if not count:
                continue
            try:
                key, _ = token_line(whole, token_class, reference_data.card)
            except UnpricedError:
                continue
            if key in wanted:
                parts = found[key]
                parts[row.consumer] = EXACT.add(parts.get(row.consumer, Decimal(0)), Decimal(count))
    return dict(found)


def used_in_close(
    keys: Collection[LineKey], own: Interval, zone: str, as_of: int
) -> Mapping[LineKey, Mapping[str, Decimal]]:
    """Sum the tokens of gathered lines of close `as_of` by consumer, for its `own` window and late usage of others."""
    reference_data = reference_data_known(as_of)
    dimensions = NamesByTeam(reference_data).dimensions({key.team for key in keys})
    windows = {month_of(late.start, zone): Interval(late.start, late.end) for late in late_windows(as_of)}
    by_month: dict[tuple[str, bool], list[LineKey]] = defaultdict(list)
    for key in keys:
        by_month[key.charge_period, key.correction].append(key)
    found: dict[LineKey, Mapping[str, Decimal]] = {}
    for (month, correction), some in by_month.items():
        window = windows[month] if correction else own
        epochs = late_epochs(as_of) if correction else EpochFilter(before=as_of)
        part = Slice.of(reference_data, window, month, epochs, correction=correction)
        found |= consumer_usage(some, part, reference_data, dimensions)
    return found


def shared_out(amount: Decimal, used: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Split the amount of a line by consumers' tokens, to the cent by largest remainder: the parts add up.

    >>> shared_out(Decimal("0.04"), {"a": Decimal(100), "b": Decimal(100), "c": Decimal(100)})
    {'a': Decimal('0.02'), 'b': Decimal('0.01'), 'c': Decimal('0.01')}
    """
    names = sorted(used)
    return dict(zip(names, split_amount(amount, [used[name] for name in names]), strict=True))
