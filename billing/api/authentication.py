"""Bearer tokens with scopes, which decide on the endpoints that a request may use."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, AuthenticationFailed
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from billing.tenancy.actors import actor_of, actor_of_token
from billing.tenancy.models import ApiToken
from billing.tenancy.token_addresses import token_address_note
from billing.tenancy.token_failures import WAIT_SECONDS, token_failure_count, token_failures_exceeded
from billing.tenancy.tokens import api_token_find, api_token_is_listed, api_token_touch


class TooManyFailures(APIException):
    """Error 429: too many invalid tokens came from this address; this one was not looked up."""

    status_code = status.HTTP_429_TOO_MANY_REQUESTS
    default_detail = "Too Many Requests"
    wait = WAIT_SECONDS  # the framework sends it as Retry-After

    def __init__(self) -> None:
        super().__init__("too many tokens from this address are unknown, expired or revoked")


class TokenUser(AnonymousUser):
    """Bearer of an API token: authenticated, but no person."""

    def __init__(self, token: ApiToken) -> None:
        self.token = token

    @property
    def is_authenticated(self) -> bool:  # type: ignore[override]  # the stubs say False for an anonymous user
        return True

    def __str__(self) -> str:
        return str(actor_of_token(self.token))


def token_of(meta: Mapping[str, Any]) -> ApiToken | None:
    """Return the valid token in the headers of a request, None if they have none.

    Raises AuthenticationFailed, TooManyFailures.
    """
    kind, _, presented = meta.get("HTTP_AUTHORIZATION", "").partition(" ")
    if kind.lower() != "bearer":
        return None
    now, presented = timezone.now(), presented.strip()
    # known tokens pass: behind one address others may send invalid ones
    if token_failures_exceeded(meta) and not api_token_is_listed(presented=presented):
        raise TooManyFailures
    token = api_token_find(presented=presented, now=now)
    if token is None:
        if not token_failure_count(meta):
            raise TooManyFailures
        raise AuthenticationFailed("this token is unknown, expired or revoked")
    api_token_touch(token=token, now=now)
    token_address_note(token=token, meta=meta, now=now)
    return token


class ApiTokenAuthentication(BaseAuthentication):
    """Authentication by `Authorization: Bearer <token>`; the token is looked up by its hash."""

    def authenticate(self, request: Request) -> tuple[TokenUser, ApiToken] | None:
        token = token_of(request.META)
        return (TokenUser(token), token) if token else None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class ApiTokenScheme(OpenApiAuthenticationExtension):
    """Entry of the bearer token in the OpenAPI description."""

    target_class = "billing.api.authentication.ApiTokenAuthentication"
    name = "apiToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


def has_scope(scope: str, *, write: str = "") -> type[BasePermission]:
    """Return a permission that requires `scope` of a token, or `write` if it is named and the request changes something;
    a signed-in person may read what the person's roles allow.
    """

    class HasScope(BasePermission):
        def has_permission(self, request: Request, view: Any) -> bool:
            reads = request.method in SAFE_METHODS
            wanted = scope if reads else write or scope
            self.message = f"this needs the scope {wanted}"
            actor = actor_of(request)
            return (reads or actor.token is not None) and actor.has(wanted)

    return HasScope
