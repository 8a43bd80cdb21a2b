"""Installation of agents: a token for a new cluster or gateway, its commands, and the check of its first report."""

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
from billing.portal.installing import Commands, reported_through
from billing.tenancy.access import Right
from billing.tenancy.actors import actor_of
from billing.tenancy.models import ApiToken, BillingSetup
from billing.tenancy.tokens import DAYS, MOST_DAYS, api_token_create

SCOPE = "usage:write"
KINDS = [
    ("cluster", _("Cluster of Kubernetes")),
    ("slurm", _("Slurm, on its head node")),
    ("gateway", _("Gateway on a host")),
]
PLAIN = RegexValidator(r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z", _("only letters, digits, dots, hyphens and underscores"))
IMAGE = RegexValidator(r"\A[A-Za-z0-9][A-Za-z0-9._:/-]*\Z", _("only letters, digits and . _ : / -"))


class InstallForm(PageForm):
    kind = forms.ChoiceField(label=_("What reports"), choices=KINDS)
    name = Text(label=_("Name of the cluster or gateway"), max_length=63, validators=[PLAIN])
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
    known = ApiToken.objects.exclude(source="").filter(scopes__contains=[SCOPE])
    # no token has the key 0; more digits might not fit into the column
    token = get_object_or_404(known, pk=int(wanted) if wanted.isdecimal() and len(wanted) < 10 else 0)
    context = {"setup": setup, "token": token, "through": reported_through(token)}
    return render(request, "portal/parts/first_report.html", context)


@action_for(Right.MANAGE_PEOPLE)
def install_token(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Create the token; it is shown this once, in the commands."""

    def make(*, name: str, days: int, **_choices: Any) -> tuple[ApiToken, str]:
        ends = timezone.now() + timedelta(days=days)
        return api_token_create(name=name, scopes=[SCOPE], source=name, expires_at=ends, actor=actor_of(request))

    form = InstallForm(request.POST)
    return _page(request, setup, form, made=form.made if form.done(make) else None)


def _asked(request: HttpRequest) -> dict[str, str]:
    """Return the initial values of the form from the address."""
    kind = chosen(request, "kind", dict(KINDS))
    return {"kind": kind} if kind else {}


def _page(
    request: HttpRequest, setup: BillingSetup, sent: InstallForm | None = None, made: tuple[ApiToken, str] | None = None
) -> HttpResponse:
    context: dict[str, Any] = {"nav": "install_agent", "setup": setup, "form": InstallForm(initial=_asked(request))}
    if made is not None and sent is not None:
        token, secret = made
        endpoint = (settings.PORTAL_URL or request.build_absolute_uri("/")).rstrip("/")
        commands = Commands(endpoint, token.source, secret, sent.cleaned_data["image"] or "suanpan-agent")
        text = {kind: getattr(commands, kind) for kind, _label in KINDS}[sent.cleaned_data["kind"]]
        context |= {"token": token, "command": text, "through": reported_through(token)}
    elif sent is not None:
        context |= {"refused": sent, "form": sent}
    return render(request, "portal/install_agent.html", context, status=409 if "refused" in context else 200)
