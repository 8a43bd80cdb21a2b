"""Documents by mail: what was sent, what failed, and who gets the documents of which team."""

from datetime import date
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from billing.invoices.models import DocumentMail
from billing.invoices.selectors import contacts_all, mails_all
from billing.invoices.services.mails import ContactWish, MailError, contact_add, contact_end, mail_resend
from billing.portal.access import page_for, staff_page
from billing.portal.tables import Column, Table, download
from billing.tenancy.access import Right, teams_visible_to
from billing.tenancy.models import BillingSetup
from metering.messages import Message

PAGE_SIZE = 50


@require_safe
@staff_page
def mail_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Every mail, failures first, and every billing contact."""
    file = download(request, {"mails": _mails, "contacts": _contacts})
    return _list(request, setup) if file is None else file


def _mails() -> Table:
    names = ("address", "language", "document", "team", "status", "sent_at", "error")
    rows = [
        [mail.address, mail.language, mail.document.number, mail.document.team.code, mail.status, mail.sent_at, mail.error,
         mail.attempts]
        for mail in mails_all()
    ]  # fmt: skip
    return Table("mails", [*(Column(name) for name in names), Column("attempts", "count")], rows)


def _contacts() -> Table:
    names = ("team", "address", "language", "valid_from", "valid_until", "set_by")
    rows = [
        [row.team.code, row.address, row.language, row.valid_from.isoformat(),
         row.valid_until.isoformat() if row.valid_until else None, row.set_by]
        for row in contacts_all()
    ]  # fmt: skip
    return Table("billing-contacts", [Column(name) for name in names], rows)


def _list(request: HttpRequest, setup: BillingSetup, refusal: str = "", status: int = 200) -> HttpResponse:
    mails = mails_all()
    context = {
        "nav": "invoices", "setup": setup, "refusal": refusal, "mail_is_set": settings.MAIL_CONFIGURED,
        "page": Paginator(mails, PAGE_SIZE).get_page(request.GET.get("page")), "contacts": contacts_all(),
        "teams": teams_visible_to(request.user).order_by("code"), "today_text": _today(setup).isoformat(),
        "failed": mails.filter(status=DocumentMail.Status.FAILED).count(),
        "waiting": mails.filter(status=DocumentMail.Status.PENDING).count(),
    }  # fmt: skip
    return render(request, "portal/mails.html", context, status=status)


def _today(setup: BillingSetup) -> date:
    return timezone.now().astimezone(ZoneInfo(setup.zone)).date()


@require_POST
@page_for(Right.CLOSE)
def contact_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Let an address have the documents of a team; a refusal is told on the page."""
    try:
        contact_add(wish=_wish(request), actor=request.user.get_username())
    except MailError as error:
        return _list(request, setup, error.message, status=409)
    return redirect("portal:mails")


def _wish(request: HttpRequest) -> ContactWish:
    texts = {name: request.POST.get(name, "").replace("\0", "").strip() for name in ("team", "address", "language")}
    team = teams_visible_to(request.user).filter(code=texts["team"]).first()
    if team is None:
        raise MailError(Message("team %(code)s: there is no such team", code=repr(texts["team"][:80])))
    day = request.POST.get("valid_from", "")
    try:
        valid_from = date.fromisoformat(day)
    except ValueError as error:
        raise MailError(Message("from %(day)s: write a day as 2026-11-30", day=repr(day[:20]))) from error
    return ContactWish(team, texts["address"], texts["language"], valid_from)


@require_POST
@page_for(Right.CLOSE)
def contact_stop(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Send nothing to a contact from today on."""
    try:
        contact_end(contact_id=pk, until=_today(setup), actor=request.user.get_username())
    except MailError as error:
        return _list(request, setup, error.message, status=409)
    return redirect("portal:mails")


@require_POST
@page_for(Right.CLOSE)
def resend(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Queue a mail once more."""
    try:
        mail = mail_resend(mail_id=pk, actor=request.user.get_username(), now=timezone.now())
    except MailError as error:
        return _list(request, setup, error.message, status=409)
    if mail.invoice_id is not None:
        return redirect("portal:invoice", mail.invoice_id)
    return redirect("portal:note", mail.note_id)
