"""Browser sessions, open or waiting for a second factor, ended before they expire."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from allauth.account.internal.stagekit import LOGIN_SESSION_KEY
from allauth.account.utils import url_str_to_user_pk
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone


def sessions_end(ends: Callable[[int, Mapping[str, Any]], bool], spare: str | None = None) -> Counter[int]:
    """End every session whose account and content satisfy `ends`, except the key `spare`; return the number by account.

    A sign-in that waits for its second factor is included: it would otherwise open without another check.
    A request that runs meanwhile cannot save its session again: Django only updates existing sessions.
    """
    ended: Counter[int] = Counter()
    for session in Session.objects.filter(expire_date__gt=timezone.now()).exclude(session_key=spare).iterator():
        content = session.get_decoded()
        account = _account(content)
        if account is not None and ends(account, content):
            session.delete()
            ended[account] += 1
    return ended


def _account(content: Mapping[str, Any]) -> int | None:
    """Return the account of a session, or the one it will have after the second factor."""
    if SESSION_KEY in content:
        return int(content[SESSION_KEY])
    pending = content.get(LOGIN_SESSION_KEY) or {}
    return int(url_str_to_user_pk(pending["user_pk"])) if pending.get("user_pk") else None
