"""SCIM 2.0 as Entra ID and Okta speak it: people join, change and leave, and groups give roles."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.test import Client

from billing.settings.identity_settings import read_group_roles
from billing.tenancy.models import ApiToken, AuditEntry, Membership, ProvisionedAccount
from billing.tenancy.tokens import api_token_create
from tests import factories

pytestmark = pytest.mark.django_db
ROOT = "/api/v1/scim/v2"
USER, GROUP = "urn:ietf:params:scim:schemas:core:2.0:User", "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
MEI = {
    "schemas": [USER], "userName": "mei@example.org", "externalId": "00u1", "active": True,
    "name": {"givenName": "Mei", "familyName": "Li", "formatted": "Mei Li"}, "displayName": "Mei Li",
    "emails": [{"primary": True, "value": "mei@example.org", "type": "work"}], "password": "never kept", "locale": "en-US",
}  # fmt: skip
Call = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def set_up(for_all_tests: Any) -> None:
    factories.apply(for_all_tests)


@pytest.fixture
def call(settings: Any, set_up: None, db: None) -> Call:
    """The provider's token at work: method, path and body give status and answer."""
    settings.OIDC_ROLES = read_group_roles('{"gpu-finance": "finance", "nlp-leads": "lead:nlp", "cv-leads": "lead:cv"}')
    return caller(api_token_create(name="directory", scopes=["people:provision"], actor="tests")[1])


def caller(presented: str) -> Call:
    client = Client(headers={"Authorization": f"Bearer {presented}", "Accept": "application/scim+json"})

    def called(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        sent = {} if body is None else {"data": json.dumps(body), "content_type": "application/scim+json"}
        answer = client.generic(method, ROOT + path, **sent)  # type: ignore[arg-type]
        if answer.content:
            assert answer["Content-Type"].startswith("application/scim+json"), answer.content
        return answer.status_code, json.loads(answer.content or "null")

    return called


def acting() -> dict[str, Any]:
    """What the audit log says of who is behind an operation: the token, which nobody owns."""
    return {"channel": "token", "token": ApiToken.objects.get(name="directory").pk}


def test_every_entry_of_the_provider_says_which_token_acted(call: Call) -> None:
    token, mei = ApiToken.objects.get().pk, call("POST", "/Users", MEI)[1]["id"]
    group = call("POST", "/Groups", {"displayName": "gpu-finance", "members": [{"value": mei}]})[1]["id"]
    own = api_token_create(name="mei's", scopes=["usage:write"], actor="mei", owner=User.objects.get())[0]
    call("PATCH", f"/Users/{mei}", patch({"op": "replace", "path": "name.givenName", "value": "May"}))
    call("PATCH", f"/Users/{mei}", patch({"op": "replace", "path": "active", "value": False}))
    call("DELETE", f"/Groups/{group}")
    found = AuditEntry.objects.filter(actor="token:directory").exclude(action="api_token_first_use").order_by("id")
    assert {entry.action for entry in found} == {
        "account_provision", "account_change", "provider_group_put", "roles_from_provider", "account_disable",
        "api_token_revoke", "provider_group_delete",
    }  # fmt: skip
    assert [entry.detail["acting"] for entry in found] == [{"channel": "token", "token": token}] * len(found)
    own.refresh_from_db()
    assert own.revoked_at is not None


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"schemas": [PATCH], "Operations": list(operations)}


def roles(user_id: str) -> list[tuple[str, str | None, str]]:
    held = Membership.objects.filter(user_id=int(user_id)).order_by("role", "team__code")
    return list(held.values_list("role", "team__code", "origin"))


def test_a_joiner_has_an_account_that_only_the_provider_opens(call: Call) -> None:
    status, made = call("POST", "/Users", MEI)
    person = User.objects.get()
    assert (status, made) == (201, {
        "schemas": [USER], "id": str(person.pk), "externalId": "00u1", "userName": "mei@example.org",
        "name": {"givenName": "Mei", "familyName": "Li"}, "displayName": "Mei Li",
        "emails": [{"value": "mei@example.org", "type": "work", "primary": True}], "active": True, "groups": [],
        "meta": {"resourceType": "User", "location": f"http://testserver{ROOT}/Users/{person.pk}"},
    })  # fmt: skip
    assert (person.username, person.has_usable_password(), person.is_staff) == ("mei", False, False)
    assert list(SocialAccount.objects.values_list("provider", "uid", "user__username")) == [("oidc", "00u1", "mei")]
    assert call("GET", f"/Users/{person.pk}") == (200, made)
    entries = AuditEntry.objects.filter(action="account_provision").values_list("actor", "subject", "detail")
    assert list(entries) == [
        ("token:directory", "mei", {"external_id": "00u1", "user_name": "mei@example.org", "acting": acting()}),
    ]


