"""What every dated fact of prices shares: one holds at a time, another follows it, and what is stored is never edited."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from billing.rates.models import DatedPolicy
from billing.rates.services.sheets import RateError
from billing.tenancy.audit import audit_record
from metering.messages import Message


def ends_later(instant: datetime) -> Q:
    """What is in force at `instant` or would come to be: it ends there."""
    return Q(valid_until=None) | Q(valid_until__gt=instant)


def take_over(rows: QuerySet[Any], valid_from: datetime) -> datetime | None:
    """End those of `rows` that would still hold at `valid_from`; until when the new one holds: where a later one begins."""
    rows.filter(ends_later(valid_from), valid_from__lt=valid_from).update(valid_until=valid_from)
    later = rows.filter(valid_from__gt=valid_from).order_by("valid_from").first()
    return later.valid_from if later else None


def policy_publish(
    *, model: type[DatedPolicy], fields: Mapping[str, Any], detail: Mapping[str, Any], actor: str
) -> bool:
    """Publish a policy from its instant on; the policy before it ends there. False where it is published already.

    Raises RateError where a published policy of that name differs.
    """
    name, kind = fields["name"], str(model._meta.verbose_name)
    known = model._default_manager.filter(name=name).first()
    if known:
        differing = [field for field, value in fields.items() if getattr(known, field) != value]
        if differing:
            raise RateError(Message(
                "%(kind)s %(name)s is published and differs in %(differing)s: give it a new name",
                kind=kind, name=name, differing=differing[0],
            ))
        return False
    try:
        with transaction.atomic():
            until = take_over(model._default_manager.all(), fields["valid_from"])
            model._default_manager.create(**fields, valid_until=until)
            audit_record(actor=actor, action=f"{kind.replace(' ', '_')}_publish", subject=name, detail=dict(detail))
    except IntegrityError as error:
        raise RateError(Message("%(kind)s %(name)s overlaps another one", kind=kind, name=name)) from error
    return True
