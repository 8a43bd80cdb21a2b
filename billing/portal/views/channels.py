"""Channels of alerts, with a message to try each. Their addresses are secrets, which no page shows."""

from typing import Any

from django import forms
from django.conf import settings
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext_lazy as _

from billing.budgets.models import Channel, Delivery, WebhookEvent
from billing.budgets.services import ChannelWish, channel_put, channel_test
from billing.portal.access import action_for, page_for
from billing.portal.asked import chosen
from billing.portal.forms import Line, PageForm, TeamChoice
from billing.portal.tables import Column, Table, download
from billing.setup.budgets import LONGEST_URL, channels_text
from billing.tenancy.access import Right
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup, Team
from billing.tenancy.people import addresses_left


def _time_of(name: str) -> Column:
    return Column(name, of=lambda row: str(getattr(row, name) or ""))


CHANNEL = [
    Column("name"), Column("kind", of=lambda row: "webhook" if row.events else "address" if row.url else "mail"),
    Column("team", of=lambda row: row.team.code if row.team else ""), Column("language"),
    *map(_time_of, ("digest_at", "quiet_from", "quiet_until")),
    Column("budgets", "count", lambda row: row.budgets.count()),
    Column("events", of=lambda row: row.event_names),
]  # fmt: skip


def _time(label: Any) -> forms.TimeField:
    return forms.TimeField(
        label=label, required=False, widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
        error_messages={"invalid": _("must be a local time of day such as 08:30")},
    )  # fmt: skip


class ChannelForm(PageForm):
    """Form of a channel; the name of a stored one changes that one."""

    name = Line(label=_("Name"), max_length=200)
    url = Line(
        label=_("Address (Apprise, or https:// of a webhook)"), max_length=LONGEST_URL, required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "placeholder": "wecombot://KEY"}),
        help_text=_("a secret; empty keeps the one that is stored"),
    )  # fmt: skip
    events = forms.MultipleChoiceField(
        label=_("Events, for a webhook"), required=False, widget=forms.CheckboxSelectMultiple,
        choices=(("closed", _("month closed")), ("issued", _("document issued")), ("budget", _("alert of a budget")),
                 ("anomaly", _("unusual day"))),
        help_text=_("none: a channel for messages"),
    )  # fmt: skip
    secret = Line(
        label=_("Secret of a webhook"), max_length=200, required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "placeholder": "whsec_…"}),
        help_text=_("whsec_ and 24 to 64 bytes in Base64; empty keeps the one that is stored"),
    )  # fmt: skip
    team = TeamChoice(
        Team.objects.order_by("-is_group", "code"), label=_("Only budgets of"), required=False, empty_label=_("All teams")
    )
    digest_at = _time(_("Once a day at"))
    quiet_from = _time(_("Quiet from"))
    quiet_until = _time(_("Quiet until"))
    language = forms.ChoiceField(
        label=_("Language"), required=False,
        choices=(("", _("Of this installation")), ("zh-hans", "中文"), ("en", "English")),
    )  # fmt: skip


@page_for(Right.BUDGET)
def channel_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List every channel, with the form that changes one."""
    file = download(request, {"channels": lambda: Table.of("channels", _channels(), CHANNEL)})
    return _page(request, setup) if file is None else file


@action_for(Right.OPERATE)
def channel_store(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    def put(**wish: Any) -> object:
        return channel_put(wish=ChannelWish(**{**wish, "events": tuple(wish["events"])}), actor=actor_of(request))

    form = ChannelForm(request.POST, key="channel")
    return redirect("portal:channels") if form.done(put) else _page(request, setup, refused=form)


@action_for(Right.BUDGET)
def channel_try(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    form = PageForm(request.POST, key=pk)
    done = form.done(channel_test, channel=get_object_or_404(Channel, pk=pk), actor=actor_of(request))
    return _page(request, setup, sent=form.made) if done else _page(request, setup, refused=form)


def _channels() -> Any:
    waiting = WebhookEvent.objects.filter(channel=OuterRef("pk"), status=Delivery.Status.PENDING, attempts__gt=0)
    newest = waiting.order_by("-attempts").values("last_error")[:1]
    channels = Channel.objects.select_related("team").prefetch_related("budgets")
    return channels.annotate(event_error=Subquery(newest)).order_by("name")


def _page(
    request: HttpRequest, setup: BillingSetup, *, refused: PageForm | None = None, sent: Channel | None = None
) -> HttpResponse:
    channels = list(_channels())
    by_name = {channel.name: channel for channel in channels if channel.url}
    edited = by_name.get(chosen(request, "edit", by_name))
    initial = {
        name: getattr(edited, name) for name in ("name", "digest_at", "quiet_from", "quiet_until", "language")
    } if edited else {}  # fmt: skip
    if edited and edited.team:
        initial["team"] = edited.team.code
    if edited:
        initial["events"] = sorted(edited.events or ())
    context = {
        "nav": "budgets", "setup": setup, "channels": channels, "refused": refused, "sent": sent, "edited": edited,
        "form": ChannelForm(key="channel", initial=initial).or_refused(refused), "yaml": channels_text(channels),
        "mail_is_set": bool(settings.ALERT_MAIL_URL), "gone": addresses_left(channel.mail for channel in channels),
    }  # fmt: skip
    return render(request, "portal/channels.html", context, status=409 if refused else 200)
