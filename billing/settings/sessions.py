"""Session limits, credentials required of a session, and audit log entries of sign-ins."""

from collections.abc import Mapping
from time import time
from typing import Any, Final

from allauth.account.adapter import get_adapter
from allauth.account.authentication import get_authentication_records
from allauth.account.signals import password_changed, password_reset, password_set, user_logged_out
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_added, authenticator_removed, authenticator_reset
from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.dispatch import Signal, receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.deprecation import MiddlewareMixin

from billing.tenancy.actors import Actor, Channel, actor_of_session
from billing.tenancy.audit import audit_record
from billing.tenancy.open_sessions import sessions_end
from billing.tenancy.people import first_password_forget, has_first_password

BEGAN, SEEN, FIRST_PASSWORD = "session_began", "session_seen", "first_password"
SEEN_EVERY_S = 60
CREDENTIALS: Final[Mapping[Signal, str]] = {
    authenticator_added: "second_factor_add", authenticator_removed: "second_factor_remove",
    authenticator_reset: "second_factor_reset", password_changed: "password_change", password_set: "password_set",
    password_reset: "password_reset",
}  # fmt: skip
"""Audit log action of each change of credentials."""
OWN_CHOICES: Final = (password_changed, password_set, password_reset)
"""Signals of a password chosen by the owner of the account."""
WITH_FIRST_PASSWORD: Final = (
    "/account/password/", "/account/reauthenticate/", "/account/logout/", "/logout/", "/i18n/", "/static/", "/healthz",
    "/readyz", "/metrics",
)  # fmt: skip
WITHOUT_SECOND_FACTOR: Final = ("/account/", "/logout/", "/static/", "/healthz", "/readyz", "/metrics")


class SessionLimitsMiddleware(MiddlewareMixin):
    """Middleware that ends a session SESSION_HOURS after its begin, and SESSION_IDLE_MINUTES after its last request."""

    def process_request(self, request: HttpRequest) -> None:
        if settings.SESSION_COOKIE_NAME in request.COOKIES and request.user.is_authenticated:
            now = time()
            began, seen = request.session.get(BEGAN, 0), request.session.get(SEEN, 0)
            if now - began >= settings.SESSION_HOURS * 3600 or now - seen >= settings.SESSION_IDLE_MINUTES * 60:
                logout(request)
            # once a minute and not at each request: each assignment writes the session
            elif now - seen >= SEEN_EVERY_S:
                request.session[SEEN] = now


class OwnPasswordMiddleware(MiddlewareMixin):
    """Middleware that redirects people with a first password, known to another person, to the page that changes it."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or request.path.startswith(WITH_FIRST_PASSWORD):
            return None
        if not request.user.is_authenticated or not request.session.get(FIRST_PASSWORD):
            return None
        if request.path.startswith("/api/"):
            from billing.api.problems import problem  # imports the REST framework, which commands do not need

            return problem(403, "Forbidden", "the first password is still in use: change it at /account/password/change/")
        return redirect("account_change_password")


class RequireTwoFactorMiddleware(MiddlewareMixin):
    """Middleware that, with REQUIRE_TWO_FACTOR, redirects password sign-ins to the setup of a second factor.

    For sign-ins through the identity provider its own factors apply.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        if not settings.REQUIRE_TWO_FACTOR or request.path.startswith(WITHOUT_SECOND_FACTOR):
            return None
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or not _lacks_second_factor(request):
            return None
        if request.path.startswith("/api/"):
            from billing.api.problems import problem  # imports the REST framework, which commands do not need

            return problem(403, "Forbidden", "a second factor is required: set one up at /account/2fa/")
        return redirect("mfa_index")


def _lacks_second_factor(request: HttpRequest) -> bool:
    if not request.user.is_authenticated:
        return False
    if any(record["method"] == "socialaccount" for record in get_authentication_records(request, request.user)):
        return False
    return not Authenticator.objects.filter(user=request.user).exclude(type=Authenticator.Type.RECOVERY_CODES).exists()


@receiver(user_logged_in, dispatch_uid="a session begins")
def session_begins(request: HttpRequest, user: User, **_: Any) -> None:
    """Store the time of a sign-in in the session, and record its method in the audit log."""
    request.session[BEGAN] = request.session[SEEN] = time()
    methods = {record["method"] for record in get_authentication_records(request, user)}
    if "password" in methods and has_first_password(user):
        request.session[FIRST_PASSWORD] = True
    by = "identity provider" if "socialaccount" in methods else "password" if "password" in methods else "passkey"
    actor = actor_of_session(request, user)
    audit_record(actor=actor, action="sign_in", subject=actor, detail={"by": by, **_address(request)})


@receiver(user_login_failed, dispatch_uid="a sign-in failed")
def sign_in_failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """Record a failed sign-in with the account name and the address."""
    actor, name = Actor("", Channel.PORTAL), str(credentials.get("username", ""))
    audit_record(actor=actor, action="sign_in_failed", subject=name, detail=_address(request))


@receiver(user_logged_out, dispatch_uid="a session ends")
def session_ends(request: HttpRequest, user: User | None, **_: Any) -> None:
    if user is not None:
        actor = actor_of_session(request, user)
        audit_record(actor=actor, action="sign_out", subject=actor, detail=_address(request))


def credential_changed(
    request: HttpRequest, user: User, signal: Signal, authenticator: Authenticator | None = None, **_: Any
) -> None:
    """Record a new, changed or removed password or second factor; a new factor ends sessions that did not prove it."""
    detail = {"kind": authenticator.type} if authenticator else {}
    actor = actor_of_session(request, user)
    audit_record(actor=actor, action=CREDENTIALS[signal], subject=actor, detail=detail)
    if signal in OWN_CHOICES:
        first_password_forget(user)
        request.session.pop(FIRST_PASSWORD, None)
    if signal is authenticator_added:
        sessions_end(lambda account, _: account == user.pk, spare=request.session.session_key)


for _signal in CREDENTIALS:
    _signal.connect(credential_changed, dispatch_uid="a credential changed")


def _address(request: HttpRequest | None) -> dict[str, str]:
    return {} if request is None or "REMOTE_ADDR" not in request.META else {"address": get_adapter().get_client_ip(request)}
