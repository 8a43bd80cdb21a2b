"""Exceptions of a month before its close, each with its amount and its solution.

A check is a function of a `Context`. Checks for missing or doubly reported usage are in `completeness`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from django.db.models import Q

from billing.closing.due_credits import uncredited_time
from billing.closing.energy import EnergyComparison, energy_compared
from billing.closing.engine_comparison import ModelComparison, compare
from billing.closing.exception_kinds import ExceptionKind, kind_of
from billing.closing.models import ExceptionWaiver
from billing.corrections.models import Dispute
from billing.invoices.models import BillingPeriod, Correction, Invoice, JournalExport
from billing.invoices.selectors import with_cost_center
from billing.rates.selectors import allocation_policy_at, rate_card
from billing.rating.assessment import RatingResult
from billing.rating.reference_data import as_counted
from billing.rating.selectors import closed_until
from billing.tenancy.cost_centers import CostCenters, DatedTexts, organisation_of
from billing.tenancy.models import BillingSetup, Team
from billing.tenancy.selectors import billing_setup, namespace_book
from billing.tenancy.showback import billing_modes
from billing.usage.reconciliation import engine_days
from billing.usage.scope import EpochFilter
from billing.usage.selectors import ScanSum, last_close_seq, late_epochs, late_windows, scan_sums, usage_months
from billing.usage.store.details import tiers_used
from metering.intervals import Interval
from metering.messages import Message
from metering.names import as_name, visible
from pricing.money import EXACT, amount_places, round_part
from pricing.rate_card import GPU_HOURS, UnpricedError
from pricing.rating import DIVISOR, Unpriced

ACKNOWLEDGED_WITHIN = timedelta(days=5)
"""Time that a ledger may take to confirm a journal before the report mentions it."""
NOTHING: Final = Message("")
OF_ONE_CAUSE: Final = frozenset({
    "metering_gap", "silent_cluster", "agent_problem", "unknown_resource", "scan_difference", "overlap", "sequence_gap",
    "silent_source",
})  # fmt: skip
"""Kinds whose subject begins with the cluster or source that causes them."""
NOT_COUNTED: Final = "(reported, not counted)"
NOT_METERED: Final = "(charged, not metered)"
"""Suffixes of subjects for which the bill has more than the other side; without them the bill has less."""
UPHELD_WITHIN: Final = timedelta(days=92)
"""Time before the end of a month in which upheld disputes of one reason count together."""


@dataclass(frozen=True, slots=True)
class ReportedException:
    """Exception in a period report; `blocks`: it blocks the close until it is solved or waived.

    `amount`: the money at risk in the currency of the installation, None if unknown.
    """

    kind: str
    subject: str
    quantity: Decimal
    unit: str
    blocks: bool
    action: Message = NOTHING
    waived_by: str = ""
    amount: Decimal | None = None
    waived_until: datetime | None = None
    waiver_reason: str = ""
    waiver_expired: bool = False

    @property
    def facts(self) -> ExceptionKind:
        """Return owner, page and solution of its kind."""
        return kind_of(self.kind)

    @property
    def cause(self) -> str:
        """Return the silent or incomplete cluster or source that several exceptions may share; empty if there is none."""
        return self.subject.partition("/")[0] if self.kind in OF_ONE_CAUSE else ""


@dataclass(frozen=True)
class Context:
    """Inputs of the checks of a period, at `now`; `rated`: the rating of its usage."""

    period: BillingPeriod
    now: datetime
    rated: RatingResult

    @cached_property
    def passed(self) -> Interval | None:
        """Return the part of the month that has passed; None before it begins."""
        until = min(self.period.end, self.now)
        return Interval(self.period.start, until) if until > self.period.start else None

    @property
    def blocks(self) -> bool:
        """Return True if an exception can still block a close: none was made yet."""
        return self.period.close_seq is None

    @cached_property
    def scans(self) -> list[ScanSum]:
        """Return sums of hourly scans and of watched allocations, by cluster."""
        return scan_sums(self.period.window)

    @cached_property
    def engines(self) -> list[ModelComparison]:
        """Compare tokens of gateways with the counters of inference servers, by model."""
        return compare(engine_days(self.period.window, self.period.zone))

    @cached_property
    def energy(self) -> list[EnergyComparison]:
        """Compare readings of meters with the energy of charges, by cluster."""
        return energy_compared(self.period, self.rated)


def number(value: Decimal) -> int | Decimal:
    """Return a quantity as an integer if it is one, else as an exact decimal."""
    return int(value) if value == value.to_integral_value() else value.normalize()


def shown(value: Decimal) -> str:
    """Format a quantity for people: thousands separated, at most three decimals."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def not_ended(context: Context) -> Iterator[ReportedException]:
    """Yield an exception while the month has not ended."""
    left = Decimal(int((context.period.end - context.now).total_seconds()))
    if context.now < context.period.end:
        advice = Message("close after the month has ended")
        yield ReportedException("period_not_ended", context.period.month, left, "seconds", True, advice)