@pytest.mark.parametrize(("text", "found"), [
    ('userName eq "mei@example.org"', 1), ('userName eq "MEI@example.org"', 1), ('externalId eq "00u1"', 1),
    ('externalId eq "00U1"', 0), ('userName eq "nobody"', 0), ('username Eq "mei\\u0040example.org"', 1), ("", 2),
])  # fmt: skip
def test_the_provider_finds_an_account_by_its_names(call: Call, text: str, found: int) -> None:
    call("POST", "/Users", MEI)
    call("POST", "/Users", {**MEI, "userName": "ben", "externalId": "00u2"})
    factories.person("a-local-account", "finance")
    client_text = text.replace(" ", "%20").replace('"', "%22")
    status, answer = call("GET", f"/Users?filter={client_text}" if text else "/Users")
    assert (status, answer["totalResults"], len(answer["Resources"])) == (200, found, found)


def test_a_list_comes_in_pages(call: Call) -> None:
    for number in range(5):
        call("POST", "/Users", {**MEI, "userName": f"u{number}", "externalId": f"00u{number}"})
    _, page = call("GET", "/Users?startIndex=2&count=2")
    assert (page["totalResults"], page["startIndex"], page["itemsPerPage"]) == (5, 2, 2)
    assert [item["userName"] for item in page["Resources"]] == ["u1", "u2"]
    assert call("GET", "/Users?count=0")[1]["Resources"] == []
    for wrong in ("x", "--1", "-", "1.5"):
        assert call("GET", f"/Users?startIndex={wrong}")[1]["scimType"] == "invalidValue"


def test_what_is_taken_or_says_nothing_is_refused(call: Call) -> None:
    call("POST", "/Users", MEI)
    for body, status, kind in (
        (MEI, 409, "uniqueness"),
        ({**MEI, "externalId": "00u2", "userName": "MEI@example.org"}, 409, "uniqueness"),
        ({**MEI, "externalId": None}, 400, "invalidValue"),
        ({"schemas": [USER], "userName": "ben"}, 400, "invalidValue"),
        ({**MEI, "externalId": "00u3", "userName": ""}, 400, "invalidValue"),
        ({**MEI, "externalId": "00u3", "userName": "b", "active": "perhaps"}, 400, "invalidValue"),
        (["no object"], 400, "invalidSyntax"),
    ):
        answered, answer = call("POST", "/Users", body)
        assert (answered, answer["status"], answer["scimType"]) == (status, str(status), kind), body
        assert answer["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"]
    assert User.objects.count() == 1
    assert call("GET", "/Users?filter=emails%20co%20%22x%22")[1]["scimType"] == "invalidFilter"
    assert call("GET", "/Users/999999")[0] == 404


def test_whoever_signed_in_before_keeps_their_account(call: Call) -> None:
    known = factories.person("mei.old", "viewer")
    SocialAccount.objects.create(user=known, provider="oidc", uid="00u1")
    assert call("POST", "/Users", MEI)[1]["id"] == str(known.pk)
    assert User.objects.get().username == "mei.old"  # history refers to it


def test_a_local_account_of_the_same_name_is_somebody_else(call: Call) -> None:
    local = factories.person("mei", "finance")
    status, made = call("POST", "/Users", MEI)
    assert (status, made["id"] != str(local.pk), made["userName"]) == (201, True, "mei@example.org")
    assert call("GET", f"/Users/{local.pk}")[0] == 404
    assert call("DELETE", f"/Users/{local.pk}")[0] == 404
    assert User.objects.get(pk=local.pk).is_active


@pytest.mark.parametrize("operations", [
    [{"op": "Replace", "path": "active", "value": "False"}],  # Entra ID
    [{"op": "replace", "value": {"active": False}}],  # Okta
    [{"op": "replace", "path": f"{USER}:active", "value": False}],
])  # fmt: skip
def test_a_leaver_has_no_session_and_no_token_left(call: Call, operations: list[dict[str, Any]]) -> None:
    _, made = call("POST", "/Users", MEI)
    person = User.objects.get()
    session = factories.signed_in(person)
    Membership.objects.create(user=person, role="admin")
    own = caller(api_token_create(name="mei's", scopes=["people:provision"], actor="mei", owner=person)[1])
    assert own("GET", "/Users")[0] == 200
    assert session.get("/account/2fa/").status_code == 200
    status, answer = call("PATCH", f"/Users/{made['id']}", patch(*operations))
    assert (status, answer["active"]) == (200, False)
    assert session.get("/account/2fa/").status_code == 302
    assert own("GET", "/Users")[0] == 401
    back = patch({"op": "replace", "path": "active", "value": True})
    assert call("PATCH", f"/Users/{made['id']}", back)[1]["active"] is True
    assert session.get("/account/2fa/").status_code == 302
    assert own("GET", "/Users")[0] == 401
    assert ApiToken.objects.get(owner=person).revoked_at is not None
    kept = AuditEntry.objects.filter(actor="token:directory", action__in=["account_disable", "account_enable"])
    assert list(kept.order_by("id").values_list("action", "subject")) == [
        ("account_disable", "mei"), ("account_enable", "mei"),
    ]  # fmt: skip


