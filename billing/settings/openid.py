"""Checks of a sign-in through the identity provider, beyond those of django-allauth.

django-allauth checks state and PKCE. Here the ID token must be signed by the provider for this client, each sign-in has its
own nonce, the user information must be of the person in the ID token, and a second factor must be claimed where
configured.
"""

import logging
import secrets
from hmac import compare_digest
from typing import Any

import jwt
from allauth.socialaccount.models import SocialApp, SocialLogin
from allauth.socialaccount.providers.base import ProviderException
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from billing.settings.identity_settings import PROVIDER_ID
from billing.settings.provider_tokens import signed_claims

log = logging.getLogger(__name__)


class SignInRefused(ProviderException):
    """Sign-in that the provider's answer does not prove; the text is for the person."""


class SignedAnswers(OpenIDConnectOAuth2Adapter):
    """Adapter that accepts an ID token by its signature only, whichever connection brought it."""

    def __init__(self, request: HttpRequest, provider_id: str = PROVIDER_ID) -> None:
        super().__init__(request, provider_id)

    def _decode_id_token(self, app: SocialApp, id_token: str) -> dict[str, Any]:
        try:
            return signed_claims(self, id_token, needed=("exp", "sub"))
        except jwt.PyJWTError as error:
            log.warning("an ID token was refused: %s", error)
            raise SignInRefused(_("The answer of the identity provider could not be verified. Try again.")) from error


class NonceProvider(OpenIDConnectProvider):
    """Provider that sends a nonce with each request, and requests the contexts that count as a second factor."""

    package = OpenIDConnectProvider.get_package()
    oauth2_adapter_class = SignedAnswers

    def extract_uid(self, data: dict[str, Any]) -> str:
        """Return the identifier of the person, from the ID token only."""
        uid = data.get("id_token", {}).get(self.app.settings["uid_field"])
        if not uid:
            raise ProviderException("there is no ID token that names the person")
        return str(uid)

    def redirect(
        self, request: HttpRequest, process: str, next_url: str | None = None, data: Any = None, **kwargs: Any
    ) -> HttpResponse:
        """Redirect the browser to the provider; the nonce is stored in the state of this sign-in."""
        asked = kwargs.pop("auth_params", None) or self.get_auth_params()
        nonce = secrets.token_urlsafe(24)
        if contexts := settings.OIDC_SECOND_FACTOR["acr"]:
            # a request only: the provider may answer with less, so `sign_in_check` reads the token
            asked["acr_values"] = " ".join(contexts)
        params = {**asked, "nonce": nonce}
        return super().redirect(request, process, next_url, data, auth_params=params, nonce=nonce, **kwargs)


def sign_in_check(sociallogin: SocialLogin) -> None:
    """Refuse an answer of another sign-in, of two people, or without second factor.  Raises SignInRefused."""
    claims = sociallogin.account.extra_data["id_token"]
    nonce, asked = claims.get("nonce"), sociallogin.state.get("nonce")
    if not (isinstance(nonce, str) and isinstance(asked, str) and compare_digest(nonce, asked)):
        raise SignInRefused(_("The answer of the identity provider belongs to another sign-in. Try again."))
    subjects = {found.get("sub") for found in (claims, sociallogin.account.extra_data.get("userinfo")) if found}
    if len(subjects) != 1 or not all(subjects):
        raise SignInRefused(_("The identity provider gave information about somebody else."))
    if settings.REQUIRE_TWO_FACTOR and not _second_factor_enough(claims):
        raise SignInRefused(_("The identity provider did not confirm a second factor. Set one up there and try again."))


def _second_factor_enough(claims: dict[str, Any]) -> bool:
    """Return True if the ID token has a context or method of OIDC_SECOND_FACTOR, or if that is empty."""
    contexts, methods = settings.OIDC_SECOND_FACTOR["acr"], settings.OIDC_SECOND_FACTOR["amr"]
    if not contexts and not methods:
        return True
    used = claims.get("amr")
    return claims.get("acr") in contexts or bool(isinstance(used, list) and set(methods) & {str(way) for way in used})
