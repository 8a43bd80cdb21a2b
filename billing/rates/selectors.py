"""Reads of prices and policies, as the plain values that rating uses."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, TypeVar

from django.db.models import F, QuerySet

from billing.rates.models import (
    AllocationPolicy,
    CarbonFactors,
    Commitment,
    CommitmentDraft,
    CostSheet,
    InterruptionPolicy,
    PriceDraft,
    TokenCostSheet,
)
from billing.rates.models import EfficiencyPolicy as PolicyRow
from billing.rates.models import GpuPrice as PriceRow
from billing.rates.models import PriceVersion as VersionRow
from billing.rates.price_diff import PriceChange, price_changes, prices_of
from billing.rates.price_list import PriceList, SheetPrice, Sources, TokenSheetPrice, parse_price_list, price_text
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup, company_calendar
from pricing.allocation import AllocationPolicy as Allocation
from pricing.allocation import IdleRule, Method, SharedRule, Split
from pricing.business_days import business_days_between
from pricing.commitments import Commitment as CommittedHours
from pricing.commitments import CommitmentBook
from pricing.efficiency import BANDS, EfficiencyPolicy, Form, Metric, WorkloadClass
from pricing.interruptions import InterruptionRule
from pricing.rate_card import GpuPrice, PriceVersion, RateCard
from pricing.rating import Carbon
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from pricing.token_contexts import figures_by_class

LAST: Final = datetime.max.replace(tzinfo=UTC)


def rate_card() -> RateCard:
    """Return every published price, dated."""
    # a version replaced at its own start was never in force
    in_force = VersionRow.objects.filter(sealed=True).exclude(valid_until=F("valid_from"))
    rows = in_force.prefetch_related("gpu", "tokens")
    return RateCard(_version(row) for row in rows)


def slices_priced_on(accelerator: str) -> bool:
    """Return True if a price list has slice prices on an accelerator: a count of its units may then be of slices."""
    return bool(accelerator) and PriceRow.objects.filter(accelerator=accelerator).exclude(resource="").exists()


def _version(row: VersionRow) -> PriceVersion:
    return PriceVersion(
        name=row.name,
        valid_from=row.valid_from,
        valid_until=row.valid_until,
        gpu=tuple(
            GpuPrice(price.price, price.accelerator, price.resource, price.unit, price.facility_kw)
            for price in sorted(row.gpu.all(), key=attrgetter("pk"))
        ),
        tokens={(price.model, price.token_class): price.price for price in row.tokens.all()},
    )


def stored_sources() -> Sources:
    """Return look-ups of stored cost sheets by name; GPU prices are computed again from their inputs."""
    return Sources(gpu=_sheet_price, tokens=_token_sheet_price)


def _sheet_price(name: str) -> SheetPrice | None:
    sheet = CostSheet.objects.filter(name=name).first()
    if sheet is None:
        return None
    cost = cost_of_gpu_hour(parse_cost_sheet(sheet.inputs))
    lost = cost.cost > 0 and not cost.list_price
    return SheetPrice(cost.list_price, cost.list_currency, cost.facility_kw.quantize(Decimal("1e-6")), lost)


def reserved_price(name: str, currency: str) -> Decimal | None:
    """Return the reserved price of a GPU-hour from a stored cost sheet; None without such a sheet, tier or currency."""
    sheet = CostSheet.objects.filter(name=name).first()
    cost = cost_of_gpu_hour(parse_cost_sheet(sheet.inputs)) if sheet else None
    return cost.list_prices.get("reserved") if cost and cost.list_currency == currency else None


def _token_sheet_price(name: str) -> TokenSheetPrice | None:
    sheet = TokenCostSheet.objects.filter(name=name).first()
    if sheet is None:
        return None
    prices, costs = (figures_by_class(sheet.result, figure) for figure in ("price_per_1m", "cost_per_1m"))
    lost = tuple(name for name, price in prices.items() if costs[name] > 0 and not price)
    return TokenSheetPrice(sheet.model, sheet.inputs["currency"], prices, lost)


def price_draft_named(name: str) -> PriceDraft | None:
    """Return the draft of that name that was not withdrawn, or None."""
    return PriceDraft.objects.exclude(state=PriceDraft.State.WITHDRAWN).filter(subject=name).first()


def price_list_named(name: str) -> PriceDraft | VersionRow | None:
    """Return the published version of that name, else the draft, else None."""
    return VersionRow.objects.filter(name=name, sealed=True).first() or price_draft_named(name)


def plain_version(listed: PriceDraft | VersionRow) -> PriceVersion:
    """Return a draft or published version as rating uses it.  Raises PriceListError for a draft whose sheet is gone."""
    if isinstance(listed, VersionRow):
        return _version(listed)
    return hypothetical_version(listed.name, draft_prices(listed), listed.valid_from)


def price_version_before(listed: PriceDraft | VersionRow) -> VersionRow | None:
    """Return the published version that a list follows or replaces; among those of one start, the newest."""
    version = listed if isinstance(listed, VersionRow) else getattr(listed, "version", None)
    rows = VersionRow.objects.filter(sealed=True, valid_from__lte=listed.valid_from)
    if version is not None:
        # of lists with the same start only those published earlier
        rows = rows.exclude(valid_from=version.valid_from, pk__gte=version.pk)
    return rows.order_by("-valid_from", "-pk").first()


def version_in_force(instant: datetime) -> VersionRow | None:
    """Return the published version in force at an instant."""
    rows = VersionRow.objects.filter(sealed=True, valid_from__lte=instant).exclude(valid_until__lte=instant)
    return rows.prefetch_related("gpu", "tokens").first()


def base_of(draft: PriceDraft) -> VersionRow | None:
    """Return the published version from which a draft was begun, None if there was none."""
    rows = VersionRow.objects.filter(sealed=True)
    if "base" in draft.payload:
        return rows.filter(name=draft.payload["base"]).first()
    # drafts without a stored base: the list that they followed when they were created
    known = rows.filter(published_at__lte=draft.created_at, valid_from__lte=draft.valid_from)
    return known.order_by("-valid_from", "-pk").first()


@dataclass(frozen=True)
class TakenBack:
    """Prices that a draft would revert: changed in the list that it follows since the draft's base.

    `prices`: changes from `current` back to the draft, whose values are those of `base`.
    """

    base: VersionRow | None
    current: VersionRow
    prices: list[PriceChange]

    @property
    def names(self) -> str:
        """Return the accelerators, resources and models, each once."""
        return ", ".join(dict.fromkeys(one.key.sku for one in self.prices))


def prices_taken_back(draft: PriceDraft) -> TakenBack | None:
    """Return the prices that an unpublished draft would revert, None without any.  Raises PriceListError."""
    base, current = base_of(draft), price_version_before(draft)
    if current is None or current == base or draft.version_id is not None:
        return None
    listed = prices_of(plain_version(draft))
    known = prices_of(plain_version(base)) if base is not None else {}
    changes = price_changes(plain_version(current), plain_version(draft))
    # reverted: the draft still has the base's value, the current list another one
    undone = [one for one in changes if one.change != "same" and known.get(one.key) == listed.get(one.key)]
    return TakenBack(base, current, undone) if undone else None


def draft_prices(draft: PriceDraft) -> PriceList:
    """Return the prices of a draft, those of cost sheets from the current sheets.  Raises PriceListError."""
    return parse_price_list(draft.content, currency=draft.currency, sources=stored_sources())


def draft_fingerprint(draft: PriceDraft, prices: PriceList) -> str:
    """Return SHA-256 over everything that an approver agrees to: the list, its start, and the inputs behind its prices."""
    named = {item.cost_sheet for item in prices.gpu if item.cost_sheet}
    gpu = {sheet.name: sheet.inputs for sheet in CostSheet.objects.filter(name__in=named)}
    tokens = TokenCostSheet.objects.filter(name__in=set(prices.token_sheets.values()))
    facts = {
        "name": draft.name, "currency": draft.currency, "valid_from": draft.valid_from.isoformat(),
        "gpu": [[item.accelerator, item.resource, item.unit, price_text(item.price)] for item in prices.gpu],
        "tokens": [[model, name, price_text(price)] for (model, name), price in prices.tokens.items()],
        "cost_sheets": gpu, "token_cost_sheets": {sheet.name: [sheet.inputs, sheet.result] for sheet in tokens},
    }  # fmt: skip
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def hypothetical_version(name: str, prices: PriceList, valid_from: datetime | None = None) -> PriceVersion:
    """Return the prices of a list as rating uses them, without publishing them."""
    return PriceVersion(
        name=name, valid_from=valid_from or datetime.min.replace(tzinfo=UTC), valid_until=None,
        gpu=tuple(
            GpuPrice(item.price, item.accelerator, item.resource, item.unit, item.facility_kw) for item in prices.gpu
        ),
        tokens=dict(prices.tokens),
    )  # fmt: skip


def notice_of(draft: PriceDraft, now: datetime) -> int:
    """Return the company's business days between `now` and the start of a draft, in the billing zone."""
    setup = billing_setup()
    return business_days_between(now, draft.valid_from, setup.zone, company_calendar(setup))


