"""Inbox items for failed deliveries, failed operations, and open questions."""

from collections.abc import Iterator
from typing import Final

from django.db.models import Count, Max, Min, OuterRef, Subquery
from django.urls import reverse
from django.utils.translation import gettext, ngettext

from billing.budgets.models import CostAnomaly, Delivery
from billing.closing.exceptions import journal_unacknowledged
from billing.explorer.models import ReportSchedule
from billing.inbox.reader import Item, Reader
from billing.invoices.models import DocumentMail, JournalExport, Operation
from billing.tenancy.access import Right

UNANSWERED: Final = CostAnomaly.objects.filter(feedback="")
REFUSED: Final = DocumentMail.objects.filter(status=DocumentMail.Status.FAILED)
UNDELIVERED: Final = Delivery.objects.filter(status=Delivery.Status.PENDING, attempts__gt=0)
UNSENT: Final = ReportSchedule.objects.filter(attempts__gt=0)
UNACKNOWLEDGED: Final = JournalExport.objects.filter(acknowledged_at=None)
FAILED: Final = Operation.objects.filter(status=Operation.Status.FAILED)


def anomalies(reader: Reader) -> Iterator[Item]:
    """Yield unusual days of the reader's teams without an answer, with the spend above the median."""
    rows = UNANSWERED.filter(team__in=reader.teams(Right.BUDGET))
    for day, sku, team, amount, median, since in rows.order_by("-day", "pk").values_list(
        "day", "sku", "team__code", "amount", "median", "found_at"
    ):
        yield Item(f"{day:%Y-%m-%d} {sku}", reverse("portal:anomalies"), team, amount - median, since)


def mails(reader: Reader) -> Iterator[Item]:
    """Yield documents that the mail server rejected permanently."""
    rows = REFUSED.order_by("pk").values_list(
        "address", "error", "queued_at", "invoice__number", "invoice__team__code", "invoice__total", "note__number",
        "note__team__code", "note__total",
    )  # fmt: skip
    for address, error, since, number, team, total, note, note_team, note_total in rows:
        title = gettext("%(document)s to %(address)s") % {"document": number or note, "address": address}
        amount = total if number else note_total
        yield Item(title, reverse("portal:mails"), team or note_team or "", amount, since, words=error)


def alerts(reader: Reader) -> Iterator[Item]:
    """Yield channels that did not accept alerts about the reader's teams."""
    rows = UNDELIVERED.filter(alert__team__in=reader.teams(Right.BUDGET)).values("channel__name").annotate(
        number=Count("pk"), since=Min("alert__fired_at"), error=Max("last_error")
    )
    for row in rows.order_by("channel__name"):
        words = ngettext("%(channel)s: %(number)s alert", "%(channel)s: %(number)s alerts", row["number"])
        title = words % {"channel": row["channel__name"], "number": row["number"]}
        yield Item(title, reverse("portal:budgets"), since=row["since"], words=row["error"])


def reports(reader: Reader) -> Iterator[Item]:
    """Yield reports of the reader's own views that their channel did not accept."""
    for row in UNSENT.filter(view__owner=reader.user).select_related("view", "channel"):
        title, link = f"{row.view} → {row.channel}", reverse("portal:saved_views")
        yield Item(title, link, since=row.last_sent_at, words=row.last_error)


def journals(reader: Reader) -> Iterator[Item]:
    """Yield the last journal of a month where the ledger has not acknowledged it in time."""
    newest = JournalExport.objects.filter(period=OuterRef("period")).order_by("-id").values("pk")[:1]
    rows = UNACKNOWLEDGED.filter(pk=Subquery(newest)).select_related("period")
    for export in rows.order_by("period__month"):
        for item in journal_unacknowledged(export, reader.now):
            link = f"{reverse('portal:close')}?month={export.period.month}"
            yield Item(export.period.month, link, amount=item.amount, since=export.exported_at, words=item.action)


def operations(reader: Reader) -> Iterator[Item]:
    """Yield operations on a month that failed and were not started again."""
    newest = Operation.objects.filter(month=OuterRef("month"), kind=OuterRef("kind")).order_by("-id").values("pk")[:1]
    for row in FAILED.filter(pk=Subquery(newest)):
        link = f"{reverse('portal:close')}?month={row.month}"
        yield Item(f"{row.kind} {row.month}", link, since=row.finished_at, words=row.outcome)