def test_a_deleted_person_is_gone_for_the_provider_and_stays_in_history(call: Call) -> None:
    _, made = call("POST", "/Users", MEI)
    call("POST", "/Groups", {"schemas": [GROUP], "displayName": "gpu-finance", "members": [{"value": made["id"]}]})
    assert roles(made["id"]) == [("finance", None, "provider")]
    assert call("DELETE", f"/Users/{made['id']}") == (204, None)
    assert call("GET", f"/Users/{made['id']}")[0] == 404
    assert call("GET", "/Users")[1]["totalResults"] == 0
    person = User.objects.get()
    assert (person.is_active, roles(made["id"]), person.groups.count()) == (False, [], 0)
    _, namesake = call("POST", "/Users", {**MEI, "externalId": "00u9"})  # the address is given to somebody else
    assert namesake["id"] != made["id"]
    status, again = call("POST", "/Users", {**MEI, "userName": "mei2@example.org"})
    assert (status, again["id"], again["active"], again["groups"]) == (201, made["id"], True, [])


def test_an_account_that_was_switched_off_here_stays_off(call: Call) -> None:
    """The provider repeats that somebody is active with each change of a name."""
    _, made = call("POST", "/Users", MEI)
    factories.person("ada", "admin")
    factories.signed_in("ada").post(f"/people/{made['id']}/disable/")
    _, answer = call("PUT", f"/Users/{made['id']}", {**MEI, "name": {"givenName": "Mei", "familyName": "Wang"}})
    assert (answer["active"], answer["name"]["familyName"]) == (False, "Wang")
    assert not User.objects.get(pk=made["id"]).is_active


def test_names_change_and_the_account_keeps_its_own(call: Call) -> None:
    _, made = call("POST", "/Users", MEI)
    changes = patch(
        {"op": "Replace", "path": "userName", "value": "mei.wang@example.org"},
        {"op": "Add", "path": "name.familyName", "value": "Wang"},
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "mei.wang@example.org"},
        {"op": "Replace", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department", "value": "NLP"},
    )
    status, answer = call("PATCH", f"/Users/{made['id']}", changes)
    assert (status, answer["userName"], answer["displayName"]) == (200, "mei.wang@example.org", "Mei Wang")
    person = User.objects.get()
    assert (person.username, person.email, person.last_name) == ("mei", "mei.wang@example.org", "Wang")
    entry = AuditEntry.objects.filter(action="account_change").latest("id")
    assert (entry.actor, entry.subject, entry.detail) == (
        "token:directory", "mei", {"changed": ["last_name", "email", "user_name"], "acting": acting()},
    )  # fmt: skip
    moved = patch({"op": "replace", "path": "externalId", "value": "00u7"})
    assert call("PATCH", f"/Users/{made['id']}", moved)[0] == 400
    assert ProvisionedAccount.objects.get().external_id == "00u1"


def test_groups_give_roles_and_take_them_away(call: Call) -> None:
    mei = call("POST", "/Users", MEI)[1]["id"]
    ben = call("POST", "/Users", {**MEI, "userName": "ben", "externalId": "00u2"})[1]["id"]
    status, finance = call("POST", "/Groups", {"schemas": [GROUP], "displayName": "gpu-finance", "externalId": "g1"})
    assert (status, finance["members"]) == (201, [])
    leads = call("POST", "/Groups", {"displayName": "nlp-leads", "members": [{"value": ben}]})[1]
    group = f"/Groups/{finance['id']}"
    added = {"op": "Add", "path": "members", "value": [{"value": mei}, {"value": ben}]}
    assert [item["value"] for item in call("PATCH", group, patch(added))[1]["members"]] == [mei, ben]
    assert roles(mei) == [("finance", None, "provider")]
    assert roles(ben) == [("finance", None, "provider"), ("lead", "nlp", "provider")]
    call("PATCH", group, patch({"op": "Remove", "path": "members", "value": [{"value": mei}]}))  # Entra ID
    call("PATCH", group, patch({"op": "remove", "path": f'members[value eq "{ben}"]'}))  # Okta
    assert (roles(mei), roles(ben)) == ([], [("lead", "nlp", "provider")])
    call("PATCH", group, patch({"op": "replace", "path": "members", "value": [{"value": mei}]}))
    call("PATCH", f"/Groups/{leads['id']}", patch({"op": "replace", "value": {"displayName": "cv-leads"}}))
    assert (roles(mei), roles(ben)) == ([("finance", None, "provider")], [("lead", "cv", "provider")])
    assert call("GET", f"/Users/{mei}")[1]["groups"] == [{"value": finance["id"], "display": "gpu-finance"}]
    assert call("PUT", group, {"displayName": "gpu-finance", "members": [{"value": ben}]})[0] == 200
    assert (roles(mei), len(roles(ben))) == ([], 2)
    assert call("DELETE", group) == (204, None)
    assert roles(ben) == [("lead", "cv", "provider")]
    assert set(AuditEntry.objects.filter(action__startswith="provider_group").values_list("actor", "action")) == {
        ("token:directory", "provider_group_put"), ("token:directory", "provider_group_delete"),
    }  # fmt: skip


