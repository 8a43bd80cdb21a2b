"""The same person cannot both make and approve a price list, by whichever two real requests and commands they try it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.test import Client

from billing.rates.models import PriceDraft, PriceVersion
from billing.tenancy.tokens import api_token_create
from tests import factories
from tests.factories.api import bearer
from tests.factories.commands import since_2024
from tests.factories.price_api import BODY, Caller

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
MAIL = "ann@example.org"
DOCUMENT = """\
name: 2099-01
valid_from: '2099-01-01T00:00:00+08:00'
reason: new cards
gpu: [{accelerator: NVIDIA-H800, price_per_gpu_hour: 12}]
tokens: []
"""
FORM = {
    "name": "2099-01", "valid_from": "2099-01-01", "reason": "new cards", "gpu_accelerator": ["NVIDIA-H800"],
    "gpu_resource": [""], "gpu_source": ["price_per_gpu_hour"], "gpu_value": ["12"], "tokens_model": [""],
    "tokens_input": [""], "tokens_cache_read": [""], "tokens_cache_creation": [""], "tokens_output": [""],
    "tokens_cost_sheet": [""],
}  # fmt: skip
HISTORY = {"steps-TOTAL_FORMS": "0", "steps-INITIAL_FORMS": "0"}


@dataclass(frozen=True)
class Desk:
    """Where somebody works: a folder for files, and the environment of commands."""

    folder: Path
    environment: pytest.MonkeyPatch


def browser(name: str) -> Client:
    return factories.signed_in(name)


def caller(name: str) -> Caller:
    return Caller(browser(name))


def token_of(scope: str, owner: str | None, made_by: str) -> str:
    if owner:
        return factories.own_token(User.objects.get(username=owner), f"{scope} {owner}", scope)[1]
    return api_token_create(name=f"{scope} {owner}", scopes=[scope], actor=made_by)[1]


def by_token(scope: str, owner: str | None, made_by: str) -> Caller:
    return Caller(Client(), bearer(token_of(scope, owner, made_by)))


def made_on_the_page(name: str) -> None:
    assert browser(name).post("/prices/drafts/new/", FORM).status_code == 302
    submitted_on_the_page(name)


def submitted_on_the_page(name: str) -> None:
    draft = PriceDraft.objects.get()
    answer = browser(name).post(f"/prices/drafts/{draft.pk}/submit/", {"revision": str(draft.revision)})
    assert answer.status_code == 302, answer.content.decode()


def made_in_the_administration(name: str) -> None:
    answer = browser(name).post("/admin/rates/pricedraft/add/", {"document": DOCUMENT, **HISTORY})
    assert answer.status_code == 302, answer.content.decode()
    submitted_on_the_page("ben")  # who submits is a maker too; ann only wrote it


def made_through_the_api(asked: Caller) -> None:
    assert asked("POST", "price-versions", BODY).status_code == 201
    assert asked("POST", "price-versions/2099-01/submit", {"reason": "new cards"}).status_code == 200


def made_by_commands(desk: Desk, name: str) -> None:
    file = desk.folder / "prices.yaml"
    listed = yaml.safe_load(DOCUMENT)
    reason = listed.pop("reason")
    file.write_text(yaml.safe_dump({"price_versions": [listed]}))
    call_command("price_version", "import", str(file), "--by", name, "--reason", reason)
    call_command("price_version", "submit", "2099-01", "--by", name)


MAKE: dict[str, Callable[[Desk], None]] = {
    "portal": lambda _: made_on_the_page("ann"),
    "administration": lambda _: made_in_the_administration("ann"),
    "API with a session": lambda _: made_through_the_api(caller("ann")),
    "own token": lambda _: made_through_the_api(by_token("prices:write", "ann", "ann")),
    "token of nobody that she made": lambda _: made_through_the_api(by_token("prices:write", None, "ann")),
    "command": lambda desk: made_by_commands(desk, "ann"),
    "second account": lambda _: made_on_the_page("ann.admin"),
    "account of the provider": lambda _: made_on_the_page("ann-of-the-provider"),
    "account of an earlier name": lambda _: made_on_the_page("ann.maiden"),
}


def approved_on_the_page(name: str) -> int:
    draft = PriceDraft.objects.get()
    answer = browser(name).post(f"/prices/drafts/{draft.pk}/approve/", {"revision": str(draft.revision), "reason": "fine"})
    return answer.status_code


def approved_through_the_api(asked: Caller) -> int:
    return int(asked("POST", "price-versions/2099-01/approve", {}).status_code)


def approved_by_a_command(desk: Desk, name: str) -> int:
    """With a token of hers, as a command asks for, however she spells her name."""
    desk.environment.setenv("SUANPAN_TOKEN", token_of("usage:read", name.strip().lower(), "ann"))
    with pytest.raises(SystemExit) as refused:
        call_command("price_version", "approve", "2099-01", "--by", name)
    return int(str(refused.value.code))


APPROVE: dict[str, tuple[int, Callable[[Desk], int]]] = {
    "portal": (403, lambda _: approved_on_the_page("ann")),
    "API with a session": (403, lambda _: approved_through_the_api(caller("ann"))),
    "own token": (403, lambda _: approved_through_the_api(by_token("prices:approve", "ann", "ann"))),
    "command": (2, lambda desk: approved_by_a_command(desk, "ann")),
    "command, spelt otherwise": (2, lambda desk: approved_by_a_command(desk, " ANN ")),
    "second account": (403, lambda _: approved_on_the_page("ann.admin")),
    "token of the second account": (403, lambda _: approved_through_the_api(by_token("prices:approve", "ann.admin", "ann"))),
    "account of the provider": (403, lambda _: approved_on_the_page("ann-of-the-provider")),
    "account of an earlier name": (403, lambda _: approved_on_the_page("ann.maiden")),
}
"""Ways to approve, with the refusal of each: a status of HTTP or the exit status of a command."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    factories.apply(tmp_path, **since_2024())
    for name in ("ann", "ann.admin", "ann-of-the-provider", "ann.maiden", "ben", "cem"):
        factories.person(name, "finance", "approver")
    User.objects.filter(username__startswith="ann").update(email=MAIL, is_staff=True)
    provided = User.objects.get(username="ann-of-the-provider")
    SocialAccount.objects.create(user=provided, provider="oidc", uid="7")
    return Desk(tmp_path, monkeypatch)


@pytest.mark.parametrize("made", sorted(MAKE))
def test_nobody_approves_by_one_way_what_they_made_by_another(desk: Desk, made: str) -> None:
    """Every pair of ways is refused; then somebody else approves, so that nothing but the person was wrong."""
    MAKE[made](desk)
    answered = {}
    for name, (_, approve) in APPROVE.items():
        with transaction.atomic():
            answered[name] = approve(desk)
        assert (PriceDraft.objects.get().state, PriceVersion.objects.count()) == ("submitted", 1), name
    assert answered == {name: refusal for name, (refusal, _) in APPROVE.items()}
    assert approved_on_the_page("cem") == 302
    assert (PriceDraft.objects.get().state, PriceVersion.objects.count()) == ("approved", 2)
