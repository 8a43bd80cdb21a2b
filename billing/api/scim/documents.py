"""SCIM resources, read and written: the part of RFC 7643 and RFC 7644 that Entra ID and Okta use.

Source: https://www.rfc-editor.org/rfc/rfc7643 sections 4 to 8, https://www.rfc-editor.org/rfc/rfc7644 section 3.
"""

import json
import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from django.contrib.auth.models import Group

from billing.tenancy.models import ProvisionedAccount
from billing.tenancy.provisioning import Person

CORE, MESSAGES = "urn:ietf:params:scim:schemas:core:2.0", "urn:ietf:params:scim:api:messages:2.0"
USER, GROUP = f"{CORE}:User", f"{CORE}:Group"
FILTER: Final = re.compile(r'\s*([A-Za-z]+)\s+eq\s+("(?:[^"\\]|\\.)*")\s*', re.IGNORECASE)
MEMBER: Final = re.compile(r'members\[\s*value\s+eq\s+"(\d{1,18})"\s*\]', re.IGNORECASE)
EMAIL: Final = re.compile(r"emails\[.*\]\.value", re.IGNORECASE)
NAMES: Final = {"givenname": "given_name", "familyname": "family_name"}
TRUTHS: Final = {"true": True, "false": False}


class ScimError(Exception):
    """Error: an invalid request; `kind` as RFC 7644 section 3.12 names it."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


by_id = attrgetter("pk")


def user_document(account: ProvisionedAccount, root: str) -> dict[str, Any]:
    """Return an account as a SCIM user; `root` is the address of the interface."""
    user = account.user
    return {
        "schemas": [USER], "id": str(user.pk), "externalId": account.external_id, "userName": account.user_name,
        "name": {"givenName": user.first_name, "familyName": user.last_name}, "displayName": user.get_full_name(),
        "emails": [{"value": user.email, "type": "work", "primary": True}] if user.email else [],
        "active": user.is_active,
        "groups": [{"value": str(group.pk), "display": group.name} for group in sorted(user.groups.all(), key=by_id)],
        "meta": {"resourceType": "User", "location": f"{root}/Users/{user.pk}"},
    }  # fmt: skip


def group_document(group: Group, root: str, *, members: bool = True) -> dict[str, Any]:
    """Return a group, with its members unless they are excluded."""
    document: dict[str, Any] = {
        "schemas": [GROUP], "id": str(group.pk), "displayName": group.name,
        "meta": {"resourceType": "Group", "location": f"{root}/Groups/{group.pk}"},
    }  # fmt: skip
    if members:
        names = group.user_set.order_by("pk").values_list("pk", "username")
        document["members"] = [{"value": str(pk), "display": name} for pk, name in names]
    return document


def filter_of(text: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return the lookup of a filter such as userName eq "mei"; `known` maps attributes to lookups.  Raises ScimError."""
    if not text:
        return {}
    found = FILTER.fullmatch(text)
    lookup = known.get(found[1].lower()) if found else None
    if found is None or lookup is None:
        raise ScimError("invalidFilter", f'filter: only one of {", ".join(known)} with eq "..." is supported')
    return {lookup: _unquoted(found[2])}


def person_of(resource: Mapping[str, Any]) -> Person:
    """Return the person of a whole or partial user; unknown attributes are ignored.  Raises ScimError."""
    facts: dict[str, Any] = {}
    for name, value in resource.items():
        facts |= _fact(name.removeprefix(f"{USER}:"), value)
    return Person(**facts)


def person_of_operations(operations: Sequence[tuple[str, str, Any]]) -> Person:
    """Return the person that the operations of a PATCH describe.  Raises ScimError."""
    resource: dict[str, Any] = {}
    for kind, path, value in operations:
        if not path and not isinstance(value, dict):
            raise ScimError("noTarget", "an operation without a path has an object as its value")
        said = value if not path else {path: "" if kind == "remove" else value}
        resource |= said
    return person_of(resource)


