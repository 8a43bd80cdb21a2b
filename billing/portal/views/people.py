"""People and access: accounts, their roles, and the API tokens that act for them."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from billing.portal.access import action, action_for, page, page_for
from billing.portal.asked import page_shown
from billing.portal.forms import Line, PageForm, TeamChoice, Text, acting
from billing.portal.labels import LABELS
from billing.portal.tables import Column, Table, columns, download
from billing.tenancy.access import Right
from billing.tenancy.actors import Actor, actor_of
from billing.tenancy.models import ApiToken, BillingSetup, Membership, Team
from billing.tenancy.people import (
    account_create,
    account_role_grant,
    account_role_revoke,
    account_switch,
    conflicting_duties,
)
from billing.tenancy.tokens import (
    DAYS,
    MOST_DAYS,
    SCOPES,
    api_token_create,
    api_token_revoke,
    api_token_rotate,
    scopes_of_own,
)

SCOPE_WORDS: Final = {
    "usage:write": _("Report usage: agents, gateways, log readers"),
    "usage:read": _("Read usage, its quarantine and its sums"),
    "usage:correct": _("Decide quarantined records and report meter readings"),
    "prices:read": _("Read published prices"),
    "prices:write": _("Write price lists, which another person approves"),
    "prices:approve": _("Approve at a command line or by the API what another person made"),
    "invoices:read": _("Read invoices, charges, credit notes, exports and costs"),
    "budgets:read": _("Ask whether a request may be served, which reserves what it may cost"),
    "journal:acknowledge": _("Confirm that the ledger has booked a journal"),
    "disputes:write": _("Open and answer disputes"),
    "teams:write": _("Change cost centre, department, legal entity and parent of teams"),
    "people:provision": _("Let an identity provider make accounts and give roles (SCIM)"),
}
SCOPE_CHOICE: Final = '<code>{}</code> <span class="soft">{}</span>'
PERSON = [
    Column("user_name", of="username"), Column("name", of=User.get_full_name), *columns("email", "is_active", "last_login"),
    Column("roles", of=lambda person: ", ".join(held.role for held in person.memberships.all())),
    Column("conflicting_duties", of=lambda person: ", ".join(_duties(person))),
]  # fmt: skip
TOKEN = [
    *columns("name", "prefix"), Column("scopes", of=lambda token: ", ".join(token.scopes)), Column("source"),
    Column("team", of=lambda token: token.team.code if token.team else ""),
    Column("owner", of=lambda token: token.owner.get_username() if token.owner else ""),
    *columns("created_at", "expires_at", "last_used_at", "revoked_at"),
]  # fmt: skip


class AccountForm(PageForm):
    username = Line(label=_("User name"), max_length=150)
    full_name = Line(label=_("Full name"), max_length=150, required=False)
    email = Text(label=_("Mail address"), max_length=254, required=False, widget=forms.EmailInput)


class RoleForm(PageForm):
    """Form of a role of a user, for all teams or for one."""

    user_id = forms.ModelChoiceField(
        User.objects.filter(is_active=True).order_by("username"), label=_("Person"), empty_label=_("Choose")
    )
    role = forms.ChoiceField(label=_("Role"), choices=lambda: LABELS["role"].items())
    team = TeamChoice(Team.objects.order_by("code"), required=False, empty_label=_("All teams"))

    def clean_user_id(self) -> int:
        return int(self.cleaned_data["user_id"].pk)


class OwnTokenForm(PageForm):
    """Form of a new API token of the reader, who needs no other person for it."""

    name = Line(label=_("Purpose"), max_length=200)
    scopes = forms.MultipleChoiceField(label=_("Scopes"), widget=forms.CheckboxSelectMultiple)
    team = TeamChoice(Team.objects.order_by("code"), label=_("Only for team"), required=False, empty_label=_("All teams"))
    days = forms.IntegerField(label=_("Days until it ends"), min_value=1, max_value=MOST_DAYS, initial=DAYS)

    def __init__(self, actor: Actor, data: Any = None) -> None:
        super().__init__(data)
        self.offer(actor)

    def offer(self, actor: Actor) -> None:
        """Offer the scopes and teams that the reader may have."""
        self._scopes(scopes_of_own(actor))
        teams: Any = self.fields["team"]
        teams.queryset = actor.access.teams(Right.READ).order_by("code")

    def _scopes(self, scopes: Iterable[str]) -> None:
        field: Any = self.fields["scopes"]
        field.choices = [(scope, format_html(SCOPE_CHOICE, scope, SCOPE_WORDS[scope])) for scope in scopes]


class TokenForm(OwnTokenForm):
    """Form of a new API token of the reader or of no owner: its maker sees it, and could act in the name of its owner."""

    source = Line(label=_("Only for source or cluster"), max_length=512, required=False)
    owner = forms.ModelChoiceField(
        User.objects.none(), label=_("Owner"), to_field_name="username", required=False,
        empty_label=_("Nobody: of a gateway or an agent"),
    )  # fmt: skip
    field_order = ("name", "scopes", "source", "team", "owner", "days")

    def offer(self, actor: Actor) -> None:
        """Offer every scope; the reader is the owner unless they choose none."""
        self._scopes(SCOPES)
        owner: Any = self.fields["owner"]
        owner.queryset, owner.initial = User.objects.filter(username=actor), actor


@page_for(Right.MANAGE_PEOPLE)
def people(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List all accounts with their roles, and every token in force."""
    tables = {
        "people": lambda: Table.of("people", _people(request), PERSON),
        "tokens": lambda: Table.of("api-tokens", _tokens(), TOKEN),
    }
    file = download(request, tables)
    return _page(request, setup) if file is None else file


