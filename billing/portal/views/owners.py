"""Forms of teams and owners: the input becomes the text of a set-up file, is previewed with its effects, and applied."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.closing.services.showback import billing_modes_put
from billing.invoices.labels import BILLING_MODE
from billing.invoices.models import BillingPeriod
from billing.portal.access import action_for, page, page_for
from billing.portal.asked import chosen
from billing.portal.forms import Day, Line, Midnight, PageForm, TeamChoice, Text, acting
from billing.portal.months import open_periods
from billing.portal.selectors import teams_shown
from billing.portal.tables import Column, Table, columns, download
from billing.runtime.translation import translated
from billing.setup.owners import (
    MOST_BYTES,
    Preview,
    changed_from,
    file_text,
    owners_apply,
    owners_preview,
    sections_text,
    team_ending,
    teams_declared,
)
from billing.tenancy.access import Right
from billing.tenancy.actors import actor_of
from billing.tenancy.cost_centers import ORGANISATION
from billing.tenancy.models import BillingMode, BillingSetup, Team
from billing.tenancy.showback import billing_modes
from metering.intervals import month_of
from metering.names import MAX_NAME_BYTES, name_problem

FORM: Final = "form"
"""Name of a form's text in refusals."""
OF_OWNERS: Final = ("ownership:", "platform:", "consumers:")
"""First words of the sections that the page of owners shows."""
TEAM: Final = [
    *columns("code", "name", "cost_center"), Column("parent", of=lambda team: team.parent.code if team.parent else ""),
    Column("group", of=lambda team: str(team.is_group).lower()), *columns("legal_entity", "recipient", "department"),
]  # fmt: skip


class Name(Line):
    """Field for a name of usage, or a pattern of names."""

    def run_validators(self, value: str) -> None:
        if (problem := name_problem(value)) is not None:
            raise forms.ValidationError(translated(problem))


class TeamForm(PageForm):
    """Form of a team or group as the set-up file has it; the code of a stored team changes that team."""

    code = Line(label=_("Code"), max_length=64)
    name = Line(label=_("Name"), max_length=200)
    cost_center = Line(label=_("Cost centre"), max_length=64, required=False)
    parent = TeamChoice(Team.objects.order_by("code"), label=_("Parent group"), required=False, empty_label="—")
    department = Line(label=_("Department"), max_length=200, required=False)
    group = forms.BooleanField(label=_("Group: has teams below it, owns nothing and gets no invoice"), required=False)
    legal_entity = Line(label=_("Legal entity"), max_length=200, required=False)
    recipient = Line(
        label=_("Documents to the attention of"), max_length=200, required=False,
        help_text=_("a name printed on the documents; mails go to the billing contacts of the team"),
    )  # fmt: skip

    changes_from = Midnight(
        label=_("Organisation from"), required=False,
        help_text=_("the day from which a new cost centre, department, parent or legal entity counts; empty: always"),
    )  # fmt: skip

    def clean_recipient(self) -> str:
        """Raise ValidationError for an address: nothing would ever be sent there."""
        text: str = self.cleaned_data["recipient"]
        if "@" in text:
            raise forms.ValidationError(_("is an address, and nothing is sent to it: add it as a billing contact"))
        return text

    def text(self) -> str:
        facts = dict(self.cleaned_data)
        since = facts.pop("changes_from")
        facts["parent"] = facts["parent"].code if facts["parent"] else ""
        known = Team.objects.select_related("parent").filter(code=facts["code"]).first()
        if known is not None:
            facts |= {fact: changed_from(known, fact, facts[fact], since) for fact in ("cost_center", *ORGANISATION)}
        return sections_text({"teams": [facts]})


class EndForm(PageForm):
    """Form of a team's end: the new owner of its namespaces and consumers, and the day."""

    team = TeamChoice()
    successor = TeamChoice(
        label=_("New owner of what it owns"), required=False, empty_label=_("Nobody: unowned from then on")
    )
    day = Midnight(label=_("From"))

    def clean(self) -> dict[str, Any]:
        if self.cleaned_data.get("team") is not None and self.cleaned_data["team"] == self.cleaned_data.get("successor"):
            self.add_error("successor", _("must be another team"))
        return self.cleaned_data

    def text(self) -> str:
        """Return the sections that end the team's ownership.  Raises SetUpFileError."""
        facts = self.cleaned_data
        successor = facts["successor"].code if facts["successor"] else ""
        return sections_text(team_ending(facts["team"].code, facts["day"], successor))


