"""OpenID Connect Back-Channel Logout: the provider reports the end of its session, and sessions here end with it.

Source: https://openid.net/specs/openid-connect-backchannel-1_0.html, sections 2.4 to 2.8.
"""

from collections.abc import Mapping
from hashlib import sha256
from time import time
from typing import Any, Final

import jwt
from allauth.core import ratelimit
from allauth.socialaccount.models import SocialApp, SocialLogin
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from billing.settings.identity_settings import PROVIDER_ID
from billing.settings.provider_tokens import LEEWAY_S, signed_claims
from billing.tenancy.actors import actor_of_provider
from billing.tenancy.audit import audit_record
from billing.tenancy.open_sessions import sessions_end

AT_PROVIDER: Final = "identity_provider"
"""Session key of the person and the session at the provider, by which a logout token names it."""
LOGOUT: Final = "http://schemas.openid.net/event/backchannel-logout"
FAILED: Final = "logout_token_failed"
"""Rate limit action; its limit is in ACCOUNT_RATE_LIMITS."""
MAX_AGE_S, MAX_CHARACTERS = 300, 16_384


class LogoutTokenError(Exception):
    """Invalid logout token."""


def provider_session_remember(request: HttpRequest, sociallogin: SocialLogin) -> None:
    """Store the session id of the provider before the sign-in is complete, since it may wait for a second factor."""
    claims = sociallogin.account.extra_data["id_token"]
    request.session[AT_PROVIDER] = {"sub": claims["sub"], "sid": claims.get("sid")}


@csrf_exempt
@require_POST
def backchannel_logout(request: HttpRequest) -> HttpResponse:
    """End the sessions that a logout token names; return 400 for an invalid one, as the standard asks.

    Only invalid tokens count for the rate limit: the provider may end thousands of sessions at a time.
    """
    if not ratelimit.consume(request, action=FAILED, dry_run=True):
        return _refused(429, "too_many_requests", "too many false logout tokens from this address")
    try:
        claims = _claims(request, request.POST.get("logout_token", ""))
    except SocialApp.DoesNotExist as error:
        raise Http404("no identity provider is set up") from error
    except (LogoutTokenError, jwt.PyJWTError) as error:
        ratelimit.consume(request, action=FAILED)
        return _refused(400, "invalid_request", str(error))
    _sessions_end(claims.get("sub"), claims.get("sid"))
    return HttpResponse(headers={"Cache-Control": "no-store"})


def _refused(status: int, error: str, why: str) -> JsonResponse:
    answer = {"error": error, "error_description": why}
    return JsonResponse(answer, status=status, headers={"Cache-Control": "no-store"})


def _sessions_end(sub: str | None, sid: str | None) -> None:
    """End the session `sid` of the provider, or every session of the person `sub` where no session is named."""

    def ends(_: int, session: Mapping[str, Any]) -> bool:
        ours = session.get(AT_PROVIDER)
        if ours is None or (sub is not None and ours["sub"] != sub):
            return False
        unknown = ours["sid"] is None and sub is not None  # the session has no sid to compare: end it to be safe
        return sid is None or ours["sid"] == sid or unknown

    with transaction.atomic():
        ended = sessions_end(ends)
        for person in User.objects.filter(pk__in=ended):
            audit_record(
                actor=actor_of_provider(sub or ""), action="sign_out_by_provider", subject=person.get_username(),
                detail={"sessions": ended[person.pk]},
            )  # fmt: skip


def _claims(request: HttpRequest, token: str) -> dict[str, Any]:
    """Return the claims of a valid logout token that was not used before.  Raises LogoutTokenError, jwt.PyJWTError."""
    adapter = OpenIDConnectOAuth2Adapter(request, PROVIDER_ID)
    if not token or len(token) > MAX_CHARACTERS:
        raise LogoutTokenError("logout_token is missing or too long")
    claims = signed_claims(adapter, token, needed=("jti", "events"))
    _check(claims)
    used = "logout-token-" + sha256(f"{claims['iss']} {claims['jti']}".encode()).hexdigest()
    # `add` is atomic: of two requests with one token only the first is accepted
    if not cache.add(used, True, timeout=MAX_AGE_S + 2 * LEEWAY_S):
        raise LogoutTokenError("this logout token was used before")
    return claims


def _check(claims: dict[str, Any]) -> None:
    """Raise LogoutTokenError unless the claims are those of a recent logout token."""
    events = claims["events"]
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT), dict):
        raise LogoutTokenError("events does not name a back-channel logout")
    if "nonce" in claims:
        raise LogoutTokenError("a logout token has no nonce")
    named = [claims[name] for name in ("sub", "sid") if name in claims]
    if not named or not all(isinstance(name, str) and name for name in named):
        raise LogoutTokenError("neither sub nor sid names whose session it was")
    if time() - claims["iat"] > MAX_AGE_S + LEEWAY_S:
        raise LogoutTokenError("this logout token is too old")
