"""The second factor of local accounts: its secret sealed at rest, and asked of everybody where the installation says so."""

import base64
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from allauth.account.authentication import get_authentication_records
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from cryptography.fernet import Fernet
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

OPEN: Final = ("/account/", "/logout/", "/static/", "/api/", "/healthz", "/readyz", "/metrics")


class SealedSecrets(DefaultMFAAdapter):
    """A stolen table of second factors opens nothing: the secrets are encrypted with a key made of SECRET_KEY."""

    def encrypt(self, text: str) -> str:
        return _sealer().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _sealer().decrypt(encrypted_text.encode()).decode()


def _sealer() -> Fernet:
    key = sha256(b"second factors:" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))


class RequireTwoFactorMiddleware:
    """With REQUIRE_TWO_FACTOR, whoever signed in with a password sets up a second factor before anything else.

    Who came through the identity provider has whatever factors it asks for.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.REQUIRE_TWO_FACTOR and not request.path.startswith(OPEN) and _lacks_second_factor(request):
            return redirect("mfa_activate_totp")
        return self.get_response(request)


def _lacks_second_factor(request: HttpRequest) -> bool:
    if not request.user.is_authenticated:
        return False
    if any(record["method"] == "socialaccount" for record in get_authentication_records(request, request.user)):
        return False
    return not Authenticator.objects.filter(user=request.user).exclude(type=Authenticator.Type.RECOVERY_CODES).exists()
