"""Daily digest of the inbox: once per person and local day, by mail or to a chosen channel.

One process at a time works on a digest (its row is locked), and marks the day in the same transaction.
"""

import logging
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.template.loader import render_to_string
from django.utils.translation import override

from billing.budgets.channels import ChannelError, send
from billing.budgets.models import Channel
from billing.budgets.services.deliveries import FIRST_WAIT, LONGEST_WAIT
from billing.explorer.services.saved_views import channels_allowed
from billing.inbox.models import Digest
from billing.inbox.selectors import Inbox, inbox_of
from billing.runtime.apart import failure_text, log_failure
from billing.tenancy.audit import audit_record
from billing.tenancy.links import portal_link
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import NoSetupError, billing_setup
from metering.messages import Message, UserError

FIRST_HOUR: Final = 8
"""Local hour of the day from which digests are sent."""
LISTED: Final = 5
"""Limit of listed items of a kind."""
log = logging.getLogger(__name__)


class DigestError(UserError, ValueError):
    """Channel that a person may not have digests sent to."""

    code = "digest"


def digest_choose(*, user: User, wanted: bool, channel: Channel | None = None) -> Digest:
    """Set the recipient of a person's digest: a channel, their own address, or none.  Raises DigestError."""
    if channel is not None and not channels_allowed(user).filter(pk=channel.pk).exists():
        raise DigestError(Message("%(name)s: is no channel of your teams", name=channel.name))
    with transaction.atomic():
        chosen = {"wanted": wanted, "channel": channel, "attempts": 0, "next_at": None, "last_error": ""}
        digest, _ = Digest.objects.update_or_create(user=user, defaults=chosen)
        detail = {"wanted": wanted, "channel": channel.name if channel else ""}
        audit_record(actor=user.get_username(), action="digest_choose", subject=user.get_username(), detail=detail)
    return digest


def digests_send(*, now: datetime) -> int:
    """Send today's digests that are due; return their number. A failing digest does not delay others."""
    try:
        setup = billing_setup()
    except NoSetupError:
        return 0
    local = now.astimezone(ZoneInfo(setup.zone))
    if local.hour < FIRST_HOUR:
        return 0
    return sum(_send(pk, setup, local.date(), now) for pk in _readers())


def _readers() -> list[int]:
    """Return active people with a role and an address or channel, who did not opt out."""
    able = Q(digest__channel__isnull=False)
    if settings.ALERT_MAIL_URL:
        able |= ~Q(email="")
    people = User.objects.filter(Q(memberships__isnull=False) | Q(is_superuser=True), able, is_active=True)
    return list(people.exclude(digest__wanted=False).order_by("pk").values_list("pk", flat=True).distinct())


def _send(user_id: int, setup: BillingSetup, today: date, now: datetime) -> bool:
    Digest.objects.get_or_create(user_id=user_id)
    with transaction.atomic():
        rows = Digest.objects.select_for_update(skip_locked=True, of=("self",)).filter(user_id=user_id, wanted=True)
        digest = rows.select_related("user", "channel").first()
        if digest is None or digest.day == today or (digest.next_at is not None and digest.next_at > now):
            return False  # done, not yet due again, or locked by another process
        try:
            with transaction.atomic():
                found = inbox_of(digest.user, now, setup)
                if found.number:
                    _deliver(digest, found, setup)
        except Exception as error:  # noqa: BLE001 - the edge of the loop: whatever it is, it holds up no other digest
            log_failure(log, error, "digest of %s waits", digest.user.pk)
            wait: timedelta = min(FIRST_WAIT * 2 ** min(digest.attempts, 10), LONGEST_WAIT)
            digest.attempts, digest.next_at, digest.last_error = digest.attempts + 1, now + wait, failure_text(error)
            digest.save()
            return False
        digest.day, digest.attempts, digest.next_at, digest.last_error = today, 0, None, ""
        digest.save()
        return bool(found.number)


def _deliver(digest: Digest, found: Inbox, setup: BillingSetup) -> None:
    channel = digest.channel
    if channel is None:
        channel = Channel(name=digest.user.get_username(), mail=digest.user.email, language="")
    elif not channels_allowed(digest.user).filter(pk=channel.pk).exists():
        raise ChannelError(Message("%(name)s: is no channel of your teams", name=channel.name))
    with override(channel.language or settings.LANGUAGE_CODE):
        title, body = message_of(found, setup)
        send(channel, title=title, body=body)


def message_of(found: Inbox, setup: BillingSetup) -> tuple[str, str]:
    """Return title and text of a digest: the items by kind, with the money, and the link to the inbox."""
    groups = [(group, list(group.items)[:LISTED], max(0, len(group.items) - LISTED)) for group in found.groups]
    context = {"inbox": found, "groups": groups, "setup": setup, "link": portal_link("inbox")}
    title = " ".join(render_to_string("alerts/digest_title.txt", context).split())
    return title, render_to_string("alerts/digest_body.txt", context).strip() + "\n"
