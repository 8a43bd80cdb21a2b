"""Publishing what of idle and shared cost is billed. A published policy is never edited; another one follows it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from billing.rates.models import AllocationPolicy
from billing.rates.services.publishing import ends_later
from billing.rates.services.sheets import RateError
from billing.tenancy.audit import audit_record


def allocation_policy_publish(
    *, name: str, valid_from: datetime, rules: Mapping[str, Any], actor: str
) -> bool:
    """Publish a policy from its instant on; the policy before it ends there. False where it is published already.

    Raises RateError where a published policy of that name differs.
    """
    known = AllocationPolicy.objects.filter(name=name).first()
    if known:
        for field, wanted in (("valid_from", valid_from), ("rules", rules)):
            if getattr(known, field) != wanted:
                raise RateError(f"allocation policy {name} is published and differs in {field}: give it a new name")
        return False
    try:
        with transaction.atomic():
            before = AllocationPolicy.objects.filter(valid_from__lt=valid_from)
            before.filter(ends_later(valid_from)).update(valid_until=valid_from)
            later = AllocationPolicy.objects.filter(valid_from__gt=valid_from).order_by("valid_from").first()
            AllocationPolicy.objects.create(
                name=name, valid_from=valid_from, valid_until=later.valid_from if later else None, rules=dict(rules)
            )
            audit_record(
                actor=actor, action="allocation_policy_publish", subject=name,
                detail={"valid_from": valid_from.isoformat(), "rules": dict(rules)},
            )  # fmt: skip
    except IntegrityError as error:
        raise RateError(f"allocation policy {name} overlaps another one") from error
    return True
