"""How long a process trusts what it knows of a token: one thread asks again, the others do not wait for it."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from billing.tenancy import tokens
from billing.tenancy.models import ApiToken
from billing.tenancy.tokens import api_token_create, api_token_find

pytestmark = pytest.mark.django_db


@pytest.fixture
def presented(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A token that was found once, a moment before it was revoked by another process."""
    monkeypatch.setattr(tokens, "RECENT_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "GRACE_SECONDS", 3600.0)
    tokens._recent.clear()
    token, secret = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")
    assert find(secret) is not None
    ApiToken.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
    yield secret
    tokens._recent.clear()


def find(presented: str) -> ApiToken | None:
    return api_token_find(presented=presented, now=timezone.now())


def test_while_one_asks_the_others_take_what_was_known(presented: str, django_assert_num_queries: Any) -> None:
    with tokens._asking, django_assert_num_queries(0):
        assert find(presented) is not None
    with django_assert_num_queries(1):
        assert find(presented) is None, "who finds nobody asking asks"
    with tokens._asking, django_assert_num_queries(1):
        assert find(presented) is None, "what is not known is asked for by everybody"


def test_nobody_trusts_it_for_longer_than_the_grace(
    presented: str, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(tokens, "GRACE_SECONDS", 0.0)
    with tokens._asking, django_assert_num_queries(1):
        assert find(presented) is None
