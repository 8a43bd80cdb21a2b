"""Reads of the set-up, teams and ownership."""

from billing.tenancy.models import BillingSetup, ConsumerOwnership, NamespaceOwnership
from billing.tenancy.ownership import Owner, OwnershipBook, OwnershipRow
from pricing.business_days import BusinessCalendar
from pricing.money import amounts_in


class NoSetupError(LookupError):
    """Error of an installation without currency and zone, which cannot bill."""


def billing_setup() -> BillingSetup:
    """Return the set-up; amounts have the decimals of its currency from then on.  Raises NoSetupError."""
    setup = BillingSetup.objects.first()
    if setup is None:
        raise NoSetupError("no billing set-up yet: run `manage.py apply FILE` with a `billing:` section")
    amounts_in(setup.currency)
    return setup


def company_calendar(setup: BillingSetup | None = None) -> BusinessCalendar:
    """Return the business days of the company.  Raises NoSetupError."""
    found = setup or billing_setup()
    return BusinessCalendar(frozenset(found.holidays), frozenset(found.working_days))


def namespace_book() -> OwnershipBook:
    return OwnershipBook(
        OwnershipRow(cluster, namespace, Owner(team, platform), valid_from, valid_until)
        for cluster, namespace, team, platform, valid_from, valid_until in NamespaceOwnership.objects.values_list(
            "cluster", "namespace", "team__code", "platform", "valid_from", "valid_until"
        )
    )


def consumer_book() -> OwnershipBook:
    """Return the dated owners of consumers."""
    return OwnershipBook(
        OwnershipRow(source, consumer, Owner(team), valid_from, valid_until)
        for source, consumer, team, valid_from, valid_until in ConsumerOwnership.objects.values_list(
            "source", "consumer", "team__code", "valid_from", "valid_until"
        )
    )
