"""How long a process trusts what it knows of a token."""

from typing import Any

import pytest
from django.utils import timezone

from billing.tenancy import tokens
from billing.tenancy.models import ApiToken
from billing.tenancy.tokens import api_token_create, api_token_find, api_token_recent

pytestmark = pytest.mark.django_db


def test_what_is_known_is_asked_for_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    token, presented = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")
    asked = {"presented": presented, "now": timezone.now()}
    assert api_token_find(**asked) == token
    ApiToken.objects.filter(pk=token.pk).update(revoked_at=timezone.now())  # by another process
    with django_assert_num_queries(0):
        assert api_token_find(**asked) == api_token_recent(**asked) == token
    monkeypatch.setattr(tokens, "RECENT_SECONDS", -1.0)
    with django_assert_num_queries(0):
        assert api_token_recent(**asked) is None
    with django_assert_num_queries(1):
        assert api_token_find(**asked) is None
