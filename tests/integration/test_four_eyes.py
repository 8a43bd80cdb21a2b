"""Nobody is both maker and approver, whichever two of their accounts, sessions, tokens and commands they use for it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.test import RequestFactory

from billing.approvals.limits import AuthorityError
from billing.approvals.models import Proposal
from billing.budgets.models import Budget
from billing.budgets.services import cap_override_approve, cap_override_ask
from billing.closing.services.closing import period_close
from billing.closing.services.reopening import reopening_approve, reopening_request
from billing.corrections.services.corrections import LineCredit, correction_approve, credit_note_draft
from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.invoices.services.invoices import ApprovalError, invoices_approve, invoices_issue
from billing.rates.services import (
    CommitmentTerms,
    PriceDraftError,
    RateError,
    price_draft_approve,
    price_draft_create,
    price_draft_submit,
)
from billing.rating.services.commitment_terms import terms_approve, terms_propose
from billing.tenancy.actors import Actor, actor_at_command, actor_of, actor_of_token
from billing.tenancy.models import BillingSetup, Team
from billing.tenancy.tokens import api_token_create
from tests import factories
from tests.factories import SHANGHAI_OCTOBER
from tests.factories.corrections import FIRST, IN_NOVEMBER, OCTOBER_OVER, wanted

pytestmark = pytest.mark.django_db
START = IN_NOVEMBER + timedelta(days=400)
CARD = {"gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "11"}]}


def session(user: User, path: str, method: str) -> Actor:
    request = RequestFactory().get(path)
    request.user = user
    opened: Any = {
        "account_authentication_methods": [{"method": method}], "account_authentication_methods_user": str(user.pk),
    }  # fmt: skip
    request.session = opened
    return actor_of(request)


def token(name: str, owner: User | None, made_by: str) -> Actor:
    return actor_of_token(api_token_create(name=name, scopes=["prices:write"], actor=made_by, owner=owner)[0])


def person(name: str, mail: str) -> User:
    made = factories.person(name, "finance", "approver", "lead")
    User.objects.filter(pk=made.pk).update(email=mail)
    return made


WAYS: dict[str, Callable[[User], Actor]] = {
    "portal": lambda ann: session(ann, "/", "password"),
    "admin": lambda ann: session(ann, "/admin/rates/pricedraft/", "password"),
    "API": lambda ann: session(ann, "/api/v1/price-versions", "mfa"),
    "own token": lambda ann: token("hers", ann, "ada"),
    "token of nobody that she made": lambda ann: token("gateway", None, "ann"),
    "command": lambda _: actor_at_command(" ANN "),
    "provider": lambda _: session(User.objects.get(username="ann-of-the-provider"), "/", "socialaccount"),
    "second account": lambda _: session(User.objects.get(username="ann.admin"), "/", "password"),
    "account after a new name": lambda _: actor_at_command("ann.married"),
    "account with another mail address since": lambda _: actor_at_command("ann.moved"),
}
"""Every way in which ann acts; an account keeps its name, so that after another one she has another account."""
TOKENS = {"own token", "token of nobody that she made"}


@dataclass(frozen=True)
class Way:
    """How one kind of proposal is made and approved."""

    make: Callable[[Actor], Any]
    approve: Callable[[Any, Actor], Any]
    by_token: bool = False


def price_list(actor: Actor) -> Any:
    draft = price_draft_create(name="2027-12", valid_from=START, content=CARD, actor=actor, now=IN_NOVEMBER)
    return price_draft_submit(draft=draft, actor=actor, now=IN_NOVEMBER, reason="dearer")


def commitment(actor: Actor) -> Any:
    nlp = Team.objects.get(code="nlp")
    terms = CommitmentTerms("c", nlp, "NVIDIA-H800", Decimal(1000), Decimal("8.0000"), SHANGHAI_OCTOBER[1], None)
    return terms_propose(terms=terms, reason="a plan", actor=actor, now=OCTOBER_OVER)


def change(actor: Actor) -> Any:
    return retroactive_propose(
        kind="price", name="fix", fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": "9"}]}, evidence="",
        valid_from=SHANGHAI_OCTOBER[0], valid_until=None, reason="a test", actor=actor, now=IN_NOVEMBER,
    )  # fmt: skip


def override(actor: Actor) -> Any:
    return cap_override_ask(
        budget=Budget.objects.get(), amount=Decimal(50), until=IN_NOVEMBER + timedelta(days=1), reason="release",
        now=IN_NOVEMBER, actor=actor,
    )  # fmt: skip


def closed(actor: Actor) -> Any:
    BillingSetup.objects.update(review="four-eyes")
    return period_close(month="2026-10", actor=actor, now=OCTOBER_OVER)


def reopening(actor: Actor) -> Any:
    return reopening_request(month="2026-10", reason="site B", actor=actor, now=IN_NOVEMBER)


KINDS = {
    "price list": Way(
        price_list, lambda row, actor: price_draft_approve(draft=row, actor=actor, now=IN_NOVEMBER), by_token=True
    ),
    "commitment": Way(
        commitment, lambda row, actor: terms_approve(draft_id=row.pk, actor=actor, now=OCTOBER_OVER), by_token=True
    ),
    "retroactive change": Way(
        change, lambda row, actor: retroactive_approve(change_id=row.pk, actor=actor, now=IN_NOVEMBER)
    ),
    "correction": Way(
        lambda actor: credit_note_draft(number=FIRST, credits=[LineCredit(1, Decimal(5))], wanted=wanted(actor=actor)),
        lambda row, actor: correction_approve(correction_id=row.pk, actor=actor, now=IN_NOVEMBER),
    ),
    "override of a cap": Way(
        override, lambda row, actor: cap_override_approve(override_id=row.pk, now=IN_NOVEMBER, actor=actor)
    ),
    "reopening": Way(reopening, lambda row, actor: reopening_approve(reopening_id=row.pk, actor=actor, now=IN_NOVEMBER)),
    "invoices": Way(closed, lambda _, actor: invoices_approve(month="2026-10", actor=actor), by_token=True),
}
NOT_ISSUED = {"reopening", "invoices"}
REFUSALS = (AuthorityError, PriceDraftError, RateError, ApprovalError)


@pytest.fixture
def october(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Eight GPUs for 2.6 hours of October, closed by somebody else, and issued where the kind corrects what is issued."""
    billing = {**factories.SET_UP["billing"], "reopening": "two-persons"}
    factories.apply(tmp_path, billing=billing, budgets=[{"team": "nlp", "amount": "200.00"}])
    factories.ingest_allocations(factories.allocation_record(1))
    kind = request.node.callspec.params["kind"]
    if kind != "invoices":
        period_close(month="2026-10", actor="zoe", now=OCTOBER_OVER)
    if kind not in NOT_ISSUED:
        invoices_issue(month="2026-10", actor="zoe", now=OCTOBER_OVER)