def commitment_book() -> CommitmentBook:
    rows = Commitment.objects.select_related("team")
    return CommitmentBook(
        CommittedHours(
            row.name, row.team.code, row.accelerator, row.gpu_hours, row.price, row.valid_from, row.valid_until
        )
        for row in rows
    )


def commitment_drafts(teams: QuerySet[Team]) -> list[CommitmentDraft]:
    """Return proposed terms of some teams, with team, history and overlapping commitments, the newest first."""
    by_code = {team.code: team for team in teams}
    drafts = list(CommitmentDraft.objects.filter(payload__team__in=list(by_code)).prefetch_related("steps"))
    stored, card = commitment_book().commitments, rate_card()
    for draft in drafts:
        draft.team = by_code[draft.team_code]
        if draft.waits and not draft.ends:
            met = [one for one in stored if (one.team, one.accelerator) == (draft.team_code, draft.accelerator)
                   and one.overlaps(draft.valid_from, draft.valid_until)]  # fmt: skip
            draft.replaces = [one.name for one in met if one.valid_until is None and draft.valid_until is None]
            draft.beside = [one.name for one in met if one.name not in draft.replaces]
            draft.unlisted = card.list_price(draft.accelerator, draft.valid_from) is None
    return drafts


def commitment_facts() -> dict[str, tuple[datetime, datetime | None]]:
    """Return by name when each commitment was stored, and when its immediate successor was."""
    rows = list(Commitment.objects.all())
    starts = {(row.team_id, row.accelerator, row.valid_from): row.created_at for row in rows}
    return {
        row.name: (
            row.created_at,
            starts.get((row.team_id, row.accelerator, row.valid_until)) if row.valid_until is not None else None,
        )
        for row in rows
    }