def costs_not_measured(context: Context) -> Iterator[ReportedException]:
    """Yield shared costs of measured quantities without figures for this month."""
    policy = allocation_policy_at(context.period.start)
    advice = Message("enter what it was this month under `allocation_policies:`, in a policy that begins with the month")
    for rule in policy.unmeasured(context.period.start) if policy else ():
        yield ReportedException("shared_cost_unknown", rule.name, Decimal(1), "months", True, advice)


def idle_without_capacity(context: Context, pools: Iterable[Mapping[str, Any]]) -> Iterator[ReportedException]:
    """Yield pools whose idle time the policy bills but whose capacity was not reported: none of it is billed."""
    policy = allocation_policy_at(context.period.start)
    known = {(pool["cluster"], pool["accelerator"]) for pool in pools if pool["capacity"] is not None}
    advice = Message("no capacity was reported, so none of its idle time is billed: report it, or correct the policy")
    for rule in policy.idle if policy else ():
        if (rule.cluster, rule.accelerator) not in known:
            subject = f"{rule.cluster}/{rule.accelerator}"
            yield ReportedException("idle_capacity_unknown", subject, Decimal(1), "pools", True, advice)


def carried_in_closed_time(context: Context) -> Iterator[ReportedException]:
    """Yield time of closed months billed to a team before it was known to be waived, by namespace; not credited time.

    `amount`: the amount that the team was billed for it at list price.
    """
    closed, number = closed_until(), last_close_seq()
    if closed is None or context.period.start != closed:
        return
    card, owners = rate_card(), namespace_book()
    seconds: dict[str, Decimal] = defaultdict(Decimal)
    amounts: dict[str, Decimal | None] = {}
    for one in uncredited_time():
        owner, subject = owners.owner(one.cluster, one.namespace, one.time.start), one.subject
        if one.learned < number or owner is None or owner.platform:
            continue
        seconds[subject] = EXACT.add(seconds[subject], one.device_seconds)
        before = amounts.get(subject, Decimal(0))
        try:
            _, price = card.gpu_price(one.accelerator, one.resource, one.time.start)
        except UnpricedError:
            amounts[subject] = None
            continue
        worth = round_part(
            EXACT.multiply(one.device_us if price.unit == GPU_HOURS else one.unit_us, price.price), DIVISOR[price.unit],
            amount_places(),
        )  # fmt: skip
        amounts[subject] = None if before is None else before + worth
    advice = Message(
        "ended by what the platform carries, which was learned after the close: credit the team, or say why not"
    )
    for subject, quantity in sorted(seconds.items()):
        yield ReportedException(
            "carried_in_closed_time", subject, quantity, "gpu_seconds", False, advice, amount=amounts[subject]
        )


