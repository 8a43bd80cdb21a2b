"""Inbox items for API tokens in use that expire soon."""

from collections.abc import Iterator
from typing import Final
from zoneinfo import ZoneInfo

from django.urls import reverse
from django.utils.translation import gettext

from billing.inbox.reader import Item, Reader
from billing.tenancy.access import Right
from billing.tenancy.models import ApiToken
from billing.tenancy.tokens import api_tokens_ending

EXPIRING: Final = ApiToken.objects.filter(revoked_at=None, expires_at__isnull=False, last_used_at__isnull=False)
"""Tokens with an expiry, in use."""


def ending(reader: Reader) -> Iterator[Item]:
    """Yield the reader's own expiring tokens; for people managers also those without owner. Only they may replace them."""
    manages, zone = reader.access.somewhere(Right.MANAGE_PEOPLE), ZoneInfo(reader.setup.zone)
    rows = api_tokens_ending(reader.now).values_list("name", "source", "expires_at", "owner__username")
    names = reader.own(owner for *_, owner in rows if owner is not None)
    for name, source, expires_at, owner in rows:
        own = owner in names
        if expires_at and (own or (owner is None and manages)):
            page = reverse("portal:own_tokens" if own else "portal:people")
            words = gettext("ends on %(day)s") % {"day": f"{expires_at.astimezone(zone):%Y-%m-%d}"}
            yield Item(f"{name} {source}".strip(), page, words=words)
