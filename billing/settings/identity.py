"""Who may have an account: local ones are made by an admin, those of the identity provider by signing in there.

A person of the provider is known by the provider's own identifier and by nothing else: a local account with the same
name or mail address is somebody else. Their groups give them their roles, anew at every sign-in.
"""

import logging
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.auth_backends import AuthenticationBackend
from allauth.account.signals import user_logged_in
from allauth.account.views import PasswordSetView
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialLogin
from allauth.socialaccount.providers.base import AuthProcess
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseForbidden

from billing.tenancy.models import Team
from billing.tenancy.roles import roles_from_provider

log = logging.getLogger(__name__)


class LocalAccounts(DefaultAccountAdapter):
    """Nobody makes a local account alone."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False


class LocalPasswords(AuthenticationBackend):
    """A password opens local accounts only: people who left the company, or a group, are refused by the provider alone."""

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> AbstractBaseUser | None:
        user = super().authenticate(request, **credentials)
        return None if user is not None and is_of_provider(user) else user


class ProviderAccounts(DefaultSocialAccountAdapter):
    """A person whom the identity provider admits gets an account, without a local password."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Refuse to link an identity to an account: an open browser would be enough to come back for ever."""
        if sociallogin.state.get("process") == AuthProcess.CONNECT:
            raise ImmediateHttpResponse(HttpResponseForbidden("identities are not linked to accounts"))


def is_of_provider(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether an account is a person of the identity provider."""
    return SocialAccount.objects.filter(user_id=user.pk).exists()


def local_password_set(request: HttpRequest) -> HttpResponse:
    """The page on which an account without a password gets one: people of the provider never do."""
    if is_of_provider(request.user):
        raise Http404
    return PasswordSetView.as_view()(request)


@receiver(user_logged_in, dispatch_uid="roles of the identity provider")
def roles_follow_groups(request: HttpRequest, user: User, sociallogin: SocialLogin | None = None, **_: Any) -> None:
    """Give the roles of the groups that the provider names now, and take away those of groups that it no longer names."""
    if sociallogin is None:
        return
    groups = groups_of(sociallogin.account.extra_data, settings.OIDC_GROUPS_CLAIM)
    wanted = {role for group in groups for role in settings.OIDC_ROLES.get(group, [])}
    known = set(Team.objects.filter(code__in=[team for _, team in wanted if team]).values_list("code", flat=True))
    for role, team in sorted(wanted, key=str):
        if team and team not in known:
            log.error("OIDC_ROLES gives %s for team %r, which does not exist; %s signs in without it", role, team, user)
    with transaction.atomic():
        held = {(role, team) for role, team in wanted if team is None or team in known}
        roles_from_provider(user=user, roles=held, actor="identity provider")


def groups_of(extra_data: dict[str, Any], claim: str) -> set[str]:
    """The groups that the provider sent: its user information first, else the ID token."""
    for claims in (extra_data.get("userinfo"), extra_data.get("id_token"), extra_data):
        groups = claims.get(claim) if isinstance(claims, dict) else None
        if isinstance(groups, str):
            return {groups}
        if isinstance(groups, list):
            return {group for group in groups if isinstance(group, str)}
    return set()
