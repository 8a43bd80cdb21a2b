"""What a kWh of a cluster emits, from an instant on. A stored factor is never edited; another one follows it."""

from datetime import datetime
from decimal import Decimal

from django.db import IntegrityError, transaction

from billing.rates.models import CarbonFactors
from billing.rates.services.sheets import RateError
from billing.rates.services.succession import take_over
from billing.tenancy.audit import audit_record
from metering.messages import Message


def carbon_factors_put(
    *, cluster: str, valid_from: datetime, location: Decimal, market: Decimal, source: str, actor: str
) -> bool:
    """Store the factors [kg/kWh] of a cluster from an instant on; False where they are stored already.

    Raises RateError where others are stored for that instant.
    """
    wanted = {"location_kg_per_kwh": location, "market_kg_per_kwh": market, "source": source}
    of_cluster = CarbonFactors.objects.filter(cluster=cluster)
    known = of_cluster.filter(valid_from=valid_from).first()
    if known:
        differing = [name for name, value in wanted.items() if getattr(known, name) != value]
        if differing:
            raise RateError(Message(
                "carbon factors of %(cluster)s from %(valid_from)s are stored and differ in %(differing)s",
                cluster=cluster, valid_from=valid_from.isoformat(), differing=differing[0],
            ))
        return False
    try:
        with transaction.atomic():
            until = take_over(of_cluster, valid_from)
            CarbonFactors.objects.create(cluster=cluster, valid_from=valid_from, valid_until=until, **wanted)
            audit_record(
                actor=actor, action="carbon_factors_put", subject=cluster,
                detail={**{name: str(value) for name, value in wanted.items()}, "valid_from": valid_from.isoformat()},
            )  # fmt: skip
    except IntegrityError as error:
        raise RateError(Message("carbon factors of %(cluster)s overlap others", cluster=cluster)) from error
    return True
