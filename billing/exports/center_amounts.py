"""Amounts of a document per cost centre, where a team's cost centre changed during the usage.

A line is split by its usage, of which each part belongs to the cost centre of its hour; by largest remainder, so that the
parts add up to the line. Usage without hours, such as idle time of a month, and an hour in which the cost centre changes
are split by elapsed time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from billing.corrections.credited_lines import month_of_close, row_key
from billing.exports.focus.hours import UsageOfClose
from billing.exports.journal import JournalError, KindAmount
from billing.invoices.issued import Issued
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine, NoteLine
from billing.invoices.selectors import document_of
from billing.rating.grains import Place
from billing.tenancy.cost_centers import CostCenters, DatedTexts
from metering.intervals import Interval
from metering.messages import Message
from pricing.money import split_amount
from pricing.rating import LineKey

HOUR = timedelta(hours=1)


def center_amounts(period: BillingPeriod, documents: Iterable[Issued]) -> dict[str, list[KindAmount]]:
    """Return the amounts of the documents of a month that list several cost centres, by number of the document.

    Amounts are in order of kinds in the document, then of time.  Raises JournalError.
    """
    closes: dict[tuple[int, int | None], UsageOfClose] = {}
    windows = {row.month: row.window for row in BillingPeriod.objects.all()}
    found = {}
    for document in documents:
        text = document_of(document)
        listed = text["recipient"].get("cost_centers")
        if not listed:
            continue
        centers = CostCenters.stated(listed)
        # from the document: a credit of a GPU line has kind `credit`
        kinds = {line["position"]: line["kind"] for line in text["lines"]}
        sums: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
        for row, places in _lines(document, period, closes):
            for center, amount in _split(document, row, places, windows[row.charge_period], centers):
                sums[kinds[row.position], center] += amount
        order = list(dict.fromkeys(value for _, value in centers.entries))
        found[str(document.number)] = [
            KindAmount(item["kind"], center, sums[item["kind"], center])
            for item in text["subtotals"] for center in order if (item["kind"], center) in sums
        ]  # fmt: skip
    return found


def _lines(
    document: Issued, period: BillingPeriod, closes: dict[tuple[int, int | None], UsageOfClose]
) -> list[tuple[InvoiceLine | NoteLine, Mapping[Place, Decimal]]]:
    """Return the stored lines of a document, each with its usage by place.

    Lines of a note have the usage of the close that charged it first.
    """
    team, months = document.team.code, month_of_close()
    lines: list[tuple[InvoiceLine | NoteLine, tuple[int, int | None], LineKey]] = []
    if isinstance(document, Invoice):
        for line in document.lines.order_by("position"):
            lines.append((line, (period.close_number, None), row_key(line, team, correction=line.correction)))
    else:
        for row in document.lines.order_by("position"):
            key = row_key(row, team, correction=row.charge_period != months[row.close_seq])
            lines.append((row, (row.close_seq, row.change_seq), key))
    usage = {}
    for close in {close for _, close, _ in lines}:
        if close not in closes:
            closes[close] = UsageOfClose(BillingPeriod.objects.get(close_seq=close[0]), change_seq=close[1])
        usage[close] = closes[close].of({team}, only={key for _, of, key in lines if of == close}).places
    return [(row, usage[close].get(key, {})) for row, close, key in lines]


def usage_weights(places: Mapping[Place, Decimal], month: Interval, dated: DatedTexts) -> dict[str, Fraction]:
    """Sum the usage of a line by the text of its time, in order of time; an hour of a change is cut by time."""
    weights: dict[str, Fraction] = {value: Fraction(0) for _, value in dated.pieces(month)}
    for place, quantity in places.items() if len(weights) > 1 else ():
        start = max(place.start or month.start, month.start)
        span = Interval(start, min(place.until or start + HOUR, month.end))
        for piece, value in dated.pieces(span):
            # late usage may credit commitment hours: negative quantities would move amounts between cost centres
            weights[value] += abs(Fraction(quantity)) * Fraction(piece.microseconds, span.microseconds)
    return weights


def _split(
    document: Issued, row: InvoiceLine | NoteLine, places: Mapping[Place, Decimal], month: Interval, centers: CostCenters
) -> list[tuple[str, Decimal]]:
    """Split the amount of a line by cost centre, in order of time; credited hours weigh by their absolute value."""
    weights = usage_weights(places, month, centers)
    if len(weights) == 1:
        return [(value, row.amount) for value in weights]
    if not any(weights.values()):
        raise JournalError(Message(
            "line %(position)s of %(number)s no longer follows from its usage; run `manage.py period_verify %(month)s`",
            position=row.position, number=document.number, month=row.charge_period,
        ))
    amounts: Sequence[Decimal] = split_amount(row.amount, list(weights.values()))
    return list(zip(weights, amounts, strict=True))
