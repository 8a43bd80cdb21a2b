"""Commitments of teams, from an instant on. A stored commitment is never edited; it may end earlier.

One with an end runs to it, and the hours of several add up. One without an end runs until another without an end follows.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

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
    """Terms of `gpu_hours` of an accelerator a month at `price` per GPU-hour in [valid_from, valid_until)."""

    name: str
    team: Team
    accelerator: str
    gpu_hours: Decimal
    price: Decimal
    valid_from: datetime
    valid_until: datetime | None = None


def commitment_put(*, terms: CommitmentTerms, actor: str) -> bool:
    """Store a commitment; one without an end ends the previous one without an end of that team and accelerator.

    An earlier end in the terms of a stored one ends it. Returns False if nothing changed.  Raises RateError if the stored
    commitment of that name differs or ends before that, or if neither it nor a later one of the team and accelerator ends.
    """
    if terms.valid_until is not None and terms.valid_until <= terms.valid_from:
        raise RateError(Message("commitment %(name)s: valid_until must be after valid_from", name=terms.name))
    known = Commitment.objects.filter(name=terms.name).select_related("team").first()
    if known is not None and stored_alike(known, {name: getattr(terms, name) for name in FIELDS}, lambda differing: Message(
        "commitment %(name)s is stored and differs in %(differing)s: give the new one a new name",
        name=terms.name, differing=differing,
    )):
        return _ends_earlier(known, terms, actor)
    with alone_in_time(Message(
        "commitment %(name)s overlaps a later one of %(team)s on %(accelerator)s: give it a valid_until",
        name=terms.name, team=terms.team.code, accelerator=terms.accelerator,
    )):
        if terms.valid_until is None:
            # commitments with an end may overlap; those without one succeed each other
            endless = Commitment.objects.filter(team=terms.team, accelerator=terms.accelerator, valid_until=None)
            take_over(endless, terms.valid_from)
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


def _ends_earlier(known: Commitment, terms: CommitmentTerms, actor: str) -> bool:
    """End a stored commitment if its terms have an earlier end; without one it may have been ended by its successor."""
    if terms.valid_until is None or known.valid_until == terms.valid_until:
        return False
    if known.valid_until is not None and known.valid_until < terms.valid_until:
        raise RateError(Message(
            "commitment %(name)s ends %(valid_until)s and never later: declare that end, and give what follows a new name",
            name=known.name, valid_until=known.valid_until.isoformat(),
        ))
    commitment_end(commitment=known, at=terms.valid_until, actor=actor)
    return True


def commitment_end(*, commitment: Commitment, at: datetime, actor: str) -> None:
    """End a stored commitment earlier.  Raises RateError if it is not in force at that instant."""
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
