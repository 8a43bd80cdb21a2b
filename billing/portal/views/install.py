"""Connections: a token for a new cluster, gateway or assistant, its configuration, and the check of its first report."""

from datetime import timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.core.validators import RegexValidator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.portal.access import action_for, page_for
from billing.portal.asked import chosen
from billing.portal.forms import PageForm, Text
from billing.portal.installing import GROUPS, WAYS, Commands, last_record, reported_through
from billing.tenancy.access import Right
from billing.tenancy.actors import actor_of
from billing.tenancy.models import ApiToken, BillingSetup
from billing.tenancy.tokens import DAYS, MOST_DAYS, api_token_create

KINDS = [(name, way.label) for name, way in WAYS.items()]
CHOICES = [(group, [(name, way.label) for name, way in ways.items()]) for group, ways in GROUPS.items()]
PLACEHOLDER = "TOKEN"
PLAIN = RegexValidator(r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z", _("only letters, digits, dots, hyphens and underscores"))
IMAGE = RegexValidator(r"\A[A-Za-z0-9][A-Za-z0-9._:/-]*\Z", _("only letters, digits and . _ : / -"))


class InstallForm(PageForm):
    kind = forms.ChoiceField(label=_("What connects"), choices=CHOICES)
    name = Text(label=_("Name of the cluster, gateway or reader"), max_length=63, validators=[PLAIN])
    image = Text(
        label=_("Image of the agents"), max_length=255, required=False, initial="REGISTRY/suanpan-agent", validators=[IMAGE]
    )
    days = forms.IntegerField(label=_("Days until it ends"), min_value=1, max_value=MOST_DAYS, initial=DAYS)


@page_for(Right.MANAGE_PEOPLE)
def install_agent(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the form; with `?token=ID` only the part that shows the first report of that token."""
    wanted = request.GET.get("token", "")
    if not wanted:
        return _page(request, setup)
    # no token has the key 0; more digits might not fit into the column
    token = get_object_or_404(ApiToken, pk=int(wanted) if wanted.isdecimal() and len(wanted) < 10 else 0)
    return render(request, "portal/parts/first_report.html", {"setup": setup, **_state(token)})


@action_for(Right.MANAGE_PEOPLE)
def install_token(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Create the token; it is shown this once, in the configuration."""
    actor = actor_of(request)

    def make(*, kind: str, name: str, days: int, **_choices: Any) -> tuple[ApiToken, str]:
        ends, way = timezone.now() + timedelta(days=days), WAYS[kind]
        whose: dict[str, Any] = {"owner": actor.account} if way.reads else {"source": name}
        return api_token_create(name=name, scopes=list(way.scopes), expires_at=ends, actor=actor, **whose)

    form = InstallForm(request.POST)
    return _page(request, setup, form, made=form.made if form.done(make) else None)


def _asked(request: HttpRequest) -> dict[str, str]:
    """Return the initial values of the form from the address."""
    kind = chosen(request, "kind", dict(KINDS))
    return {"kind": kind} if kind else {}


def _state(token: ApiToken) -> dict[str, Any]:
    """Return a token with what its source has reported."""
    reports = bool(token.source)
    return {
        "token": token, "reports": reports, "through": reported_through(token) if reports else None,
        "last": last_record(token) if reports else None,
    }  # fmt: skip


def _page(
    request: HttpRequest, setup: BillingSetup, sent: InstallForm | None = None, made: tuple[ApiToken, str] | None = None
) -> HttpResponse:
    asked = _asked(request)
    context: dict[str, Any] = {
        "nav": "install_agent", "setup": setup, "form": InstallForm(initial=asked), "groups": GROUPS,
        "chosen": asked.get("kind"),
    }  # fmt: skip
    endpoint = (settings.PORTAL_URL or request.build_absolute_uri("/")).rstrip("/")
    if made is not None and sent is not None:
        token, secret = made
        kind, image = sent.cleaned_data["kind"], sent.cleaned_data["image"] or "suanpan-agent"
        text = getattr(Commands(endpoint, token.name, secret, image), kind)
        context |= {"command": text, "way": WAYS[kind], "chosen": kind, "form": InstallForm(initial={"kind": kind})}
        context |= _state(token)
    elif sent is not None:
        context |= {"refused": sent, "form": sent}
    elif asked:
        text = getattr(Commands(endpoint, "NAME", PLACEHOLDER, "REGISTRY/suanpan-agent"), asked["kind"])
        context |= {"example": text, "way": WAYS[asked["kind"]]}
    return render(request, "portal/install_agent.html", context, status=409 if "refused" in context else 200)
