"""Writes of the set-up, teams and ownership.

The caller checks in the same transaction that no closed period changes with them
(`billing.corrections.services.proof.closed_periods_check`): this package does not know which periods are closed.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from django.db import IntegrityError, transaction

from billing.tenancy.audit import audit_record
from billing.tenancy.cost_centers import CostCenters, organisation_of
from billing.tenancy.models import (
    GATHER_CONSUMERS_ABOVE,
    BillingSetup,
    ConsumerOwnership,
    NamespaceOwnership,
    Team,
)
from metering.messages import Message, UserError
from pricing.money import amounts_in


class SetupError(UserError, ValueError):
    """Error of a set-up that contradicts stored facts."""

    code = "set_up"


ISSUER_FACTS: Final = {"legal_entity": 200, "address": 500, "tax_id": 64, "contact": 200}
"""Facts of the issuer on documents beside its name, with their maximum length in characters."""


def billing_setup_put(
    *,
    currency: str,
    zone: str,
    issuer: str,
    review: str,
    actor: str,
    reopening: str = BillingSetup.Reopening.NEVER,
    holidays: Sequence[date] = (),
    working_days: Sequence[date] = (),
    legal_entity: str = "",
    address: str = "",
    tax_id: str = "",
    contact: str = "",
    cost_center_required: bool = False,
    gather_consumers_above: int = GATHER_CONSUMERS_ABOVE,
) -> bool:
    """Store the billing set-up; return True if anything changed.  Raises CurrencyError."""
    amounts_in(currency)
    wanted: dict[str, Any] = {
        "currency": currency, "zone": zone, "issuer": issuer, "review": review, "reopening": str(reopening),
        "holidays": sorted(holidays), "working_days": sorted(working_days),
        "legal_entity": legal_entity, "address": address, "tax_id": tax_id, "contact": contact,
        "cost_center_required": cost_center_required, "gather_consumers_above": gather_consumers_above,
    }  # fmt: skip
    known = BillingSetup.objects.first()
    before = {name: getattr(known, name) for name in wanted} if known else {}
    if before == wanted:
        return False
    # one upsert: two first set-ups at once leave one row
    BillingSetup.objects.bulk_create(
        [BillingSetup(**wanted)], update_conflicts=True, unique_fields=["singleton"], update_fields=[*wanted]
    )
    detail = {"before": _detail(before), "after": _detail(wanted)}
    audit_record(actor=actor, action="billing_setup_put", subject="billing", detail=detail)
    return True


def _detail(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the set-up for the audit log: days as text, without empty and default values."""
    return {
        name: [day.isoformat() for day in value] if isinstance(value, list) else value
        for name, value in facts.items()
        if value and (name, value) != ("gather_consumers_above", GATHER_CONSUMERS_ABOVE)
    }


def team_put(
    *, code: str, name: str, cost_center: str, parent: Team | None, is_group: bool, actor: str, legal_entity: str = "",
    recipient: str = "", dated_cost_centers: Sequence[dict[str, str | None]] = (), department: str = "",
    dated_organisation: Mapping[str, Sequence[dict[str, str | None]]] | None = None,
) -> tuple[Team, bool]:  # fmt: skip
    """Store a team; return it, and True if anything changed.

    dated_cost_centers: `value` and `valid_from` of each, if it has more than the current `cost_center`.
    dated_organisation: lists of the same form for `department`, `legal_entity` and `parent` (codes), by name.
    """
    wanted: dict[str, Any] = {
        "name": name, "cost_center": cost_center, "parent": parent, "is_group": is_group, "legal_entity": legal_entity,
        "recipient": recipient, "dated_cost_centers": list(dated_cost_centers), "department": department,
        "dated_organisation": {name: list(listed) for name, listed in (dated_organisation or {}).items()},
    }  # fmt: skip
    known = Team.objects.filter(code=code).first()
    if known and all(getattr(known, field) == value for field, value in wanted.items()):
        return known, False
    (team,) = Team.objects.bulk_create(
        [Team(code=code, **wanted)], update_conflicts=True, unique_fields=["code"], update_fields=[*wanted]
    )
    detail = {**wanted, "parent": parent.code if parent else None}
    for name in ("legal_entity", "recipient", "dated_cost_centers", "department", "dated_organisation"):
        if not detail[name]:
            del detail[name]
    audit_record(actor=actor, action="team_put", subject=code, detail=detail)
    return team, True