class ClaimForm(PageForm):
    """Form of an owner: the team that pays for a namespace or for a gateway's consumer, and the days."""

    kind = forms.ChoiceField(
        label=_("What"), choices=(("namespace", _("Namespace")), ("consumer", _("Consumer of a gateway")))
    )
    place = Name(label=_("Cluster or gateway"), max_length=MAX_NAME_BYTES)
    name = Name(label=_("Name or pattern"), max_length=MAX_NAME_BYTES)
    team = TeamChoice(required=False, empty_label=_("A new team"))
    new_team = Line(label=_("Code of the new team"), max_length=64, required=False)
    platform = forms.BooleanField(label=_("Paid by the platform, recovered through token prices"), required=False)
    valid_from = Day(label=_("From"), required=False, help_text=_("empty: always"))
    valid_until = Day(label=_("End date (exclusive)"), required=False, help_text=_("empty: open"))

    def clean(self) -> dict[str, Any]:
        """Check that one team is named, and that no consumer is the platform's: token prices recover its cost."""
        if not self.cleaned_data.get("team") and not self.cleaned_data.get("new_team") and "team" not in self.errors:
            self.add_error("team", _("choose a team, or name a new one"))
        if self.cleaned_data.get("team") and self.cleaned_data.get("new_team"):
            self.add_error("new_team", _("is given beside a team: choose one of the two"))
        if self.cleaned_data.get("platform") and self.cleaned_data.get("kind") == "consumer":
            self.add_error("platform", _("only a namespace may be the platform's"))
        return self.cleaned_data

    def text(self) -> str:
        facts = self.cleaned_data
        consumer = facts["kind"] == "consumer"
        keys = ("source", "consumer") if consumer else ("cluster", "namespace")
        entry = {
            keys[0]: facts["place"], keys[1]: facts["name"],
            "team": facts["team"].code if facts["team"] else facts["new_team"],
            "valid_from": facts["valid_from"], "valid_until": facts["valid_until"],
        }  # fmt: skip
        section = "consumers" if consumer else "platform" if facts["platform"] else "ownership"
        made = {} if facts["team"] else {"teams": [{"code": facts["new_team"], "name": facts["new_team"]}]}
        return sections_text({**made, section: [entry]})


class ModeForm(PageForm):
    """Form of the billing mode: chargeback or showback of a team or of all, from a month on."""

    team = TeamChoice(required=False, empty_label=_("All teams"))
    mode = forms.ChoiceField(label=_("Billing"), choices=list(BILLING_MODE.items()))
    from_month = Line(label=_("From month"), max_length=7, widget=forms.TextInput(attrs={"placeholder": "2026-10"}))
    reason = Text(label=_("Reason"), max_length=2000)


class FileForm(PageForm):
    """Form of teams and owners from a file: YAML as `apply` takes it, or a table of teams."""

    file = forms.FileField(label=_("YAML, or a table of teams (.csv)"), max_length=200)

    def text(self) -> str:
        """Return the file's content as text of a set-up file.  Raises SetUpFileError."""
        sent = self.cleaned_data["file"]
        return file_text(sent.read(MOST_BYTES + 1), sent.name)


class TextForm(PageForm):
    """Form of a text that was previewed."""

    text = Text(max_length=MOST_BYTES, strip=False, widget=forms.HiddenInput)


def _of_now(team: Team) -> dict[str, Any]:
    """Return the facts of a team for its form: of a dated fact the current value."""
    now = {fact: getattr(team, fact) for fact in ("cost_center", "department", "legal_entity")}
    return {**teams_declared([team])[0], **now, "parent": team.parent.code if team.parent else None}


FORMS: Final[Mapping[str, type[PageForm]]] = {"team": TeamForm, "end": EndForm, "claim": ClaimForm, "file": FileForm}


