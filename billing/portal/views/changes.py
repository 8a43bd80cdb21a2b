"""Changes of closed time: what each would do, and for whom it is to take note, approve or reject."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST, require_safe

from billing.corrections.effect import TeamMonth, effect_of
from billing.corrections.services.retroactive import (
    retroactive_acknowledge,
    retroactive_approve,
    retroactive_reject,
)
from billing.portal.access import page
from billing.portal.forms import PageForm, ReasonForm, Text, acting
from billing.portal.tables import Column, Table, download
from billing.rating.models import RetroactiveChange
from billing.rating.selectors import changes_all
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup

SHOWN = 50
OWNERSHIP = (RetroactiveChange.Kind.NAMESPACE, RetroactiveChange.Kind.CONSUMER)


@dataclass(frozen=True)
class ShownChange:
    """A change with the part of its effect that the person may see, and the teams that they may take note for."""

    change: RetroactiveChange
    effect: list[TeamMonth]
    to_acknowledge: list[str]
    unrated: Mapping[str, str]
    entangled: bool
    form: PageForm

    @property
    def charged(self) -> Decimal:
        """What was charged for all of it."""
        return sum((row.charged for row in self.effect), Decimal("0.00"))

    @property
    def should_be(self) -> Decimal:
        """What was due for all of it."""
        return sum((row.should_be for row in self.effect), Decimal("0.00"))

    @property
    def difference(self) -> Decimal:
        """What is to be charged or credited for all of it."""
        return self.should_be - self.charged


class NoticeForm(PageForm):
    """The team for which somebody takes note."""

    team = Text(label=_("Team"))


def _rejection(data: Any = None, *, key: int) -> PageForm:
    return ReasonForm(data, key=key, label=_("Why it is rejected"))


STEPS: Mapping[str, tuple[Callable[..., object], Callable[..., PageForm]]] = {
    "approve": (retroactive_approve, PageForm),
    "reject": (retroactive_reject, _rejection),
    "acknowledge": (retroactive_acknowledge, NoticeForm),
}


@require_safe
@page
def change_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Changes that reach a team that somebody may see; for finance all of them."""
    file = download(request, {"effects": lambda: _effects(request)})
    return _list(request, setup) if file is None else file


def _effects(request: HttpRequest) -> Table:
    """What each change does to each team and month that the person may see."""
    columns = [Column(name) for name in ("change", "kind", "status", "month", "team")]
    rows = [
        [change.name, change.kind, change.status, row.month, row.team, row.charged, row.should_be, row.difference]
        for change in changes_all()[:SHOWN]
        if (found := _shown(request, change)) is not None
        for row in found.effect
    ]
    sums = (Column("charged", "money"), Column("should_be", "money"), Column("difference", "money"))
    return Table("changes-of-closed-time", [*columns, *sums], rows)


def _list(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    shown = [found for change in changes_all()[:SHOWN] if (found := _shown(request, change, refused)) is not None]
    context = {
        "nav": "corrections", "setup": setup, "changes": shown, "refused": refused,
        "team_names": dict(teams_visible_to(request.user).exclude(name="").values_list("code", "name")),
    }  # fmt: skip
    return render(request, "portal/changes.html", context, status=409 if refused else 200)


def _shown(request: HttpRequest, change: RetroactiveChange, refused: PageForm | None = None) -> ShownChange | None:
    """Effects are those of one's own teams; a change that reaches none of them is not there."""
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
    return ShownChange(change, effect, teams if asked else [], unrated, whole.entangled, form)


@require_POST
@page
def change_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Take note of a change for a team, approve or reject it."""
    change = RetroactiveChange.objects.filter(pk=pk).first()
    if change is None or _shown(request, change) is None:
        raise Http404(f"no change {pk} that {request.user} may see")
    if step not in STEPS:
        raise Http404(f"no step {step!r}")
    service, form_of = STEPS[step]
    form = form_of(request.POST, key=pk)
    return redirect("portal:changes") if form.done(service, change_id=pk, **acting(request)) else _list(request, setup, form)
