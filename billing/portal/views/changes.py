"""Changes of closed time: the effect of each, and the steps to acknowledge, approve or reject it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext_lazy as _

from billing.corrections.corrected_before import Needed
from billing.corrections.effect import TeamMonth, effect_of
from billing.corrections.services import retroactive as services
from billing.portal.access import action, action_for, page, step_or_404
from billing.portal.forms import Line, Midnight, Number, PageForm, ReasonForm, TeamChoice, Text, acting
from billing.portal.selectors import team_names
from billing.portal.tables import Column, Table, download
from billing.rates.labels import TOKEN_CLASS
from billing.rating.labels import CHANGE_KIND
from billing.rating.models import RetroactiveChange
from billing.rating.selectors import changes_all
from billing.rating.services.changes import NAME_LIMIT
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup

SHOWN = 50
Kind = RetroactiveChange.Kind
OWNERSHIP = (Kind.NAMESPACE, Kind.CONSUMER)


SUMS = ("charged", "should_be", "credited", "kept", "difference")
"""Figures of the effect on a team's month."""


@dataclass(frozen=True)
class ShownChange:
    """Change with the part of its effect that the user may see, and the teams that they may acknowledge it for."""

    change: RetroactiveChange
    effect: list[TeamMonth]
    to_acknowledge: list[str]
    unrated: Mapping[str, str]
    entangled: bool
    form: PageForm
    needed: Needed | None

    @property
    def charged(self) -> Decimal:
        return sum((row.charged for row in self.effect), Decimal("0.00"))

    @property
    def should_be(self) -> Decimal:
        return sum((row.should_be for row in self.effect), Decimal("0.00"))

    @property
    def credited(self) -> Decimal:
        return sum((row.credited for row in self.effect), Decimal("0.00"))

    @property
    def kept(self) -> Decimal:
        return sum((row.kept for row in self.effect), Decimal("0.00"))

    @property
    def difference(self) -> Decimal:
        return sum((row.difference for row in self.effect), Decimal("0.00"))


class ChangeForm(PageForm):
    """Form of a correction of closed time: one price, one owner, or that late samples count."""

    kind = forms.ChoiceField(label=_("What changes"), choices=list(CHANGE_KIND.items()))
    name = Line(label=_("Name"), max_length=NAME_LIMIT, help_text=_("shown on lines"))
    valid_from = Midnight(label=_("From"))
    valid_until = Midnight(label=_("End date (exclusive)"), required=False, help_text=_("empty: the end of closed time"))
    accelerator = Line(label=_("Accelerator"), max_length=512, required=False)
    resource = Line(label=_("Slice"), max_length=512, required=False)
    model = Line(label=_("Model"), max_length=512, required=False)
    token_class = forms.ChoiceField(label=_("Tokens"), choices=[("", "—"), *TOKEN_CLASS.items()], required=False)
    price = Number(label=_("Price that was due"), required=False)
    scope = Line(label=_("Cluster or gateway"), max_length=512, required=False)
    thing = Line(label=_("Namespace or consumer"), max_length=512, required=False)
    team = TeamChoice(required=False, empty_label="—")
    onwards = forms.BooleanField(label=_("From the end of closed time on too"), required=False)
    reason = Text(label=_("Reason"), max_length=2000)
    evidence = Line(label=_("Evidence"), max_length=512, required=False)
    needed: Mapping[str, tuple[str, ...]] = {Kind.PRICE: ("price",), **dict.fromkeys(OWNERSHIP, ("scope", "thing", "team"))}

    def clean(self) -> dict[str, Any]:
        """Check that the facts of this kind of change are given."""
        facts = self.cleaned_data
        for name in self.needed.get(facts.get("kind", ""), ()):
            if name not in self.errors and facts.get(name) in (None, ""):
                self.add_error(name, _("is missing"))
        if facts.get("kind") == Kind.PRICE:
            devices, tokens = facts.get("accelerator") or facts.get("resource"), facts.get("model")
            if bool(devices) == bool(tokens):
                self.add_error("accelerator", _("name an accelerator or slice, or a model: one price at a time"))
            elif tokens and not facts.get("token_class"):
                self.add_error("token_class", _("is missing"))
        return facts

    def fact(self) -> dict[str, Any]:
        """Return the corrected fact as `billing.rating.services.changes.change_checked` takes it."""
        facts = self.cleaned_data
        price = {"price": str(facts["price"])}
        match facts["kind"]:
            case Kind.PRICE if facts["model"]:
                return {"tokens": [{"model": facts["model"], "token_class": facts["token_class"], **price}]}
            case Kind.PRICE:
                return {"gpu": [{"accelerator": facts["accelerator"], "resource": facts["resource"], **price}]}
            case Kind.NAMESPACE | Kind.CONSUMER:
                owner = {"team": facts["team"].code, "onwards": facts["onwards"]}
                return {"scope": facts["scope"], "name": facts["thing"], **owner}
        return {}


