"""Settings of the identity provider, from environment variables. Django's settings import this module, not the reverse."""

import json
from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

PROVIDER_ID: Final = "oidc"
GROUPS_BY_SCIM: Final = "none"
"""Value of OIDC_GROUPS_CLAIM where the provider pushes groups by SCIM, and a sign-in brings none."""
ROLES: Final = ("viewer", "lead", "finance", "approver", "admin", "auditor")
OF_A_TEAM: Final = ("viewer", "lead")
NEEDED: Final = ("OIDC_SERVER_URL", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET")
DEFAULT_SCOPES: Final = "openid profile email"
SecondFactor = dict[str, list[str]]
GroupRoles = dict[str, list[tuple[str, str | None]]]


def provider_apps(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the configured provider in a list, or [].  Raises ImproperlyConfigured where a variable is missing."""
    given = [name for name in NEEDED if environment.get(name)]
    if not given:
        return []
    missing = [name for name in NEEDED if name not in given]
    if missing:
        raise ImproperlyConfigured(f"{', '.join(missing)}: missing, while {', '.join(given)} is set; set all three or none")
    scopes = (environment.get("OIDC_SCOPES") or DEFAULT_SCOPES).split()
    if "openid" not in scopes:
        raise ImproperlyConfigured(f"OIDC_SCOPES={' '.join(scopes)!r} must contain openid")
    return [
        {
            "provider_id": PROVIDER_ID,
            "name": environment.get("OIDC_NAME") or "Single sign-on",
            "client_id": environment["OIDC_CLIENT_ID"],
            "secret": environment["OIDC_CLIENT_SECRET"],
            "settings": {
                "server_url": environment["OIDC_SERVER_URL"].rstrip("/"),
                "scope": scopes,
                "uid_field": environment.get("OIDC_SUBJECT_CLAIM") or "sub",
            },
        }
    ]


def read_second_factor(text: str) -> SecondFactor:
    """Parse contexts (`acr`) and methods (`amr`) of ID tokens that count as a second factor.  Raises ValueError.

    >>> read_second_factor("acr:urn:okta:loa:2fa:any, amr:mfa")
    {'acr': ['urn:okta:loa:2fa:any'], 'amr': ['mfa']}
    """
    found: SecondFactor = {"acr": [], "amr": []}
    for item in filter(None, (part.strip() for part in text.split(","))):
        claim, _, value = item.partition(":")
        if claim not in found or not value:
            raise ValueError(f"{item!r} must be acr:VALUE or amr:VALUE")
        found[claim].append(value)
    return found


def read_group_roles(text: str) -> GroupRoles:
    """Parse groups of the provider with the roles that they give.  Raises ValueError naming the group.

    >>> read_group_roles('{"gpu-finance": "finance", "nlp-leads": ["lead:nlp", "viewer:cv"]}')
    {'gpu-finance': [('finance', None)], 'nlp-leads': [('lead', 'nlp'), ('viewer', 'cv')]}
    """
    if not text.strip():
        return {}
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError('must be a JSON object such as {"gpu-finance": "finance", "nlp-leads": "lead:nlp"}')
    return {group: [_role(group, item) for item in (given if isinstance(given, list) else [given])]
            for group, given in found.items()}  # fmt: skip


def _role(group: str, given: object) -> tuple[str, str | None]:
    role, _, team = given.partition(":") if isinstance(given, str) else ("", "", "")
    if role not in ROLES:
        raise ValueError(f"group {group!r}: {given!r} must be one of {', '.join(ROLES)}, or such a role with :team")
    if team and role not in OF_A_TEAM:
        raise ValueError(f"group {group!r}: {role} is for the whole installation, without a team")
    return role, team or None
