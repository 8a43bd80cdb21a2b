"""Discovery documents of SCIM: RFC 7643 sections 5 to 7, for the attributes that Suanpan stores."""

from typing import Any, Final

from billing.api.scim.documents import CORE, GROUP, MESSAGES, USER

NO: Final = {"supported": False}
CONFIG: Final[dict[str, Any]] = {
    "schemas": [f"{CORE}:ServiceProviderConfig"],
    "patch": {"supported": True},
    "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": 0},
    "filter": {"supported": True, "maxResults": 200},
    "changePassword": NO,
    "sort": NO,
    "etag": NO,
    "authenticationSchemes": [
        {
            "type": "oauthbearertoken", "name": "API token", "primary": True,
            "description": "an API token with the scope people:provision",
        }
    ],
    "meta": {"resourceType": "ServiceProviderConfig"},
}  # fmt: skip


def _attribute(name: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    shown = {"name": name, "type": kind, "multiValued": False, "required": False, "mutability": "readWrite"}
    return {**shown, "returned": "default", "uniqueness": "none", "caseExact": False, **more}


def _schema(urn: str, name: str, attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schemas": [f"{CORE}:Schema"], "id": urn, "name": name, "attributes": attributes,
            "meta": {"resourceType": "Schema"}}  # fmt: skip


def _resource_type(name: str, endpoint: str, urn: str) -> dict[str, Any]:
    return {"schemas": [f"{CORE}:ResourceType"], "id": name, "name": name, "endpoint": endpoint, "schema": urn,
            "meta": {"resourceType": "ResourceType"}}  # fmt: skip


def _list(resources: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schemas": [f"{MESSAGES}:ListResponse"], "totalResults": len(resources), "startIndex": 1,
            "itemsPerPage": len(resources), "Resources": resources}  # fmt: skip


UNIQUE: Final[dict[str, Any]] = {"required": True, "uniqueness": "server"}
USER_ATTRIBUTES: Final = [
    _attribute("userName", **UNIQUE),
    _attribute("externalId", required=True, mutability="immutable", caseExact=True),
    _attribute("name", "complex", subAttributes=[_attribute("givenName"), _attribute("familyName")]),
    _attribute("displayName", mutability="readOnly"),
    _attribute("emails", "complex", multiValued=True, subAttributes=[_attribute("value"), _attribute("primary", "boolean")]),
    _attribute("active", "boolean"),
    _attribute("groups", "complex", multiValued=True, mutability="readOnly"),
]
GROUP_ATTRIBUTES: Final = [
    _attribute("displayName", **UNIQUE),
    _attribute("members", "complex", multiValued=True, subAttributes=[_attribute("value", mutability="immutable")]),
]
SCHEMAS: Final = _list([_schema(USER, "User", USER_ATTRIBUTES), _schema(GROUP, "Group", GROUP_ATTRIBUTES)])
RESOURCE_TYPES: Final = _list([_resource_type("User", "/Users", USER), _resource_type("Group", "/Groups", GROUP)])
