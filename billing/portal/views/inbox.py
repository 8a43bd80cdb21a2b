"""Inbox: items that wait for the reader, with the money at stake and the page to resolve each."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.explorer.services import channels_allowed
from billing.inbox.models import Digest
from billing.inbox.selectors import months_checked_at
from billing.inbox.services import digest_choose, findings_refresh
from billing.portal.access import action, page, reader_of, staff_action
from billing.portal.forms import PageForm
from billing.portal.fresh import metering
from billing.portal.tables import Column, Table, download
from billing.portal.waiting import inbox_seen
from billing.tenancy.models import BillingSetup

SHOWN = 10
"""Number of items of a kind that are shown; the others are folded."""
ITEM = [
    Column("kind", of=lambda row: row[0].kind.name), Column("title", of=lambda row: str(row[1].title)),
    Column("team", of=lambda row: row[1].team), Column("amount", "money", lambda row: row[1].amount),
    Column("quantity", "quantity", lambda row: row[1].quantity), Column("unit", of=lambda row: row[1].unit),
    Column("since", of=lambda row: row[1].since), Column("page", of=lambda row: row[1].link),
]  # fmt: skip


class DigestForm(PageForm):
    """Form of the daily digest's destination: the reader's address, a channel, or none."""

    where = forms.ChoiceField(label=_("Daily digest"))

    @classmethod
    def of(cls, user: User, data: Any = None) -> "DigestForm":
        """Return the form with the channels that the reader may send to."""
        known = Digest.objects.filter(user=user).first()
        by_mail = bool(user.email and settings.ALERT_MAIL_URL)
        usual = "mail" if by_mail else "off"
        now = usual if known is None or known.channel_id is None else str(known.channel_id)
        form = cls(data, initial={"where": "off" if known is not None and not known.wanted else now})
        where: Any = form.fields["where"]
        channels = [(str(row.pk), row.name) for row in channels_allowed(user)]
        mail = [("mail", gettext("by mail to %(address)s") % {"address": user.email})] if by_mail else []
        where.choices = [*mail, *channels, ("off", _("not at all"))]
        return form


@page
def inbox(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the items that wait for the reader, by kind, the most money first."""
    return _shown(request, setup)


def _shown(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    found = inbox_seen(request, setup)
    items = [(group, item) for group in found.groups for item in group.items]
    if (file := download(request, {"inbox": lambda: Table.of("inbox", items, ITEM)})) is not None:
        return file
    context = {
        "nav": "inbox", "setup": setup, "inbox": found, "checked_at": months_checked_at(),
        "groups": [(group, group.items[:SHOWN], group.items[SHOWN:]) for group in found.groups],
        "fresh": metering(request, setup.zone), "refused": refused,
        "form": refused or DigestForm.of(reader_of(request)),
    }  # fmt: skip
    return render(request, "portal/inbox.html", context, status=409 if refused else 200)


@staff_action
def refresh(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Run the close check again, for a user who has just solved something."""
    findings_refresh(now=timezone.now())
    return redirect("portal:inbox")


@action
def digest(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Store the destination of the reader's digest."""
    user = reader_of(request)
    form = DigestForm.of(user, request.POST)
    if not form.done(_choose, user=user):
        return _shown(request, setup, form)
    return redirect("portal:inbox")


def _choose(*, user: User, where: str) -> Digest:
    channel = channels_allowed(user).filter(pk=where).first() if where.isdigit() else None
    return digest_choose(user=user, wanted=where != "off", channel=channel)