def cost_centers_refresh(*, now: datetime) -> int:
    """Store the current values of dated cost centres and organisation, which pages show; return the number of changes.

    Documents use the dates alone.
    """
    changed = 0
    with transaction.atomic():
        for team in Team.objects.select_for_update().exclude(dated_organisation={}).order_by("pk"):
            for fact in sorted(team.dated_organisation):
                before, after = team.parent.code if team.parent else "", organisation_of(team, fact).at(now)
                before = before if fact == "parent" else getattr(team, fact)
                if before == after:
                    continue
                changed += 1
                setattr(team, fact, Team.objects.filter(code=after).first() if fact == "parent" else after)
                team.save(update_fields=[fact])
                detail = {"fact": fact, "before": before, "after": after}
                audit_record(actor="system", action="team_put", subject=team.code, detail=detail)
        for team in Team.objects.select_for_update().exclude(dated_cost_centers=[]).order_by("pk"):
            center = CostCenters.of(team).at(now)
            if team.cost_center != center:
                detail = {"before": team.cost_center, "after": center}
                team.cost_center, changed = center, changed + 1
                team.save(update_fields=["cost_center"])
                audit_record(actor="system", action="team_put", subject=team.code, detail=detail)
    return changed


def namespace_ownership_put(
    *,
    cluster: str,
    namespace: str,
    team: Team,
    platform: bool,
    valid_from: datetime | None,
    valid_until: datetime | None,
    actor: str,
) -> bool:
    """Store the owner of matching namespaces from `valid_from`; the previous one ends there. Returns True if it changed."""
    return _ownership_put(
        NamespaceOwnership,
        {"cluster": cluster, "namespace": namespace},
        {"team": team, "platform": platform},
        (valid_from, valid_until),
        actor,
    )


def consumer_ownership_put(
    *,
    source: str,
    consumer: str,
    team: Team,
    valid_from: datetime | None,
    valid_until: datetime | None,
    actor: str,
) -> bool:
    """Store the owner of a consumer's tokens from `valid_from`; the previous one ends there. Returns True if it changed."""
    return _ownership_put(
        ConsumerOwnership,
        {"source": source, "consumer": consumer},
        {"team": team},
        (valid_from, valid_until),
        actor,
    )


def _ownership_put(
    model: type[NamespaceOwnership] | type[ConsumerOwnership],
    key: dict[str, str],
    owner: dict[str, Any],
    when: tuple[datetime | None, datetime | None],
    actor: str,
) -> bool:
    """Store a dated owner: a new row starts at its instant and ends the row that was open before it."""
    valid_from, valid_until = when
    subject = "/".join(key.values())
    known: list[Any] = list(model.objects.filter(**key))
    same_start = next((row for row in known if row.valid_from == valid_from), None)
    same_owner = same_start and all(getattr(same_start, name) == value for name, value in owner.items())
    if same_start and same_owner and valid_until in (None, same_start.valid_until):
        return False
    try:
        with transaction.atomic():
            if same_start:
                model.objects.filter(pk=same_start.pk).update(**owner, valid_until=valid_until or same_start.valid_until)
            else:
                _insert(model, known, {**key, **owner}, valid_from, valid_until)
    except IntegrityError as error:
        raise SetupError(Message(
            "ownership of %(name)s: another owner is already set for part of that time", name=subject
        )) from error
    audit_record(
        actor=actor,
        action=f"{model._meta.model_name}_put",
        subject=subject,
        detail={"team": owner["team"].code, "valid_from": valid_from and valid_from.isoformat()},
    )
    return True


def _insert(
    model: type[NamespaceOwnership] | type[ConsumerOwnership],
    known: Sequence[Any],
    facts: dict[str, Any],
    valid_from: datetime | None,
    valid_until: datetime | None,
) -> None:
    """Insert a row beside the known ones of its key, none of which has its start."""
    starts = [row.valid_from for row in known if row.valid_from and (valid_from is None or row.valid_from > valid_from)]
    if valid_from is not None:
        # only an end that is another row's start moves; a declared end stays, and an overlap with it is refused
        for row in known:
            if (row.valid_from is None or row.valid_from < valid_from) and row.valid_until in (None, *starts):
                model.objects.filter(pk=row.pk, valid_until=row.valid_until).update(valid_until=valid_from)
    if valid_until is None:
        valid_until = min(starts, default=None)
    model.objects.create(**facts, valid_from=valid_from, valid_until=valid_until)