def without_owner(context: Context) -> Iterator[ReportedException]:
    """Yield usage without an owner, by namespace or consumer."""
    totals: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
    worth: dict[tuple[str, str, str], Decimal | None] = {}
    for item in context.rated.unowned:
        key = (item.kind, item.subject, item.unit)
        totals[key] = EXACT.add(totals[key], item.quantity)
        before = worth.get(key, Decimal(0))
        # one unpriced part makes the sum unknown: a partial amount would look complete
        worth[key] = None if before is None or item.amount is None else before + item.amount
    advice = {
        "unowned_namespace": Message("give it an owner under `ownership:`"),
        "unowned_consumer": Message("add it under `consumers:`"),
    }
    for (kind, subject, unit), quantity in sorted(totals.items()):
        action = _spelled(advice[kind], subject, visible(subject))
        yield ReportedException(kind, subject, quantity, unit, True, action, amount=worth[kind, subject, unit])


def _spelled(advice: Message, name: str, written: str) -> Message:
    """Add how to write a name that no file can hold as it is: it was stored before there was a rule for names."""
    if written == name:
        return advice
    return Message("%(advice)s, and write its name as %(name)s", advice=advice, name=written)


def without_price(context: Context) -> Iterator[ReportedException]:
    """Yield usage without a price in any list, by SKU; that of the platform blocks nothing."""
    advice = Message("publish a price version that covers it")
    yield from _unpriced_sums(context.rated.unpriced, advice, blocks=True)
    note = Message("the platform's own use has no price: its recovery is unknown")
    yield from _unpriced_sums(context.rated.platform_unpriced, note, blocks=False)


def _unpriced_sums(items: list[Unpriced], action: Message, *, blocks: bool) -> Iterator[ReportedException]:
    totals: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for item in items:
        quantity, unit = as_counted(item)
        totals[item.sku, unit] = EXACT.add(totals[item.sku, unit], quantity)
    for (sku, unit), quantity in sorted(totals.items()):
        name = sku.rpartition(" ")[0] if unit == "tokens" else sku
        yield ReportedException("unpriced", sku, quantity, unit, blocks, _spelled(action, name, as_name(name)))


def tiers_without_price(context: Context) -> Iterator[ReportedException]:
    """Yield tokens in a non-standard service tier, which no price list covers unless a rule does.

    Late usage that the close would bill counts with that of the month.
    """
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    next_close = last_close_seq() + 1
    late = [(Interval(one.start, one.end), late_epochs(next_close)) for one in late_windows(next_close)]
    for window, epochs in [(context.period.window, EpochFilter()), *late]:
        for used in tiers_used(window, epochs):
            found[used.source, used.service_tier][used.model] += used.tokens
    for (source, tier), models in found.items():
        advice = Message(
            "used by %(models)s: say under `service_tiers:` what it is billed as",
            models=", ".join(f"{model} ({tokens:,})" for model, tokens in sorted(models.items())),
        )
        tokens = Decimal(sum(models.values()))
        yield ReportedException("service_tier", f"{source}/{tier}", tokens, "tokens", True, advice)


def charged_apart(context: Context) -> Iterator[ReportedException]:
    """Yield teams of another legal entity than the issuer's that an internal invoice would charge; not those in showback.

    Within one legal entity a recharge is a transfer of cost. Between two it is a supply, with tax and an official invoice,
    which the ERP must write.
    """
    entities, apart = _legal_entities(), dict[str, str]()
    windows = {row.month: row.window for row in BillingPeriod.objects.all()} if entities else {}
    issuer = _company(billing_setup().legal_entity) if entities else ""
    modes, amounts = billing_modes(), defaultdict[str, Decimal](Decimal)
    for charge in context.rated.charges if entities else ():
        key = charge.key
        if key.team not in entities or key.platform or modes.shadow(key.team, key.charge_period):
            continue
        # the entity at the time of the usage: a team may have changed since
        entity = entities[key.team].at(windows.get(key.charge_period, context.period.window).start)
        if entity and _company(entity) != issuer:
            amounts[key.team] += charge.amount
            apart[key.team] = entity
    for team, amount in sorted(amounts.items()):
        advice = Message(
            "belongs to %(entity)s: show it what it used (mode shadow) and have the ERP invoice it", entity=apart[team]
        )
        yield ReportedException("other_legal_entity", team, Decimal(1), "teams", True, advice, amount=amount)