@page
def teams(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List teams and groups, with the forms that change them."""
    return _teams(request, setup)


def _teams(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    shown = list(teams_shown(request.user))
    if (file := download(request, {"teams": lambda: Table.of("teams", shown, TEAM)})) is not None:
        return file
    by_code = {team.code: team for team in shown}
    edited = by_code.get(chosen(request, "edit", by_code))
    modes, month = billing_modes(), month_of(timezone.now(), setup.zone)
    context = {
        "nav": "teams", "setup": setup, "teams": shown, "edited": edited, "refused": refused,
        "yaml": sections_text({"teams": teams_declared(shown)}),
        "team_form": TeamForm(key="team", initial=_of_now(edited) if edited else None).or_refused(refused),
        "end_form": EndForm(key="end", initial={"team": edited.code if edited else None}).or_refused(refused),
        "file_form": FileForm(key="file").or_refused(refused),
        "mode_form": ModeForm(key="mode", initial={"mode": BillingMode.Mode.SHADOW}).or_refused(refused),
        "shown_only": {team.code for team in shown if modes.shadow(team.code, month)}, "month": month,
    }  # fmt: skip
    return render(request, "portal/teams.html", context, status=409 if refused else 200)


@action_for(Right.APPROVE)
def mode(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Set chargeback or showback of teams, from an open month on."""

    def put(team: Team | None, **facts: Any) -> object:
        teams = Team.objects.filter(is_group=False).order_by("code").values_list("code", flat=True)
        return billing_modes_put(teams=[team.code] if team else list(teams), **facts, **acting(request))

    form = ModeForm(request.POST, key="mode")
    return redirect("portal:teams") if form.done(put) else _teams(request, setup, form)


@page_for(Right.OPERATE)
def claim(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the form of an owner of a namespace or consumer; the address may fill its fields."""
    asked = {name: request.GET.get(name, "") for name in ("kind", "place", "name", "team", "valid_from")}
    return _claim(request, setup, ClaimForm(key="claim", initial={name: value for name, value in asked.items() if value}))


def _claim(request: HttpRequest, setup: BillingSetup, form: PageForm) -> HttpResponse:
    context = {"nav": "ownership", "setup": setup, "form": form, "refused": form if form.is_bound else None}
    return render(request, "portal/claim.html", context, status=409 if form.is_bound else 200)


@action_for(Right.OPERATE)
def owners_look(request: HttpRequest, setup: BillingSetup, kind: str) -> HttpResponse:
    """Preview the changes of a form, and their effects in open months; nothing is stored."""
    if kind not in FORMS:
        raise Http404(f"no form {kind!r}")
    form = FORMS[kind](request.POST, files=request.FILES, key=kind)
    looked = looked_at(request, form, owners_preview, open_periods(setup, timezone.now()))
    if looked is None:
        return _claim(request, setup, form) if kind == "claim" else _teams(request, setup, form)
    page, called = ("ownership", _("Ownership")) if kind == "claim" else ("teams", _("Teams"))
    context = {
        "nav": page, "setup": setup, "back": page, "called": called, "store": "owners_store",
        "nothing": _("No usage of an open month changes its payer."), "asked": None if kind == "file" else form, **looked,
    }  # fmt: skip
    return render(request, "portal/preview.html", context)


def looked_at(
    request: HttpRequest, form: Any, preview: Callable[..., Preview], periods: Sequence[BillingPeriod]
) -> dict[str, Any] | None:
    """Return the context of `preview.html` for the text that a form makes; None if it is refused."""

    def look(**_facts: Any) -> tuple[str, Preview]:
        text = form.text()
        return text, preview(text=text, name=FORM, actor=actor_of(request), periods=periods)

    if not form.done(look):
        return None
    text, shown = form.made
    return {
        "text": text, "preview": shown, "form": TextForm(key="text", initial={"text": text}),
        "names": dict(Team.objects.values_list("code", "name")), "months": [period.month for period in periods],
    }  # fmt: skip


@action_for(Right.OPERATE)
def owners_store(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Apply a text that was previewed."""
    form = TextForm(request.POST, key="text")
    if form.done(owners_apply, name=FORM, actor=actor_of(request)):
        of_owners = any(line.startswith(OF_OWNERS) for line in form.cleaned_data["text"].splitlines())
        return redirect("portal:ownership" if of_owners else "portal:teams")
    return _teams(request, setup, form)
