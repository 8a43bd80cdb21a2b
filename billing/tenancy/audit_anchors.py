"""Anchors: the head of the audit log, sent to the places of AUDIT_ANCHOR daily and after each close.

The owner of the database can rewrite the whole chain. An anchor stored elsewhere still proves its former head.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from django.conf import settings
from django.db import transaction

from billing.tenancy.anchor_places import AnchorPlace, FilePlace, anchor_place
from billing.tenancy.audit_chain import Anchor
from billing.tenancy.models import AnchorDelivery, AuditLink, BillingSetup

SCHEMA = "suanpan/audit-anchor/1"
DAILY = timedelta(days=1)
LONGEST_PAUSE_MINUTES = 60
CLOSES = ("period_close",)

logger = logging.getLogger(__name__)


def anchors_send(*, now: datetime) -> int:
    """Send the head to every place that is due; return how many accepted it. A failure is logged and retried."""
    return sum(_send(address, now) for address in settings.AUDIT_ANCHOR)


def _send(address: str, now: datetime) -> bool:
    # locked per place: two workers never send to one place at once
    place = anchor_place(address)
    AnchorDelivery.objects.get_or_create(address_sha256=_key(address), defaults={"place": place.name})
    with transaction.atomic():
        state = AnchorDelivery.objects.select_for_update(skip_locked=True).filter(address_sha256=_key(address)).first()
        head = AuditLink.objects.order_by("-ordinal").first()
        if state is None or head is None or not _is_due(state, now):
            return False
        state.tried_at = now
        try:
            place.keep(anchor_text(head, now), ordinal=head.ordinal, now=now)
        except Exception as error:  # noqa: BLE001 -- each client raises its own; whatever it is, the next try may succeed
            state.failures += 1
            state.error = f"{type(error).__name__}: {error}".replace(address, place.name)[:300]
            logger.error("the head of the audit log did not reach %s: %s", place.name, state.error)
        else:
            state.failures, state.error, state.ordinal, state.sent_at = 0, "", head.ordinal, now
        state.save()
    return not state.failures


def _is_due(state: AnchorDelivery, now: datetime) -> bool:
    """Return True if a place is due: after failures in 1, 4, 16, then 60 minutes; else daily, and after a close.

    A time in the future is not one that this code wrote, and delays nothing.
    """
    if state.failures and state.tried_at is not None:
        return now >= state.tried_at + timedelta(minutes=min(4 ** min(state.failures - 1, 3), LONGEST_PAUSE_MINUTES))
    if state.sent_at is None or not timedelta(0) <= now - state.sent_at < DAILY:
        return True
    return AuditLink.objects.filter(ordinal__gt=state.ordinal, entry__action__in=CLOSES).exists()


def anchor_text(head: AuditLink, now: datetime) -> str:
    """Return the anchor of a head as one line of JSON."""
    setup = BillingSetup.objects.first()
    anchor = {
        "schema": SCHEMA, "installation": settings.PORTAL_URL or (setup.issuer if setup else ""),
        "sequence": head.ordinal, "hash": head.digest, "time": now.isoformat(),
    }  # fmt: skip
    return json.dumps(anchor, ensure_ascii=False)


def anchors_read(where: str) -> list[Anchor]:
    """Return every anchor stored at an address or in a file, ignoring other lines.  Raises PlaceError, OSError."""
    place: AnchorPlace = anchor_place(where) if "://" in where else FilePlace(Path(where))
    return sorted(set(_anchors(place.kept())))


def _anchors(lines: Iterable[str]) -> Iterator[Anchor]:
    for line in lines:
        try:
            # syslog puts its own header before the JSON
            found = json.loads(line[line.index("{") :])
            if found["schema"] == SCHEMA:
                yield int(found["sequence"]), str(found["hash"])
        except (ValueError, KeyError, TypeError):
            continue


def anchor_states() -> list[AnchorDelivery | None]:
    """Return the delivery state of each place of AUDIT_ANCHOR; None before the first attempt."""
    known = {state.address_sha256: state for state in AnchorDelivery.objects.all()}
    return [known.get(_key(address)) for address in settings.AUDIT_ANCHOR]


def _key(address: str) -> str:
    """Return the hash of an address, which may contain a secret; the database stores only the hash."""
    return sha256(address.encode()).hexdigest()
