"""What teams commit to, from an instant on. A stored commitment is never edited; another one follows and ends it."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction

from billing.rates.models import Commitment
from billing.rates.services.sheets import RateError
from billing.rates.services.succession import alone_in_time, stored_alike, take_over
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from metering.messages import Message

FIELDS = ("team", "accelerator", "gpu_hours", "price", "valid_from")


@dataclass(frozen=True, slots=True)
class CommitmentTerms:
    """`gpu_hours` of an accelerator a month at `price` per GPU-hour in [valid_from, valid_until)."""

    name: str
    team: Team
    accelerator: str
    gpu_hours: Decimal
    price: Decimal
    valid_from: datetime
    valid_until: datetime | None = None


def commitment_put(*, terms: CommitmentTerms, actor: str) -> bool:
    """Store a commitment; the one before it of that team and accelerator ends where it begins. False where it is stored.

    Raises RateError where a commitment of that name differs, or others of the team and accelerator overlap it.
    """
    if terms.valid_until is not None and terms.valid_until <= terms.valid_from:
        raise RateError(Message("commitment %(name)s: valid_until must be after valid_from", name=terms.name))
    known = Commitment.objects.filter(name=terms.name).select_related("team").first()
    if stored_alike(known, _comparable(terms, known), lambda differing: Message(
        "commitment %(name)s is stored and differs in %(differing)s: give the new one a new name",
        name=terms.name, differing=differing,
    )):
        return False
    with alone_in_time(Message(
        "commitment %(name)s overlaps a later one of %(team)s on %(accelerator)s: give it a valid_until",
        name=terms.name, team=terms.team.code, accelerator=terms.accelerator,
    )):
        take_over(Commitment.objects.filter(team=terms.team, accelerator=terms.accelerator), terms.valid_from)
        Commitment.objects.create(
            **{name: getattr(terms, name) for name in (*FIELDS, "name", "valid_until")}, created_by=actor
        )
        audit_record(
            actor=actor, action="commitment_put", subject=terms.name,
            detail={"team": terms.team.code, "accelerator": terms.accelerator, "gpu_hours": str(terms.gpu_hours),
                    "price": str(terms.price), "valid_from": terms.valid_from.isoformat(),
                    "valid_until": terms.valid_until.isoformat() if terms.valid_until else None},
        )  # fmt: skip
    return True


def _comparable(terms: CommitmentTerms, known: Commitment | None) -> dict[str, Any]:
    """What a stored commitment must be; its end may have come earlier since, where another one follows it."""
    wanted = {name: getattr(terms, name) for name in FIELDS}
    if known is not None and terms.valid_until is not None and (known.valid_until or terms.valid_until) > terms.valid_until:
        wanted["valid_until"] = terms.valid_until
    return wanted


def commitment_end(*, commitment: Commitment, at: datetime, actor: str) -> None:
    """Let a stored commitment end earlier than it would.  Raises RateError where it does not run then."""
    with transaction.atomic():
        row = Commitment.objects.select_for_update().get(pk=commitment.pk)
        if at < row.valid_from or (row.valid_until is not None and at >= row.valid_until):
            raise RateError(Message(
                "commitment %(name)s: %(at)s does not lie within its time", name=row.name, at=at.isoformat()
            ))
        before, row.valid_until = row.valid_until, at
        row.save(update_fields=["valid_until"])
        audit_record(
            actor=actor, action="commitment_end", subject=row.name,
            detail={"valid_until": at.isoformat(), "before": before.isoformat() if before else None},
        )  # fmt: skip