def operations_of(body: Any) -> list[tuple[str, str, Any]]:
    """Return (add, replace or remove; path; value) of each operation of a PATCH.  Raises ScimError."""
    operations = body.get("Operations") if isinstance(body, dict) else None
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise ScimError("invalidSyntax", "Operations must be a list of objects")
    found = [(str(item.get("op")).lower(), item.get("path") or "", item.get("value")) for item in operations]
    for kind, path, _ in found:
        if kind not in ("add", "replace", "remove") or not isinstance(path, str):
            raise ScimError("invalidSyntax", f"op {kind!r}: add, replace or remove, with a text as path")
    return found


def group_change_of(kind: str, path: str, value: Any) -> dict[str, Any]:
    """Return one PATCH operation on a group as arguments of `group_put`.  Raises ScimError."""
    path = path.removeprefix(f"{GROUP}:")
    if not path:
        said = value if isinstance(value, dict) else {}
        changes = {name.lower(): part for name, part in said.items()}
        return _members_change(kind, changes.get("members")) | _name_change(changes.get("displayname"))
    if found := MEMBER.fullmatch(path):
        return {"removed" if kind == "remove" else "added": [int(found[1])]}
    if path.lower() == "members":
        return {"members": []} if kind == "remove" and value is None else _members_change(kind, value)
    return _name_change(value) if path.lower() == "displayname" else {}


def _members_change(kind: str, value: Any) -> dict[str, Any]:
    argument = {"add": "added", "replace": "members", "remove": "removed"}[kind]
    return {} if value is None else {argument: member_ids(value)}


def _name_change(value: Any) -> dict[str, Any]:
    return {} if value is None else {"name": group_name(value)}


def group_name(value: Any) -> str:
    """Return the validated name of a group.  Raises ScimError."""
    if not (name := text_of(value, "displayName", 150)):
        raise ScimError("invalidValue", "displayName: cannot be empty")
    return name


def member_ids(value: Any) -> list[int]:
    """Return the ids in a list of members, or in a single one.  Raises ScimError."""
    listed = value if isinstance(value, list) else [value]
    ids = [str(item.get("value")) if isinstance(item, dict) else str(item) for item in listed]
    for text in ids:
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
            raise ScimError("invalidValue", f"member {text[:40]!r}: there is no such account")
    return [int(text) for text in ids]


def text_of(value: Any, name: str, most: int) -> str:
    """Return a text of at most `most` characters, stripped.  Raises ScimError."""
    unfit = not isinstance(value, str) or len(value) > most
    if unfit or any(character == "\0" or "\ud800" <= character <= "\udfff" for character in value):
        raise ScimError("invalidValue", f"{name}: a text of at most {most} characters")
    return value.strip()


def _fact(name: str, value: Any) -> dict[str, Any]:
    key = name.lower()
    if key == "active":
        return {"active": _truth(value)}
    if key in ("username", "externalid"):
        field = "user_name" if key == "username" else "external_id"
        if not (text := text_of(value, name, 255)):
            raise ScimError("invalidValue", f"{name}: cannot be empty")
        return {field: text}
    if key == "name" and isinstance(value, dict):
        return {NAMES[part.lower()]: text_of(text, part, 150) for part, text in value.items() if part.lower() in NAMES}
    if key.startswith("name.") and (part := key.removeprefix("name.")) in NAMES:
        return {NAMES[part]: text_of(value, name, 150)}
    if key == "emails":
        return {"email": _email(value)}
    # Entra ID selects an address by a filter: emails[type eq "work"].value
    return {"email": text_of(value, name, 254)} if EMAIL.fullmatch(name) else {}


def _email(value: Any) -> str:
    """Return the primary address, else the first."""
    listed = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    chosen = next((item for item in listed if item.get("primary") is True), listed[0] if listed else {})
    return text_of(chosen.get("value", ""), "emails", 254)


def _truth(value: Any) -> bool:
    """Return True or False, also from the texts that Entra ID sends."""
    truth = TRUTHS.get(str(value).lower())
    if truth is None:
        raise ScimError("invalidValue", "active: true or false")
    return truth


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError as error:
        raise ScimError("invalidFilter", "filter: the value is no JSON text") from error