def test_a_group_is_found_by_its_name_and_shown_without_members(call: Call) -> None:
    mei = call("POST", "/Users", MEI)[1]["id"]
    call("POST", "/Groups", {"displayName": "gpu-finance", "members": [{"value": mei}]})
    call("POST", "/Groups", {"displayName": "nlp-leads"})
    found = call("GET", "/Groups?filter=displayName%20eq%20%22gpu-finance%22&excludedAttributes=members")[1]
    assert [(item["displayName"], "members" in item) for item in found["Resources"]] == [("gpu-finance", False)]
    assert call("POST", "/Groups", {"displayName": "nlp-leads"})[0] == 409
    assert call("POST", "/Groups", {"displayName": "  "})[1]["scimType"] == "invalidValue"


def test_a_change_of_a_group_is_done_whole_or_not_at_all(call: Call) -> None:
    mei = call("POST", "/Users", MEI)[1]["id"]
    local = factories.person("a-local-account")
    group = call("POST", "/Groups", {"displayName": "gpu-finance"})[1]["id"]
    for stranger in (str(local.pk), "999999", "x", {"deep": 1}):
        changes = patch(
            {"op": "add", "path": "members", "value": [{"value": mei}]},
            {"op": "add", "path": "members", "value": [{"value": stranger}]},
        )
        assert call("PATCH", f"/Groups/{group}", changes)[0] == 400
    assert (roles(mei), Group.objects.get().user_set.count()) == ([], 0)


def test_roles_that_were_given_here_stay(call: Call) -> None:
    mei = call("POST", "/Users", MEI)[1]["id"]
    Membership.objects.create(user_id=int(mei), role="auditor")
    group = call("POST", "/Groups", {"displayName": "gpu-finance", "members": [{"value": mei}]})[1]["id"]
    call("DELETE", f"/Groups/{group}")
    assert roles(mei) == [("auditor", None, "local")]


def test_nobody_changes_their_own_account_with_their_own_token(call: Call) -> None:
    mei = call("POST", "/Users", MEI)[1]["id"]
    ben = call("POST", "/Users", {**MEI, "userName": "ben", "externalId": "00u2", "emails": []})[1]["id"]
    Membership.objects.create(user_id=mei, role="admin")
    own = caller(api_token_create(name="mine", scopes=["people:provision"], actor="mei", owner=User.objects.get(pk=mei))[1])
    status, refused = own("POST", "/Groups", {"displayName": "gpu-finance", "members": [{"value": mei}]})
    assert (status, "somebody else changes your own account" in refused["detail"]) == (400, True)
    assert own("PATCH", f"/Users/{mei}", patch({"op": "replace", "path": "active", "value": False}))[0] == 400
    assert own("POST", "/Groups", {"displayName": "gpu-finance", "members": [{"value": ben}]})[0] == 201
    assert (roles(mei), roles(ben)) == ([("admin", None, "local")], [("finance", None, "provider")])


def test_it_says_what_it_can(call: Call) -> None:
    config = call("GET", "/ServiceProviderConfig")[1]
    assert (config["patch"], config["bulk"]["supported"], config["filter"]) == (
        {"supported": True}, False, {"supported": True, "maxResults": 200},
    )  # fmt: skip
    types = call("GET", "/ResourceTypes")[1]
    assert [(item["id"], item["endpoint"], item["schema"]) for item in types["Resources"]] == [
        ("User", "/Users", USER), ("Group", "/Groups", GROUP),
    ]  # fmt: skip
    assert call("GET", "/ResourceTypes/User")[1]["schema"] == USER
    assert call("GET", f"/Schemas/{USER}")[1]["name"] == "User"
    assert call("GET", "/Schemas/other")[0] == 404
    assert {item["id"] for item in call("GET", "/Schemas")[1]["Resources"]} == {USER, GROUP}
