"""Sessions of browsers that are open: ended before their time."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone


def sessions_end(ends: Callable[[Mapping[str, Any]], bool]) -> Counter[int]:
    """End every session for whose content `ends` says so; how many of each account.

    A request that runs meanwhile cannot save its session again: Django only updates one that is still there.
    """
    ended: Counter[int] = Counter()
    for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator():
        content = session.get_decoded()
        if SESSION_KEY in content and ends(content):
            session.delete()
            ended[int(content[SESSION_KEY])] += 1
    return ended
