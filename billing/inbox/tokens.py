"""API tokens in use that are about to end."""

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
"""Tokens that can be about to end, whenever that is asked."""


def ending(reader: Reader) -> Iterator[Item]:
    """The reader's own; and those that nobody owns, for who manages people. Only they may make the next one."""
    manages, zone = reader.access.somewhere(Right.MANAGE_PEOPLE), ZoneInfo(reader.setup.zone)
    rows = list(api_tokens_ending(reader.now).select_related("owner"))
    names = reader.own(token.owner.get_username() for token in rows if token.owner)
    for token in rows:
        own = token.owner is not None and token.owner.get_username() in names
        if token.expires_at and (own or (token.owner is None and manages)):
            page = reverse("portal:own_tokens" if own else "portal:people")
            words = gettext("ends on %(day)s") % {"day": f"{token.expires_at.astimezone(zone):%Y-%m-%d}"}
            yield Item(f"{token.name} {token.source}".strip(), page, words=words)
