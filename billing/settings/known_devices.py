"""Known devices: wrong passwords from other devices do not lock a person out of devices with an earlier sign-in.

A signed cookie has an id of the device and digests of the accounts that signed in on it. The cookie grants no access, only
a separate limit of attempts at these accounts.
"""

import secrets
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import salted_hmac

COOKIE: Final = "known_device"
SALT: Final = "billing.settings.known_devices"
MOST_SECONDS: Final = 180 * 86_400
MOST_ACCOUNTS: Final = 5


def device_of(request: HttpRequest, name: str) -> str:
    """Return the device of a request, if the account `name` has signed in on it; else ""."""
    known = _known(request)
    return str(known["device"]) if _digest(name) in known["accounts"] else ""


def device_remember(request: HttpRequest, response: HttpResponse, user: User) -> None:
    """Add an account to the device cookie; beyond MOST_ACCOUNTS the oldest is dropped."""
    known, account = _known(request), _digest(user.get_username())
    accounts = [*(one for one in known["accounts"] if one != account), account][-MOST_ACCOUNTS:]
    value = signing.dumps({"device": known["device"] or secrets.token_urlsafe(16), "accounts": accounts}, salt=SALT)
    response.set_cookie(
        COOKIE, value, max_age=MOST_SECONDS, httponly=True, secure=settings.SESSION_COOKIE_SECURE, samesite="Lax"
    )


def _known(request: HttpRequest) -> dict[str, Any]:
    try:
        known: dict[str, Any] = signing.loads(request.COOKIES.get(COOKIE, ""), salt=SALT, max_age=MOST_SECONDS)
    except signing.BadSignature:
        return {"device": "", "accounts": []}
    return known


def _digest(name: str) -> str:
    return salted_hmac(SALT, name.strip().lower(), algorithm="sha256").hexdigest()[:32]
