"""Teams of another legal entity than the issuer of invoices.

Within one legal entity a recharge is a transfer of cost. Between two it is a supply, with tax and an official invoice, which
is the ERP's to write: such a team is shown what it used, and has no place among internal invoices.
"""

from collections import defaultdict
from decimal import Decimal

from billing.closing.exceptions import ReportedException
from billing.invoices.showback import billing_modes
from billing.rating.assessment import RatingResult
from billing.tenancy.models import BillingSetup, Team
from metering.messages import Message


def teams_apart() -> dict[str, str]:
    """The legal entity of each team whose own is said and is not that of the issuer; none where the issuer's is not said."""
    setup = BillingSetup.objects.first()
    if setup is None or not setup.legal_entity:
        return {}
    told = Team.objects.exclude(legal_entity="").values_list("code", "legal_entity").order_by("code")
    return {code: entity for code, entity in told if _compared(entity) != _compared(setup.legal_entity)}


def _compared(name: str) -> str:
    """Neither spaces nor letter case make another company."""
    return " ".join(name.split()).casefold()


def charged_apart(assessment: RatingResult) -> list[ReportedException]:
    """What an internal invoice would charge a team of another legal entity; a team that is only shown it is none."""
    entities = teams_apart()
    if not entities:
        return []
    modes, amounts = billing_modes(), defaultdict[str, Decimal](Decimal)
    for charge in assessment.charges:
        key = charge.key
        if key.team in entities and not key.platform and not modes.shadow(key.team, key.charge_period):
            amounts[key.team] += charge.amount
    return [
        ReportedException(
            "other_legal_entity", team, Decimal(1), "teams", True,
            Message(
                "belongs to %(entity)s: show it what it used (mode shadow) and have the ERP invoice it",
                entity=entities[team],
            ), amount=amount,
        )
        for team, amount in sorted(amounts.items())
    ]  # fmt: skip