@action_for(Right.MANAGE_PEOPLE)
def account_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Create a local account: its mail address gets an invitation, or its first password is shown once."""
    form = AccountForm(request.POST)
    invite = settings.MAIL_CONFIGURED and bool(settings.PORTAL_URL and request.POST.get("email", "").strip())
    done = form.done(account_create, actor=actor_of(request), invite=invite)
    return _page(request, setup, made=form.made) if done else _page(request, setup, form)


@action_for(Right.MANAGE_PEOPLE)
def account_active(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    if step not in ("enable", "disable"):
        raise Http404(step)
    form = PageForm(request.POST)
    done = form.done(account_switch, user_id=pk, active=step == "enable", actor=actor_of(request))
    return redirect("portal:people") if done else _page(request, setup, form)


@action_for(Right.MANAGE_PEOPLE)
def role_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    form = RoleForm(request.POST)
    done = form.done(account_role_grant, actor=actor_of(request))
    return redirect("portal:people") if done else _page(request, setup, form)


@action_for(Right.MANAGE_PEOPLE)
def role_end(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    form = PageForm(request.POST)
    done = form.done(account_role_revoke, membership_id=pk, actor=actor_of(request))
    return redirect("portal:people") if done else _page(request, setup, form)


@action_for(Right.MANAGE_PEOPLE)
def token_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Create a token; it is shown once."""
    form = TokenForm(actor_of(request), request.POST)
    done = form.done(token_made, actor=actor_of(request))
    return _page(request, setup, made=form.made) if done else _page(request, setup, form)


@action_for(Right.MANAGE_PEOPLE)
def token_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Revoke a token or replace it; a token of another user cannot be replaced, since the page would show the new one."""
    own = Q(owner=None) | Q(owner_id=request.user.pk)
    token = _tokens().filter(own if step == "rotate" else Q(), pk=pk).first()
    return _token_step(request, setup, token, step, _page, "portal:people")


def _token_step(
    request: HttpRequest, setup: BillingSetup, token: ApiToken | None, step: str, page: Callable[..., HttpResponse],
    back: str,
) -> HttpResponse:  # fmt: skip
    if token is None or step not in ("revoke", "rotate"):
        raise Http404(f"no token, or no step {step[:20]!r}")
    if step == "revoke":
        api_token_revoke(token=token, **acting(request))
        return redirect(back)
    form = PageForm(request.POST)
    done = form.done(api_token_rotate, token=token, days=DAYS, **acting(request))
    return page(request, setup, made=form.made) if done else page(request, setup, form)


@page
def own_tokens(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List the tokens of the reader that are in force."""
    file = download(request, {"tokens": lambda: Table.of("api-tokens", _own_tokens(request), TOKEN)})
    return _own_page(request, setup) if file is None else file


@action
def own_token_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Create a token of the reader; it is shown once."""
    actor = actor_of(request)
    form = OwnTokenForm(actor, request.POST)
    done = form.done(token_made, actor=actor, owner=actor.account)
    return _own_page(request, setup, made=form.made) if done else _own_page(request, setup, form)


@action
def own_token_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Revoke a token of the reader, or replace it."""
    token = _own_tokens(request).filter(pk=pk).first()
    return _token_step(request, setup, token, step, _own_page, "portal:own_tokens")


def token_made(*, days: int, **facts: Any) -> tuple[ApiToken, str]:
    """Create an API token that ends after `days` days."""
    return api_token_create(**facts, expires_at=timezone.now() + timedelta(days=days))


def _own_tokens(request: HttpRequest) -> QuerySet[ApiToken]:
    return _tokens().filter(owner_id=request.user.pk)


def _own_page(
    request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None, made: tuple[ApiToken, str] | None = None
) -> HttpResponse:
    token, secret = made or (None, "")
    context = {
        "nav": "own_tokens", "setup": setup, "refused": refused, "tokens": _own_tokens(request), "secret": secret,
        "made_token": token, "token_form": OwnTokenForm(actor_of(request)).or_refused(refused), "now": timezone.now(),
    }  # fmt: skip
    return render(request, "portal/own_tokens.html", context, status=409 if refused else 200)


def _people(request: HttpRequest) -> QuerySet[User]:
    wanted = request.GET.get("q", "").strip()
    found = User.objects.prefetch_related("memberships__team", "socialaccount_set").order_by("-is_active", "username")
    named = Q(username__icontains=wanted) | Q(first_name__icontains=wanted) | Q(email__icontains=wanted)
    return found.filter(named) if wanted else found


def _tokens() -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(revoked_at=None).select_related("team", "owner").order_by("name", "id")


def _duties(person: User) -> list[str]:
    held = [membership.role for membership in person.memberships.all()]
    return ["everything"] if person.is_superuser else [right.value for right in conflicting_duties(held)]


def _page(
    request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None, made: tuple[Any, str] | None = None
) -> HttpResponse:
    """Render the page; `made`: an account or token with its secret, which is shown this once."""
    shown = page_shown(request, _people(request))
    subject, secret = made or (None, "")
    context = {
        "nav": "people", "setup": setup, "refused": refused, "page": shown, "wanted": request.GET.get("q", ""),
        "people": [(person, _duties(person)) for person in shown.object_list], "tokens": _tokens(), "secret": secret,
        "made_account": subject if isinstance(subject, User) else None,
        "made_token": subject if isinstance(subject, ApiToken) else None,
        "account_form": AccountForm().or_refused(refused), "role_form": RoleForm().or_refused(refused),
        "token_form": TokenForm(actor_of(request)).or_refused(refused),
        "provider": Membership.Origin.PROVIDER, "now": timezone.now(),
    }  # fmt: skip
    return render(request, "portal/people.html", context, status=409 if refused else 200)
