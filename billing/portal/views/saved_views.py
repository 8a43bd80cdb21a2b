"""Saved views of the explorer, and the reports that are sent of them."""

from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.budgets.models import Channel
from billing.explorer import services
from billing.explorer.models import ReportSchedule, SavedView
from billing.explorer.query import QueryError, query_of
from billing.portal.access import action, page, reader_of
from billing.portal.forms import Line, PageForm, TeamChoice, acting
from billing.portal.tables import Column, Table, download
from billing.tenancy.access import teams_visible_to
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup, Team

CADENCE = {"daily": _("Every day"), "weekly": _("Every Monday"), "monthly": _("Every first of a month")}
HOURS = [(hour, f"{hour:02d}:00") for hour in range(24)]
USUAL_HOUR = 8
VIEW = [
    Column("name"), Column("owner", of="owner.username"),
    Column("team", of=lambda view: view.team.code if view.team else ""), Column("query"),
]  # fmt: skip


class ViewForm(PageForm):
    """Form of a view: a name for the query of the address, and a team that shares it."""

    query = forms.CharField(widget=forms.HiddenInput, required=False, max_length=20_000)
    name = Line(label=_("Name"), max_length=100)
    team = TeamChoice(Team.objects.none(), label=_("Share with"), required=False, empty_label=_("Nobody"))

    @classmethod
    def of(cls, request: HttpRequest, data: Any = None, **initial: Any) -> "ViewForm":
        """Return the form with the teams of the reader."""
        form = cls(data, initial=initial)
        teams: Any = form.fields["team"]
        teams.queryset = teams_visible_to(request.user).order_by("code")
        return form

    def clean_query(self) -> str:
        """Return the query in the explorer's own notation."""
        try:
            return query_of(QueryDict(self.cleaned_data["query"]), timezone.localdate(), settings.FISCAL_YEAR_START).address
        except QueryError as error:
            raise forms.ValidationError(str(error)) from error


class ReportForm(PageForm):
    """Form of a view's report: its channel, its cadence and its hour."""

    channel = forms.ModelChoiceField(Channel.objects.none(), label=_("Channel"), empty_label=_("choose"))
    cadence = forms.ChoiceField(label=_("How often"), choices=list(CADENCE.items()), initial="weekly")
    hour = forms.TypedChoiceField(label=_("At"), choices=HOURS, coerce=int, initial=USUAL_HOUR)

    @classmethod
    def of(cls, request: HttpRequest, view: SavedView, data: Any = None) -> "ReportForm":
        """Return the form with the channels that the reader may send to."""
        form = cls(data, key=view.pk)
        channels: Any = form.fields["channel"]
        channels.queryset = services.channels_allowed(reader_of(request))
        return form


@page
def saved_views(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List the views of the reader, and those that their teams share; with the reports of the reader's own views."""
    tables = {"views": lambda: Table.of("explorer-views", services.views_seen(reader_of(request)), VIEW)}
    file = download(request, tables)
    return _page(request, setup) if file is None else file


def _page(
    request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None, status: int = 200
) -> HttpResponse:
    views = services.views_seen(reader_of(request)).prefetch_related("schedules__channel")
    rows = [
        (view, ReportForm.of(request, view).or_refused(refused) if view.owner_id == request.user.pk else None)
        for view in views
    ]
    form = ViewForm.of(request, query=request.GET.get("query", "")).or_refused(refused)
    context = {
        "nav": "explorer", "setup": setup, "rows": rows, "form": form, "refused": refused, "cadences": CADENCE,
        "channels": services.channels_allowed(reader_of(request)).exists(),
        "asked": "query" in request.GET or refused is form,
    }  # fmt: skip
    return render(request, "portal/saved_views.html", context, status=status)


@action
def view_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Store a query under a name."""
    form = ViewForm.of(request, request.POST)
    if form.done(services.view_put, owner=reader_of(request), actor=actor_of(request)):
        return redirect("portal:saved_views")
    return _page(request, setup, form, 400)


@action
def view_end(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    services.view_delete(view=_own(request, pk), actor=actor_of(request))
    return redirect("portal:saved_views")


@action
def report_new(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    view = _own(request, pk)
    form = ReportForm.of(request, view, request.POST)
    if form.done(services.report_put, view=view, zone=setup.zone, **acting(request)):
        return redirect("portal:saved_views")
    return _page(request, setup, form, 400)


@action
def report_stop(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    reports = ReportSchedule.objects.select_related("view__owner", "channel")
    services.report_end(report=get_object_or_404(reports, pk=pk, view__owner=reader_of(request)), actor=actor_of(request))
    return redirect("portal:saved_views")


def _own(request: HttpRequest, pk: int) -> SavedView:
    return get_object_or_404(SavedView.objects.select_related("owner"), pk=pk, owner=reader_of(request))
