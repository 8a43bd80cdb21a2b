"""Dated rules that set the billed service tier for a source's reported tier."""

from datetime import datetime

from billing.tenancy.audit import audit_record
from billing.tenancy.services import SetupError
from billing.usage.models import ServiceTierRule
from metering.messages import Message


def tier_rule_put(*, source: str, service_tier: str, treat_as: str, valid_from: datetime, actor: str) -> bool:
    """Store the billed tier of a reported tier (by canonical name) from `valid_from` on.  Returns True if the rule is new.

    Raises SetupError if another rule begins at that instant: a rule is never edited, a later one replaces it.
    """
    facts = {"source": source, "service_tier": service_tier, "valid_from": valid_from}
    row, made = ServiceTierRule.objects.get_or_create(**facts, defaults={"treat_as": treat_as})
    if not made:
        if row.treat_as != treat_as:
            raise SetupError(Message(
                "service tier %(tier)s of %(source)s is treated as %(known)s from %(at)s on: begin another rule later",
                tier=service_tier, source=source, known=row.treat_as, at=valid_from.isoformat(),
            ))
        return False
    audit_record(
        actor=actor, action="service_tier_rule_put", subject=f"{source}/{service_tier}",
        detail={"treat_as": treat_as, "valid_from": valid_from.isoformat()},
    )  # fmt: skip
    return True
