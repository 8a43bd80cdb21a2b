"""Documents by mail: sent and failed mails, and the billing contacts of each team."""

from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.invoices.models import DocumentMail, Invoice, Note
from billing.invoices.selectors import contacts_all, mails_all
from billing.invoices.services.mails import ContactWish, contact_add, contact_end, document_send, mail_resend
from billing.portal.access import action_for, staff_page
from billing.portal.asked import page_shown
from billing.portal.forms import Day, PageForm, TeamChoice, Text, acting
from billing.portal.tables import Column, Table, columns, download
from billing.setup.contacts import contacts_text
from billing.tenancy.access import Right
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup, Team

MAIL = [
    *columns("address", "language"), Column("document", of="document.number"), Column("team", of="document.team.code"),
    *columns("status", "sent_at", "error"), Column("attempts", "count"),
]  # fmt: skip
CONTACT = [Column("team", of="team.code"), *columns("address", "language", "valid_from", "valid_until", "set_by")]


@staff_page
def mail_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    tables = {
        "mails": lambda: Table.of("mails", mails_all(), MAIL),
        "contacts": lambda: Table.of("billing-contacts", contacts_all(), CONTACT),
    }
    file = download(request, tables)
    return _list(request, setup) if file is None else file


class ContactForm(PageForm):
    """Form of a billing contact: an address that gets the documents of a team."""

    team = TeamChoice(Team.objects.order_by("code"))
    address = Text(label=_("Address"), max_length=254, widget=forms.EmailInput)
    language = forms.ChoiceField(label=_("Language"), choices=(("zh-hans", "中文"), ("en", "English")))
    valid_from = Day(label=_("From"), initial=timezone.localdate)


def _list(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    mails = mails_all()
    context = {
        "nav": "invoices", "setup": setup, "refused": refused, "mail_is_set": settings.MAIL_CONFIGURED,
        "page": page_shown(request, mails), "contacts": contacts_all(),
        "form": ContactForm().or_refused(refused), "yaml": contacts_text(contacts_all()),
        "failed": mails.filter(status=DocumentMail.Status.FAILED).count(),
        "waiting": mails.filter(status=DocumentMail.Status.PENDING).count(),
    }  # fmt: skip
    return render(request, "portal/mails.html", context, status=409 if refused else 200)


@action_for(Right.CLOSE)
def contact_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Add an address as a billing contact of a team."""

    def add(**wish: Any) -> object:
        return contact_add(wish=ContactWish(**wish), actor=actor_of(request))

    form = ContactForm(request.POST)
    return redirect("portal:mails") if form.done(add) else _list(request, setup, form)


@action_for(Right.CLOSE)
def contact_stop(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """End a billing contact as of today."""
    form = PageForm(request.POST)
    if form.done(contact_end, contact_id=pk, until=timezone.localdate(), actor=actor_of(request)):
        return redirect("portal:mails")
    return _list(request, setup, form)


class SendForm(PageForm):
    """Form of a mail: an issued document, and the contact that gets it."""

    invoice = forms.ModelChoiceField(Invoice.objects.exclude(number=None), required=False)
    note = forms.ModelChoiceField(Note.objects.all(), required=False)
    contact_id = forms.IntegerField()

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        # the service takes one `document`, whichever field has it
        found["document"] = found.pop("invoice", None) or found.pop("note", None)
        if found["document"] is None:
            raise forms.ValidationError(_("name an issued document"))
        return {name: found[name] for name in ("document", "contact_id") if name in found}


@action_for(Right.CLOSE)
def send(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Send an issued document to a contact that did not get it."""
    form = SendForm(request.POST)
    if not form.done(document_send, **acting(request)):
        return _list(request, setup, form)
    return _sent(form.made)


def _sent(mail: DocumentMail) -> HttpResponse:
    if mail.invoice_id is not None:
        return redirect("portal:invoice", mail.invoice_id)
    return redirect("portal:note", mail.note_id)


@action_for(Right.CLOSE)
def resend(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    form = PageForm(request.POST)
    if not form.done(mail_resend, mail_id=pk, **acting(request)):
        return _list(request, setup, form)
    return _sent(form.made)
