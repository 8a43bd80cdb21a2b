"""Accounts: local ones are created by an admin, those of the identity provider at sign-in.

A person of the provider is known only by the provider's own identifier: a local account with the same name or mail address
is another person. Their groups give them their roles, updated at every sign-in.
"""

from http import HTTPStatus
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.signals import user_logged_in
from allauth.account.views import LoginView, PasswordSetView
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.core.internal import ratelimit
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.auth.signals import user_login_failed
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseForbidden
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.settings.backchannel_logout import provider_session_remember
from billing.settings.identity_settings import GROUPS_BY_SCIM
from billing.settings.known_devices import device_of, device_remember
from billing.settings.openid import SignedAnswers, SignInRefused, sign_in_check
from billing.tenancy.actors import actor_of_provider
from billing.tenancy.roles import roles_of_groups


class LocalAccounts(DefaultAccountAdapter):
    """Adapter of local accounts: no self-registration, and no lockout by strangers: failures count by account and network.

    A device with an earlier sign-in of the account has its own limit of attempts.
    """

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        """Return the portal, which may have been closed until the password was changed."""
        return reverse(settings.LOGIN_REDIRECT_URL)

    def pre_login(self, request: HttpRequest, user: User, **login: Any) -> HttpResponse | None:
        """Refuse passwords and passkeys for accounts of the provider: it alone decides on sign-ins of its people."""
        sociallogin = (login["signal_kwargs"] or {}).get("sociallogin")
        if is_of_provider(user) and sociallogin is None:
            return sign_in_refused(request, user.get_username(), _("This account signs in through the identity provider."))
        if sociallogin is not None:
            provider_session_remember(request, sociallogin)
        return super().pre_login(request, user, **login)

    def post_login(self, request: HttpRequest, user: User, **login: Any) -> HttpResponse:
        """Add a local account to the cookie of its device."""
        response: HttpResponse = super().post_login(request, user, **login)
        if not is_of_provider(user):
            device_remember(request, response, user)
        return response

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count an attempt.  Raises ValidationError beyond the limit."""
        name = str(credentials.get("username", ""))
        device = device_of(request, name)
        if not device:
            return super().pre_authenticate(request, **credentials)
        self._login_failed_rl_usage = ratelimit.consume(
            request, app="allauth.account", action="login_failed_device", key=f"{device}:{name.lower()}"
        )
        if not self._login_failed_rl_usage:
            raise self.validation_error("too_many_login_attempts")
        return None

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Return the cache key of attempts from unknown devices: account and network."""
        return f"{super()._get_login_attempts_cache_key(request, **credentials)}:{ratelimit.get_ip(request)}"


class SignIn(LoginView):
    """Sign-in page; the limit of attempts per address does not apply to a device known for the account."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method == "POST" and device_of(request, request.POST.get("login", "")):
            # skip the outermost decorator, the rate limit per address
            return LoginView.dispatch.__wrapped__(self, request, *args, **kwargs)
        return super().dispatch(request, *args, **kwargs)


class ProviderAccounts(DefaultSocialAccountAdapter):
    """Adapter that creates an account, without a local password, for a person admitted by the identity provider."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Refuse to link an identity to an account: an unattended browser would suffice for permanent access.

        Refuse answers of the provider that fail `sign_in_check`, too.
        """
        # refused before the checks below, so that no valid answer of the provider can link either
        if sociallogin.state.get("process") == AuthProcess.CONNECT:
            raise ImmediateHttpResponse(HttpResponseForbidden("identities are not linked to accounts"))
        try:
            sign_in_check(sociallogin)
        except SignInRefused as error:
            raise ImmediateHttpResponse(sign_in_refused(request, sociallogin.account.uid, str(error))) from error

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Show the reason for a refused answer without a verified person."""
        if isinstance(exception, SignInRefused):
            raise ImmediateHttpResponse(sign_in_refused(request, "", str(exception)))


def sign_in_refused(request: HttpRequest, name: str, why: str) -> HttpResponse:
    """Render the refusal; the audit log records the name."""
    user_login_failed.send(sender=__name__, credentials={"username": name}, request=request)
    return render(request, "account/refused.html", {"why": why}, status=HTTPStatus.FORBIDDEN)


_callback = OAuth2CallbackView.adapter_view(SignedAnswers)


def sign_in_callback(request: HttpRequest) -> HttpResponse:
    """Handle the redirect back from the provider; 404 where no provider is configured."""
    try:
        return _callback(request)
    except SocialApp.DoesNotExist as error:
        raise Http404("no identity provider is set up") from error


def is_of_provider(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Return True for the account of a person of the identity provider."""
    return SocialAccount.objects.filter(user_id=user.pk).exists()


def local_password_set(request: HttpRequest) -> HttpResponse:
    """Show the page that sets a first password, except to people of the provider."""
    if is_of_provider(request.user):
        raise Http404
    return PasswordSetView.as_view()(request)


@receiver(user_logged_in, dispatch_uid="roles of the identity provider")
def roles_follow_groups(request: HttpRequest, user: User, sociallogin: SocialLogin | None = None, **more: Any) -> None:
    """Grant the roles of the groups that the provider names, and revoke those of groups that it no longer names."""
    if sociallogin is None:
        return
    if settings.OIDC_GROUPS_CLAIM != GROUPS_BY_SCIM:
        groups = groups_of(sociallogin.account.extra_data, settings.OIDC_GROUPS_CLAIM)
        roles_of_groups(user=user, groups=groups, actor=actor_of_provider(sociallogin.account.uid))


def groups_of(extra_data: dict[str, Any], claim: str) -> set[str]:
    """Return the groups that the provider sent: from its user information, else from the ID token."""
    for claims in (extra_data.get("userinfo"), extra_data.get("id_token"), extra_data):
        groups = claims.get(claim) if isinstance(claims, dict) else None
        if isinstance(groups, str):
            return {groups}
        if isinstance(groups, list):
            return {group for group in groups if isinstance(group, str)}
    return set()