def without_cost_center(context: Context) -> Iterator[ReportedException]:
    """Yield teams that the close would charge without a known cost centre: the journal refuses their documents.

    Each blocks the close if the installation requires cost centres (`billing.cost_center_required`).
    """
    missing = {
        team.code for team in Team.objects.filter(Q(cost_center="") | ~Q(dated_cost_centers=[]))
        if any(not value for _, value in CostCenters.of(team).pieces(context.period.window))
    }  # fmt: skip
    setup, modes, amounts = BillingSetup.objects.first(), billing_modes(), defaultdict[str, Decimal](Decimal)
    for charge in context.rated.charges if missing else ():
        key = charge.key
        if key.team in missing and not key.platform and not modes.shadow(key.team, key.charge_period):
            amounts[key.team] += charge.amount
    advice = Message("name its `cost_center` under `teams:`; without it `export_journal` refuses the month")
    blocks = setup is not None and setup.cost_center_required
    for team, amount in sorted(amounts.items()):
        yield ReportedException("no_cost_center", team, Decimal(1), "teams", blocks, advice, amount=amount)


def documents_without_cost_center(period: BillingPeriod) -> Iterator[ReportedException]:
    """Yield invoices of a closed month that name no cost centre and are not posted by a journal yet."""
    documents = period.invoices.exclude(status__in=(Invoice.Status.VOID, Invoice.Status.PREVIEW))
    missing = with_cost_center(documents.select_related("team")).filter(Q(cost_center=None) | Q(cost_center=""))
    posted = {number for export in period.journal_exports.all() for number in export.documents}
    advice = Message(
        "its invoice names no cost centre: name one for it under `cost_centers` of the chart of accounts, else "
        "`export_journal` refuses the month"
    )
    for invoice in missing.order_by("team__code"):
        if invoice.number not in posted:
            team, amount = invoice.team.code, invoice.total
            yield ReportedException("no_cost_center", team, Decimal(1), "teams", False, advice, amount=amount)


def _legal_entities() -> dict[str, DatedTexts]:
    """Return the legal entities of each team that states any; none if the issuer's is unknown."""
    setup = BillingSetup.objects.first()
    if setup is None or not setup.legal_entity:
        return {}
    return {team.code: organisation_of(team, "legal_entity") for team in Team.objects.order_by("code")
            if team.legal_entity or "legal_entity" in team.dated_organisation}  # fmt: skip


def _company(name: str) -> str:
    """Normalize a company's name: neither spaces nor letter case make another company."""
    return " ".join(name.split()).casefold()


def engines_differing(context: Context) -> Iterator[ReportedException]:
    """Yield models whose month differs, which block the close, and single days that differ, which do not.

    Missing and surplus tokens on the bill are two subjects: a waiver of one does not cover the other.
    """
    for item in context.engines:
        sides = ((item.model, item.total.lacking), (f"{item.model} {NOT_COUNTED}", item.total.surplus))
        for subject, tokens in sides:
            if not tokens:
                continue
            advice = Message(
                "%(words)s: find the side that lacks (docs/gateways.md, Reconciliation): correct it at its source, or waive "
                "it",
                words=item.total.words,
            )
            yield ReportedException("engine_difference", subject, Decimal(tokens), "tokens", context.blocks, advice)
    for item in context.engines:
        for day, alone in item.differing:
            subject, quantity = f"{item.model} {day.day.isoformat()}", Decimal(alone.difference)
            yield ReportedException("engine_difference_day", subject, quantity, "tokens", False, alone.words)


def energy_differing(context: Context) -> Iterator[ReportedException]:
    """Yield clusters whose meter differs by more than the tolerance; the direction is in the subject, as for tokens."""
    for item in context.energy:
        if item.exceeds:
            subject = item.cluster if item.difference > 0 else f"{item.cluster} {NOT_METERED}"
            yield ReportedException(
                "energy_difference", subject, abs(item.difference), "kWh", context.blocks, item.words
            )