def allocation_policy_at(instant: datetime) -> Allocation | None:
    """Return the policy on idle and shared cost in force, or None: then neither is billed."""
    rows = AllocationPolicy.objects.filter(valid_from__lte=instant)
    row = rows.exclude(valid_until__lte=instant).first()
    if row is None:
        return None
    return Allocation(
        row.name, row.valid_from, row.valid_until,
        idle=tuple(
            IdleRule(rule["cluster"], rule["accelerator"], Decimal(rule["price"]), _split(rule))
            for rule in row.rules["idle"]
        ),
        shared=tuple(
            SharedRule(rule["name"], Decimal(rule["amount"]), _split(rule), measured="storage" in rule or "requests" in rule)
            for rule in row.rules["shared"]
        ),
    )  # fmt: skip


def _split(rule: Mapping[str, Any]) -> Split:
    return Split(Method(rule["method"]), {team: Decimal(share) for team, share in rule["shares"].items()})


Dated = TypeVar("Dated", CarbonFactors, PolicyRow)


def _in_force(rows: Iterable[Dated], instant: datetime) -> Dated | None:
    """Return the row in whose [valid_from, valid_until) the instant lies; rows do not overlap."""
    return next((row for row in rows if row.valid_from <= instant < (row.valid_until or LAST)), None)


class CarbonBook:
    """Emission factors per kWh of each cluster, dated."""

    def __init__(self) -> None:
        self._rows: dict[str, list[CarbonFactors]] = {}
        for row in CarbonFactors.objects.all():
            self._rows.setdefault(row.cluster, []).append(row)

    def at(self, cluster: str, instant: datetime) -> Carbon | None:
        """Return kilograms per kWh in force, or None if not set."""
        row = _in_force(self._rows.get(cluster, ()), instant)
        return Carbon(Fraction(row.location_kg_per_kwh), Fraction(row.market_kg_per_kwh)) if row else None

    def changes(self) -> set[datetime]:
        """Return every instant at which factors begin or end."""
        return {at for rows in self._rows.values() for row in rows for at in (row.valid_from, row.valid_until) if at}


class PolicyBook:
    """Efficiency policies, dated; their ranges do not overlap."""

    def __init__(self) -> None:
        self._rows = list(PolicyRow.objects.all())

    def at(self, instant: datetime) -> EfficiencyPolicy | None:
        """Return the policy in force, or None: then nothing is adjusted."""
        row = _in_force(self._rows, instant)
        return _policy(row) if row else None

    def changes(self) -> set[datetime]:
        """Return every instant at which a policy begins or ends."""
        return {at for row in self._rows for at in (row.valid_from, row.valid_until) if at is not None}


def interruption_rules() -> list[InterruptionRule]:
    """Return every rule by which the platform carries time; after any other end the team pays."""
    return [
        InterruptionRule(
            row.name, reason, row.valid_from, row.valid_until, Decimal(rule["hours"]) if rule["payer"] == "cap" else None
        )
        for row in InterruptionPolicy.objects.all()
        for reason, rule in sorted(row.rules.items())
        if rule["payer"] != "team"
    ]


def _policy(row: PolicyRow) -> EfficiencyPolicy:
    facts = {field.name: getattr(row, field.name) for field in fields(EfficiencyPolicy)}
    return EfficiencyPolicy(**{
        **facts, "form": Form(row.form), "penalise_on": Metric(row.penalise_on), "unrewarded": tuple(row.unrewarded),
        "classes": tuple(workload_class(stored) for stored in row.classes),
    })  # fmt: skip


def workload_class(stored: Mapping[str, Any]) -> WorkloadClass:
    """Return a workload class from the JSON that a policy stores."""
    until, metric = stored.get("exempt_until"), stored.get("penalise_on")
    bands: dict[str, Any] = {name: Decimal(stored[name]) for name in BANDS if stored.get(name) is not None}
    kinds, queues, accelerators = (tuple(stored.get(name, ())) for name in ("kinds", "queues", "accelerators"))
    return WorkloadClass(
        stored["name"], kinds, queues, accelerators, datetime.fromisoformat(until) if until else None,
        penalise_on=Metric(metric) if metric else None, **bands,
    )  # fmt: skip