@pytest.fixture
def ways(october: None) -> dict[str, Actor]:
    ann = person("ann", "Ann@example.org")
    for name in ("ann-of-the-provider", "ann.admin", "ann.married", "ann.moved"):
        person(name, " ann@EXAMPLE.org")
    User.objects.filter(username="ann.moved").update(email="moved@example.org")
    provided = User.objects.get(username="ann-of-the-provider")
    SocialAccount.objects.create(user=provided, provider="oidc", uid="7")
    return {name: way(ann) for name, way in WAYS.items()}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_nobody_approves_what_they_made_in_another_way(ways: dict[str, Actor], kind: str) -> None:
    """Every pair of ways: services refuse, and so does the database; somebody else then approves what each way made."""
    way, ben = KINDS[kind], session(person("ben", "ben@example.org"), "/", "password")
    for made_by in [name for name in ways if way.by_token or name not in TOKENS]:
        with transaction.atomic():
            row = way.make(ways[made_by])
            for actor in ways.values():
                with pytest.raises(REFUSALS, match=r"somebody else|a second person"), transaction.atomic():
                    way.approve(row, actor)
                if kind != "invoices":
                    refused_by_the_database(actor)
            way.approve(row, ben)
            transaction.set_rollback(True)


def refused_by_the_database(actor: Actor) -> None:
    with (
        pytest.raises(DatabaseError, match="no maker decides"), transaction.atomic(), connection.cursor() as cursor,
    ):  # fmt: skip
        cursor.execute(
            """INSERT INTO approvals_step (proposal_id, at, actor, action, comment, revision, payload)
               SELECT id, now(), %s, 'approved', '', revision, payload FROM approvals_proposal WHERE id = %s""",
            [str(actor), Proposal.objects.latest("id").pk],
        )