def months_unbilled(context: Context) -> Iterator[ReportedException]:
    """Yield earlier months with usage that are not closed: a close bills its own month and late usage, not these."""
    used = usage_months(context.period.start, context.period.zone)
    closed = set(BillingPeriod.objects.exclude(close_seq=None).values_list("month", flat=True)) if used else set()
    advice = Message("close it with `manage.py period_close`")
    for month in used:
        if month not in closed:
            yield ReportedException("unbilled_month", month, Decimal(1), "months", False, advice)


def not_rated(context: Context) -> Iterator[ReportedException]:
    """Yield teams whose rating raises: the close will block them and bill the others, unless others' charges depend on them.

    A close that blocks them reports it itself (`teams_blocked`).
    """
    blocked = {item.subject for item in teams_blocked(context.period)}
    for team, problem in sorted(context.rated.faults.items()):
        if team not in blocked:
            blocks = context.rated.entangled
            yield ReportedException("team_unrated", team, Decimal(1), "teams", blocks, Message.of(problem))


def teams_blocked(period: BillingPeriod) -> Iterator[ReportedException]:
    """Yield teams that the close could not bill while it billed the others."""
    for item in period.held_teams.all() if period.status == BillingPeriod.Status.CLOSING else ():
        words = Message.of(item.problem)
        yield ReportedException("team_held", item.team, Decimal(1), "teams", True, words, amount=item.amount)


def disputes_left(period: BillingPeriod) -> Iterator[ReportedException]:
    """Yield what a month inherits from upheld disputes: credits not issued yet, and reasons upheld more than once.

    None of it blocks a close: the credit comes as a note in the open month, the reason is a defect somewhere else.
    """
    decided = Dispute.objects.filter(
        status=Dispute.Status.UPHELD, decided_at__gte=period.end - UPHELD_WITHIN, decided_at__lt=period.end
    )
    by_reason: dict[str, list[Dispute]] = defaultdict(list)
    for item in decided.select_related("correction", "invoice", "note").order_by("id"):
        by_reason[item.reason_code].append(item)
        if item.correction and item.correction.status not in (Correction.Status.ISSUED, Correction.Status.VOID):
            advice = Message("correction %(n)s is not issued yet", n=item.correction_id)
            subject = f"dispute {item.pk} of {item.document.number}"
            yield ReportedException("upheld_uncredited", subject, Decimal(1), "disputes", False, advice, amount=item.amount)
    for code, items in sorted(by_reason.items()):
        if len(items) > 1:
            numbers = ", ".join(str(item.document.number) for item in items)
            yield ReportedException(
                "upheld_repeatedly", code, Decimal(len(items)), "disputes", False,
                Message("upheld in %(numbers)s: open a defect", numbers=numbers),
                amount=sum((item.amount for item in items), Decimal("0.00")),
            )  # fmt: skip


def journal_unacknowledged(export: JournalExport | None, now: datetime) -> Iterator[ReportedException]:
    """Yield a journal that the ledger has not confirmed in time; all of it is at risk of not being posted."""
    if export is not None and export.acknowledged_at is None and now - export.exported_at >= ACKNOWLEDGED_WITHIN:
        days = Decimal((now - export.exported_at).days)
        advice = Message("exported %(at)s, not acknowledged", at=export.exported_at.isoformat())
        subject, amount = export.batch_hash, export.debit
        yield ReportedException("journal_unacknowledged", subject, days, "days", False, advice, amount=amount)


def as_answered_for(item: ReportedException, waiver: ExceptionWaiver | None, now: datetime | None) -> ReportedException:
    """Apply a waiver to an exception: a larger quantity than was waived, or an expired waiver, blocks again."""
    if waiver is None or item.quantity > waiver.quantity:
        return item
    answered = replace(item, waived_until=waiver.expires_at, waiver_reason=waiver.reason)
    # `now` is None after the close: its waivers no longer expire
    if now is not None and waiver.expires_at is not None and now >= waiver.expires_at:
        return replace(answered, waiver_expired=True)
    return replace(answered, blocks=False, waived_by=waiver.waived_by)
