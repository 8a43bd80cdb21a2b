"""API tokens in use that are about to end."""

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from django.urls import reverse
from django.utils.translation import gettext

from billing.inbox.reader import Item, Reader
from billing.tenancy.access import Right
from billing.tenancy.tokens import api_tokens_ending


def ending(reader: Reader) -> Iterator[Item]:
    """The reader's own; and those that nobody owns, for who manages people. Only they may make the next one."""
    manages, zone = reader.access.somewhere(Right.MANAGE_PEOPLE), ZoneInfo(reader.setup.zone)
    for token in api_tokens_ending(reader.now).select_related("owner"):
        own = token.owner is not None and reader.is_one_of(token.owner.get_username())
        if token.expires_at and (own or (token.owner is None and manages)):
            page = reverse("portal:own_tokens" if own else "portal:people")
            words = gettext("ends on %(day)s") % {"day": f"{token.expires_at.astimezone(zone):%Y-%m-%d}"}
            yield Item(f"{token.name} {token.source}".strip(), page, words=words)
