"""Inbox items of open months: findings of the close check, and months that can be closed."""

from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, urlencode

from django.urls import reverse
from django.utils.translation import gettext

from billing.closing.exception_kinds import kind_of
from billing.closing.labels import subject_words
from billing.inbox.findings import CHECK, CREDIT_DUE, Finding
from billing.inbox.models import MonthFindings
from billing.inbox.reader import Item, Reader
from billing.invoices.models import Invoice
from billing.tenancy.access import RIGHTS, Right
from metering.names import as_name

UNOWNED: Final = ("unowned_namespace", "unowned_consumer")
UNPRICED: Final = ("unpriced",)
QUARANTINED: Final = ("quarantine", "conflict", "paid_by_call")
SILENT: Final = ("silent_source", "silent_cluster")
APART: Final = frozenset({*UNOWNED, *UNPRICED, *QUARANTINED, *SILENT, CREDIT_DUE})
CLOSABLE: Final = MonthFindings.objects.filter(closable=True)
FOUND: Final = MonthFindings.objects.exclude(content=[])


def _of_kinds(*kinds: str) -> Callable[[Reader], Iterator[Item]]:
    def items(reader: Reader) -> Iterator[Item]:
        return (_item(row, item, reader) for row, found in reader.months for item in found if item.kind in kinds)

    return items


unowned = _of_kinds(*UNOWNED)
unpriced = _of_kinds(*UNPRICED)
quarantine = _of_kinds(*QUARANTINED)
silent = _of_kinds(*SILENT)


def others(reader: Reader) -> Iterator[Item]:
    """Yield every other finding that the reader's role solves; reconciliations are for finance."""
    for row, found in reader.months:
        for item in found:
            if item.kind not in APART and reader.access.may(_solved_with(item)):
                yield _item(row, item, reader)


def credits_to_submit(reader: Reader) -> Iterator[Item]:
    """Yield drafts of credit notes that are due."""
    drafts = {item.subject: item for _, found in reader.months for item in found if item.kind == CREDIT_DUE}
    invoices = Invoice.objects.filter(number__in=drafts).order_by("number")
    for pk, number, team in invoices.values_list("pk", "number", "team__code"):
        item, link = drafts[str(number)], f"{reverse('portal:correction_new', args=[pk])}?due=1"
        title = gettext("Credit note of %(number)s") % {"number": number}
        yield Item(title, link, team, item.amount, item.since, words=item.words)


def months_to_close(reader: Reader) -> Iterator[Item]:
    """Yield months that have ended and whose close has no blockers."""
    for row, _ in reader.months:
        if row.closable:
            yield Item(gettext("%(month)s can be closed") % {"month": row.month}, _close_page(row.month), since=row.as_of)


def _solved_with(item: Finding) -> Right:
    """Return the right of the role that solves a finding."""
    if item.kind == CHECK:
        return Right.CLOSE
    return Right.OPERATE if Right.OPERATE in RIGHTS[kind_of(item.kind).owner] else Right.CLOSE


def _item(row: MonthFindings, item: Finding, reader: Reader) -> Item:
    if item.kind == CHECK:
        return Item(item.name, _close_page(row.month), since=item.since, words=item.words)
    facts = kind_of(item.kind)
    link = claim_address(item.kind, item.subject, row.month) if item.kind in UNOWNED else facts.link(row.month)
    if item.kind in UNPRICED and reader.access.may(Right.EDIT_PRICES):
        link = f"{reverse('portal:price_draft_new')}?add=1"
    return Item(
        f"{facts.label}: {subject_words(item.kind, item.subject)}", link, amount=item.amount, since=item.since,
        quantity=item.quantity, unit=item.unit, words=facts.solution,
    )  # fmt: skip


def claim_address(kind: str, subject: str, month: str) -> str:
    """Return the address of the ownership form, filled in with the usage of a month that has no owner."""
    place, _, name = subject.partition("/")
    asked = {"kind": kind.removeprefix("unowned_"), "place": as_name(place), "name": as_name(name)}
    return f"{reverse('portal:claim')}?{urlencode({**asked, 'valid_from': f'{month}-01'}, quote_via=quote)}"


def _close_page(month: str) -> str:
    return f"{reverse('portal:close')}?month={month}"
