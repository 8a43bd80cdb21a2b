"""Reports of meter readings of the building."""

from datetime import datetime
from decimal import Decimal, InvalidOperation

from django.db import transaction

from billing.closing.models import MeterReading
from billing.invoices.services.periods import period_open
from billing.tenancy.audit import audit_record
from metering.messages import Message, UserError
from pricing.fields import ungrouped
from pricing.money import round_to
from pricing.number_text import ENERGY_PLACES

MOST = Decimal("1e12")


class ReadingError(UserError, ValueError):
    """Error: an impossible meter reading."""

    code = "meter_reading"


def meter_reading_put(
    *, month: str, cluster: str, metered: str, shared: str, source: str, actor: str, now: datetime
) -> MeterReading:
    """Store the kWh that a cluster took in a month at the building's meter, and how many of them are shared by plan.

    The last report counts; for a closed month it only informs.  Raises ReadingError.
    """
    if not cluster.strip() or len(cluster) > 512:
        raise ReadingError(Message("cluster: name the cluster as its agent does"))
    if not source.strip() or len(source) > 500:
        raise ReadingError(Message("source: say which meter was read, in at most 500 characters"))
    kwh, part = _kwh("metered_kwh", metered), _kwh("shared_kwh", shared or "0")
    if not kwh or part > kwh:
        raise ReadingError(Message(
            "metered_kwh %(kwh)s: must be above 0, and the shared %(shared)s a part of it", kwh=kwh, shared=part
        ))
    with transaction.atomic():
        reading = MeterReading.objects.create(
            period=period_open(month=month), cluster=cluster.strip(), metered_kwh=kwh, shared_kwh=part,
            source=source.strip(), told_by=actor, told_at=now,
        )  # fmt: skip
        detail = {"metered_kwh": str(kwh), "shared_kwh": str(part), "source": reading.source}
        audit_record(actor=actor, action="meter_reading_put", subject=f"{month} {reading.cluster}", detail=detail)
    return reading


def _kwh(name: str, text: str) -> Decimal:
    try:
        value = Decimal(ungrouped(text.strip()))
    except InvalidOperation as error:
        raise ReadingError(Message("%(name)s %(text)s is not a decimal", name=name, text=repr(text[:40]))) from error
    if not value.is_finite() or not 0 <= value <= MOST or round_to(value, ENERGY_PLACES) != value:
        raise ReadingError(Message(
            "%(name)s %(text)s: must be 0 or more, with at most %(places)s decimals",
            name=name, text=repr(text[:40]), places=ENERGY_PLACES,
        ))
    return value
