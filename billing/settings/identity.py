"""Who may have an account: local ones are made by an admin, those of the identity provider by signing in there.

A person of the provider is known by the provider's own identifier and by nothing else: a local account with the same
name or mail address is somebody else. Their groups give them their roles, anew at every sign-in.
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
    """Nobody makes a local account alone, and nobody keeps one out: wrong passwords count by account and network.

    A device on which the account has signed in before has attempts of its own.
    """

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        """Lead to the portal, which may have been shut until the password was changed."""
        return reverse(settings.LOGIN_REDIRECT_URL)

    def pre_login(self, request: HttpRequest, user: User, **login: Any) -> HttpResponse | None:
        """Passwords and passkeys open local accounts only: the provider alone decides who of its people comes in."""
        sociallogin = (login["signal_kwargs"] or {}).get("sociallogin")
        if is_of_provider(user) and sociallogin is None:
            return sign_in_refused(request, user.get_username(), _("This account signs in through the identity provider."))
        if sociallogin is not None:
            provider_session_remember(request, sociallogin)
        return super().pre_login(request, user, **login)

    def post_login(self, request: HttpRequest, user: User, **login: Any) -> HttpResponse:
        """Remember the device of a local account."""
        response: HttpResponse = super().post_login(request, user, **login)
        if not is_of_provider(user):
            device_remember(request, response, user)
        return response

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count an attempt.  Raises ValidationError where there were too many."""
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
        """What attempts from unknown devices are counted by."""
        return f"{super()._get_login_attempts_cache_key(request, **credentials)}:{ratelimit.get_ip(request)}"


class SignIn(LoginView):
    """The page to sign in; how many attempts an address has does not count for a device that the account is known on."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method == "POST" and device_of(request, request.POST.get("login", "")):
            return LoginView.dispatch.__wrapped__(self, request, *args, **kwargs)  # without its outermost decorator
        return super().dispatch(request, *args, **kwargs)


class ProviderAccounts(DefaultSocialAccountAdapter):
    """A person whom the identity provider admits gets an account, without a local password."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Refuse to link an identity to an account: an open browser would be enough to come back for ever.

        Refuse too what does not prove who signs in.
        """
        if sociallogin.state.get("process") == AuthProcess.CONNECT:
            raise ImmediateHttpResponse(HttpResponseForbidden("identities are not linked to accounts"))
        try:
            sign_in_check(sociallogin)
        except SignInRefused as error:
            raise ImmediateHttpResponse(sign_in_refused(request, sociallogin.account.uid, str(error))) from error

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Say why an answer was refused that names nobody who could be believed."""
        if isinstance(exception, SignInRefused):
            raise ImmediateHttpResponse(sign_in_refused(request, "", str(exception)))


def sign_in_refused(request: HttpRequest, name: str, why: str) -> HttpResponse:
    """The page that says so; the audit log has whose sign-in it was."""
    user_login_failed.send(sender=__name__, credentials={"username": name}, request=request)
    return render(request, "account/refused.html", {"why": why}, status=HTTPStatus.FORBIDDEN)


_callback = OAuth2CallbackView.adapter_view(SignedAnswers)


def sign_in_callback(request: HttpRequest) -> HttpResponse:
    """Where the provider sends a browser back to; there is no such page without a provider."""
    try:
        return _callback(request)
    except SocialApp.DoesNotExist as error:
        raise Http404("no identity provider is set up") from error


def is_of_provider(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether an account is a person of the identity provider."""
    return SocialAccount.objects.filter(user_id=user.pk).exists()


def local_password_set(request: HttpRequest) -> HttpResponse:
    """The page on which an account without a password gets one: people of the provider never do."""
    if is_of_provider(request.user):
        raise Http404
    return PasswordSetView.as_view()(request)


@receiver(user_logged_in, dispatch_uid="roles of the identity provider")
def roles_follow_groups(request: HttpRequest, user: User, sociallogin: SocialLogin | None = None, **more: Any) -> None:
    """Give the roles of the groups that the provider names now, and take away those of groups that it no longer names."""
    if sociallogin is None:
        return
    if settings.OIDC_GROUPS_CLAIM != GROUPS_BY_SCIM:
        groups = groups_of(sociallogin.account.extra_data, settings.OIDC_GROUPS_CLAIM)
        roles_of_groups(user=user, groups=groups, actor=actor_of_provider(sociallogin.account.uid))


def groups_of(extra_data: dict[str, Any], claim: str) -> set[str]:
    """The groups that the provider sent: its user information first, else the ID token."""
    for claims in (extra_data.get("userinfo"), extra_data.get("id_token"), extra_data):
        groups = claims.get(claim) if isinstance(claims, dict) else None
        if isinstance(groups, str):
            return {groups}
        if isinstance(groups, list):
            return {group for group in groups if isinstance(group, str)}
    return set()
