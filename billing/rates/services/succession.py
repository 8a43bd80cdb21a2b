"""Dated facts: one is in force at a time, the next one ends it, and stored facts are never edited.

Carbon factors and the policies (efficiency, payer of interrupted allocations, billing of idle and shared cost) are stored
here; price versions and commitments have their own modules.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from billing.rates.models import AllocationPolicy, CarbonFactors, DatedPolicy, EfficiencyPolicy, InterruptionPolicy
from billing.rates.services.sheets import RateError
from billing.tenancy.audit import audit_record
from metering.messages import Message


def take_over(rows: QuerySet[Any], valid_from: datetime) -> datetime | None:
    """End those of `rows` in force at `valid_from`; return the start of the next later one, which ends the new fact."""
    in_force = Q(valid_until=None) | Q(valid_until__gt=valid_from)
    rows.filter(in_force, valid_from__lt=valid_from).update(valid_until=valid_from)
    later = rows.filter(valid_from__gt=valid_from).order_by("valid_from").first()
    return later.valid_from if later else None


def stored_alike(known: object, wanted: Mapping[str, Any], refusal: Callable[[str], Message]) -> bool:
    """Return True if an identical fact is stored; `known` is None if none is.

    Raises RateError with the `refusal` of the first field in which the stored one differs.
    """
    differing = [name for name, value in wanted.items() if getattr(known, name) != value] if known is not None else []
    if differing:
        raise RateError(refusal(differing[0]))
    return known is not None


@contextmanager
def alone_in_time(refusal: Message) -> Iterator[None]:
    """Run a transaction that stores a fact.  Raises RateError with `refusal` if others are in force at the same time."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        raise RateError(refusal) from error


def carbon_factors_put(
    *, cluster: str, valid_from: datetime, location: Decimal, market: Decimal, source: str, actor: str
) -> bool:
    """Store the emission factors [kg/kWh] of a cluster from an instant on; return False if stored already.

    Raises RateError if other factors are stored for that instant.
    """
    wanted = {"location_kg_per_kwh": location, "market_kg_per_kwh": market, "source": source}
    rows = CarbonFactors.objects.filter(cluster=cluster)
    if stored_alike(rows.filter(valid_from=valid_from).first(), wanted, lambda differing: Message(
        "carbon factors of %(cluster)s from %(valid_from)s are stored and differ in %(differing)s",
        cluster=cluster, valid_from=valid_from.isoformat(), differing=differing,
    )):
        return False
    with alone_in_time(Message("carbon factors of %(cluster)s overlap others", cluster=cluster)):
        until = take_over(rows, valid_from)
        CarbonFactors.objects.create(cluster=cluster, valid_from=valid_from, valid_until=until, **wanted)
        detail = {**{name: str(value) for name, value in wanted.items()}, "valid_from": valid_from.isoformat()}
        audit_record(actor=actor, action="carbon_factors_put", subject=cluster, detail=detail)
    return True


def efficiency_policy_publish(*, fields: dict[str, Any], actor: str) -> bool:
    """Publish bands of HFU and MFU; return False if published already.  Raises RateError."""
    detail = {name: value if isinstance(value, bool | int | list) else str(value) for name, value in fields.items()}
    return _policy_publish(EfficiencyPolicy, fields, detail, actor)


def rules_publish(
    model: type[InterruptionPolicy | AllocationPolicy], *, name: str, valid_from: datetime, rules: dict[str, Any],
    actor: str,
) -> bool:  # fmt: skip
    """Publish a policy of rules; return False if published already.  Raises RateError."""
    fields = {"name": name, "valid_from": valid_from, "rules": rules}
    return _policy_publish(model, fields, {"valid_from": valid_from.isoformat(), "rules": rules}, actor)


def _policy_publish(
    model: type[DatedPolicy], fields: Mapping[str, Any], detail: Mapping[str, Any], actor: str
) -> bool:
    name, kind, rows = fields["name"], str(model._meta.verbose_name), model._default_manager.all()
    if stored_alike(rows.filter(name=name).first(), fields, lambda differing: Message(
        "%(kind)s %(name)s is published and differs in %(differing)s: give it a new name",
        kind=kind, name=name, differing=differing,
    )):
        return False
    with alone_in_time(Message("%(kind)s %(name)s overlaps another one", kind=kind, name=name)):
        rows.create(**fields, valid_until=take_over(rows, fields["valid_from"]))
        audit_record(actor=actor, action=f"{kind.replace(' ', '_')}_publish", subject=name, detail=dict(detail))
    return True
