"""SCIM and OpenID Connect of one provider together: who is pushed signs in, who is withdrawn is out."""

from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from billing.tenancy.tokens import api_token_create
from tests.factories.servers import until
from tests.identity.conftest import NewBrowser, Provider

pytestmark = pytest.mark.django_db(transaction=True)
SETTINGS = {"OIDC_GROUPS_CLAIM": "none"}


def test_a_person_who_was_pushed_signs_in_with_the_roles_of_their_groups_until_they_are_withdrawn(
    provider: Provider, browser: NewBrowser
) -> None:
    """The groups in the ID token say nothing here: they would make her a lead."""
    provider.people(mei={"groups": ["nlp-leads"]})
    mei = browser()
    presented = api_token_create(name="directory", scopes=["people:provision"], actor="tests")[1]
    headers = {"Authorization": f"Bearer {presented}"}
    with httpx.Client(base_url=f"{mei.site}/api/v1/scim/v2", headers=headers, timeout=60) as directory:

        def sent(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = directory.request(method, path, json=body)
            assert answer.is_success, answer.text
            return dict(answer.json())

        person = sent("POST", "/Users", {"userName": "mei@example.org", "externalId": "mei", "active": True})
        sent("POST", "/Groups", {"displayName": "gpu-finance", "members": [{"value": person["id"]}]})
        mei.sign_in("mei")
        assert (mei.status("/close/"), mei.status("/teams/nlp/")) == (200, 200)
        assert [str(user.pk) for user in User.objects.all()] == [person["id"]]
        own = api_token_create(name="mei's", scopes=["usage:read"], actor="mei", owner=User.objects.get())[1]

        def with_own_token() -> int:
            return httpx.get(f"{mei.site}/api/v1/teams", headers={"Authorization": f"Bearer {own}"}).status_code

        before = with_own_token()
        off = {"op": "replace", "path": "active", "value": False}
        sent("PATCH", f"/Users/{person['id']}", {"Operations": [off]})
    assert mei.status("/close/") == 302
    until(lambda: with_own_token() == 401, seconds=10)
    assert before != 401
    back = browser()
    back.sign_in("mei")
    assert not back.is_signed_in()