class NoticeForm(PageForm):
    """Form of an acknowledgement for a team."""

    team = Text(label=_("Team"))


def _rejection(data: Any = None, *, key: int) -> PageForm:
    return ReasonForm(data, key=key, label=_("Why it is rejected"))


STEPS: Mapping[str, tuple[Callable[..., object], Callable[..., PageForm]]] = {
    "approve": (services.retroactive_approve, PageForm),
    "reject": (services.retroactive_reject, _rejection),
    "acknowledge": (services.retroactive_acknowledge, NoticeForm),
}


@page
def change_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List changes that reach a team that the user may see; for finance all of them."""
    file = download(request, {"effects": lambda: _effects(request)})
    return _list(request, setup) if file is None else file


def _effects(request: HttpRequest) -> Table:
    """Return the effect of each change on each team and month that the user may see."""
    columns = [Column(name) for name in ("change", "kind", "status", "month", "team")]
    rows = [
        [change.name, change.kind, change.status, row.month, row.team, *(getattr(row, name) for name in SUMS)]
        for change in changes_all()[:SHOWN]
        if (found := _shown(request, change)) is not None
        for row in found.effect
    ]
    return Table("changes-of-closed-time", [*columns, *(Column(name, "money") for name in SUMS)], rows)


def _list(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    shown = [found for change in changes_all()[:SHOWN] if (found := _shown(request, change, refused)) is not None]
    context = {
        "nav": "corrections", "setup": setup, "changes": shown, "refused": refused,
        "team_names": team_names(request), "form": ChangeForm().or_refused(refused),
    }  # fmt: skip
    return render(request, "portal/changes.html", context, status=409 if refused else 200)


def _shown(request: HttpRequest, change: RetroactiveChange, refused: PageForm | None = None) -> ShownChange | None:
    """Return a change with its effects on the user's teams; None if it reaches none of them."""
    access = access_of(request.user)
    mine = set(teams_visible_to(request.user).values_list("code", flat=True))
    whole = effect_of(change)
    effect = [row for row in whole.by_team_and_month() if row.team in mine]
    unrated = {team: problem for team, problem in whole.unrated.items() if team in mine}
    if not effect and not unrated and not access.may(Right.READ):
        return None
    disputable = set(access.teams(Right.DISPUTE).values_list("code", flat=True))
    asked = change.kind in OWNERSHIP and change.proposal.waits
    teams = sorted({row.team for row in effect if row.team in disputable} - set(change.acknowledged))
    form = _rejection(key=change.pk).or_refused(refused)
    decides = change.proposal.waits and access.may(Right.READ)
    needed = services.change_needs(whole) if decides else None
    return ShownChange(change, effect, teams if asked else [], unrated, whole.entangled, form, needed)


@action_for(Right.CLOSE)
def change_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Propose a change; no amount moves before another user approves it."""
    form = ChangeForm(request.POST)

    def propose(
        kind: str, name: str, valid_from: datetime, valid_until: datetime | None, reason: str, evidence: str, **_fields: Any
    ) -> object:
        return services.retroactive_propose(
            kind=kind, name=name, fact=form.fact(), valid_from=valid_from, valid_until=valid_until, reason=reason,
            evidence=evidence, **acting(request),
        )  # fmt: skip

    return redirect("portal:changes") if form.done(propose) else _list(request, setup, form)


@action
def change_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Acknowledge a change for a team, approve or reject it."""
    change = get_object_or_404(RetroactiveChange, pk=pk)
    if _shown(request, change) is None:
        raise Http404(f"no change {pk} that {request.user} may see")
    service, form_of = step_or_404(STEPS, step)
    form = form_of(request.POST, key=pk)
    return redirect("portal:changes") if form.done(service, change_id=pk, **acting(request)) else _list(request, setup, form)
