"""`apply`: bring the installation to what a set-up file declares. Idempotent; adds facts, never edits a published one."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.db import transaction

from billing.budgets.services import BudgetError, budget_put, channel_put
from billing.closing.partial_close import ClosingChangeError, closing_check
from billing.corrections.services.proof import ClosedPeriodError, closed_periods_check
from billing.invoices.models import BillingPeriod
from billing.rates.models import PriceVersion
from billing.rates.services import (
    PriceVersionInput,
    RateError,
    carbon_factors_put,
    efficiency_policy_publish,
    price_version_publish,
)
from billing.rating.selectors import closed_until
from billing.setup.allocation import allocation_policy_store
from billing.setup.budgets import read_budget, read_channel
from billing.setup.calendar import read_calendar, refuse_moved_deadlines
from billing.setup.carbon import read_carbon
from billing.setup.commitments import commitment_store
from billing.setup.contacts import contact_store
from billing.setup.file import Entry, SetUpFileError, read_fields
from billing.setup.interruptions import interruption_policy_store
from billing.setup.price_entries import cost_sheet_store, price_entry, token_cost_sheet_store
from billing.tenancy.models import DISPUTE_HOLD_AMOUNT, DISPUTE_HOLD_SHARE, BillingSetup, Team
from billing.tenancy.selectors import NoSetupError, billing_setup
from billing.tenancy.services import (
    ISSUER_FACTS,
    SetupError,
    billing_setup_put,
    consumer_ownership_put,
    namespace_ownership_put,
    team_put,
)
from billing.usage.epochs import ingest_lock_shared
from pricing.efficiency import SECONDS_PER_GPU_HOUR, Form, Metric


class _DryRun(Exception):
    """Not an error: it ends the transaction without keeping anything."""


@dataclass
class Applied:
    """What an application changed, in words, in the order in which it was done."""

    changes: list[str] = field(default_factory=list)
    unchanged: int = 0

    def note(self, changed: bool, text: str) -> None:
        """Count one declared fact."""
        if changed:
            self.changes.append(text)
        else:
            self.unchanged += 1


def set_up_apply(*, path: Path, actor: str, dry_run: bool = False) -> Applied:
    """Apply the file in one transaction.  Raises SetUpFileError, with nothing changed."""
    top = Entry(read_fields(path), "", path)
    applied = Applied()
    try:
        with transaction.atomic():
            ingest_lock_shared()  # no period is cut off before this ends, so the check below cannot miss one
            _Application(top, actor, applied).run()
            if applied.changes:
                closing_check()
                closed_periods_check()
            if dry_run:
                raise _DryRun
    except _DryRun:
        pass
    except (SetupError, RateError, BudgetError, ClosedPeriodError, ClosingChangeError, NoSetupError) as error:
        raise SetUpFileError(f"{path}: {error}") from error
    return applied


class _Application:
    def __init__(self, top: Entry, actor: str, applied: Applied) -> None:
        self.top, self.actor, self.applied = top, actor, applied
        self.zone = ""
        self.currency = ""

    def run(self) -> None:
        self._billing()
        self._teams()
        for entry in self.top.entries("ownership"):
            self._ownership(entry, platform=False)
        for entry in self.top.entries("platform"):
            self._ownership(entry, platform=True)
        for entry in self.top.entries("consumers"):
            self._consumer(entry)
        for entry in self.top.entries("cost_sheets"):
            self.applied.note(*cost_sheet_store(entry, self.actor))
        for entry in self.top.entries("token_cost_sheets"):
            self.applied.note(*token_cost_sheet_store(entry, self.actor))
        for entry in self.top.entries("price_versions"):
            self._price_version(entry)
        for entry in self.top.entries("carbon"):
            self._carbon(entry)
        self._terms()
        for entry in self.top.entries("contacts"):
            self.applied.note(*contact_store(entry, self._team(entry), self.actor))
        for entry in self.top.entries("channels"):
            self._channel(entry)
        for entry in self.top.entries("budgets"):
            self._budget(entry)
        self.top.where = "(top)"
        self.top.finish()

    def _terms(self) -> None:
        """What stands beside the price list: policies, commitments."""
        for entry in self.top.entries("efficiency_policies"):
            self._policy(entry)
        for entry in self.top.entries("interruption_policies"):
            self.applied.note(*interruption_policy_store(entry, self.zone, self.actor))
        for entry in self.top.entries("allocation_policies"):
            self.applied.note(*allocation_policy_store(entry, self.zone, self.actor))
        for entry in self.top.entries("commitments"):
            self.applied.note(*commitment_store(entry, self._team(entry), self.zone, self.actor))

    def _billing(self) -> None:
        section = self.top.value("billing")
        if section is None:
            setup = billing_setup()
            self.zone, self.currency = setup.zone, setup.currency
            return
        entry = Entry(section, "billing", self.top.path)
        self.currency = entry.text("currency", limit=3)
        if len(self.currency) != 3 or not self.currency.isalpha() or not self.currency.isupper():
            raise entry.error("currency", f"{self.currency!r} must be an ISO 4217 code such as CNY")
        self.zone = entry.zone("zone")
        issuer = entry.text("issuer", limit=64)
        if "/" in issuer or "\\" in issuer or issuer.startswith("."):
            raise entry.error("issuer", f"{issuer!r} begins every invoice number and file name: no slash, no leading dot")
        review = entry.choice("review", tuple(BillingSetup.Review.values), BillingSetup.Review.NONE)
        reopening = entry.choice("reopening", tuple(BillingSetup.Reopening.values), BillingSetup.Reopening.NEVER)
        calendar = read_calendar(entry)
        share = entry.decimal("dispute_hold_share", places=4, at_most="1", default=DISPUTE_HOLD_SHARE)
        amount = entry.decimal("dispute_hold_amount", places=2, default=DISPUTE_HOLD_AMOUNT)
        issued_by = {name: entry.text(name, default="", limit=limit) for name, limit in ISSUER_FACTS.items()}
        entry.finish()
        self._refuse_new_basis(entry)
        refuse_moved_deadlines(entry, calendar)
        changed = billing_setup_put(
            currency=self.currency, zone=self.zone, issuer=issuer, review=review, actor=self.actor, reopening=reopening,
            holidays=sorted(calendar.holidays), working_days=sorted(calendar.working_days),
            dispute_hold_share=share, dispute_hold_amount=amount, **issued_by,
        )  # fmt: skip
        told = f"billing: {self.currency}, {self.zone}, issuer {issuer}, review {review}, reopening {reopening}"
        self.applied.note(changed, told)

    def _refuse_new_basis(self, entry: Entry) -> None:
        """Periods keep the zone and currency that they were opened with, prices the currency they were published in."""
        published = PriceVersion.objects.exclude(currency=self.currency).first()
        if published is not None:
            raise entry.error(
                "currency", f"price version {published.name} is published in {published.currency}, not {self.currency}"
            )
        known = BillingSetup.objects.first()
        if known is None or not BillingPeriod.objects.exists():
            return
        for name, wanted in (("zone", self.zone), ("currency", self.currency)):
            if getattr(known, name) != wanted:
                raise entry.error(name, f"is {getattr(known, name)} since the first period and cannot become {wanted}")

    def _teams(self) -> None:
        entries = list(self.top.entries("teams"))
        declared = {entry.text("code", limit=64): entry for entry in entries}
        if len(declared) < len(entries):
            codes = [entry.text("code", limit=64) for entry in entries]
            twice = next(code for code in codes if codes.count(code) > 1)
            raise declared[twice].error("code", f"{twice!r} is declared twice")
        for code, entry in declared.items():
            _refuse_cycle(code, declared)
            self._group(entry, declared)
            name = entry.text("name", default=code)
            cost_center = entry.text("cost_center", default="", limit=64)
            parent_code = entry.text("parent", default="", limit=64)
            billed_to = {name: entry.text(name, default="", limit=200) for name in ("legal_entity", "recipient")}
            entry.finish()
            parent = Team.objects.filter(code=parent_code).first() if parent_code else None
            _, changed = team_put(
                code=code, name=name, cost_center=cost_center, parent=parent, is_group=False, actor=self.actor,
                **billed_to,
            )  # fmt: skip
            self.applied.note(changed, f"team {code}: {name}, cost centre {cost_center or '(none)'}")

    def _group(self, entry: Entry, declared: dict[str, Entry]) -> None:
        """A parent that is no team itself is an organisational group: it owns nothing and gets no invoice."""
        parent = entry.text("parent", default="", limit=64)
        if not parent or Team.objects.filter(code=parent).exists():
            return
        is_group = parent not in declared
        _, changed = team_put(code=parent, name=parent, cost_center="", parent=None, is_group=is_group, actor=self.actor)
        if is_group:
            self.applied.note(changed, f"group {parent}")

    def _team(self, entry: Entry, *, groups: bool = False) -> Team:
        code = entry.text("team", limit=64)
        teams = Team.objects.filter(code=code) if groups else Team.objects.filter(code=code, is_group=False)
        team = teams.first()
        if team is None:
            raise entry.error("team", f"{code!r} is not declared under `teams:`")
        return team

    def _platform_team(self, entry: Entry) -> Team:
        """The platform's own cost centre needs no entry under `teams:`; it gets no invoice."""
        code = entry.text("team", limit=64)
        team = Team.objects.filter(code=code, is_group=False).first()
        if team is None:
            team, _ = team_put(code=code, name=code, cost_center="", parent=None, is_group=False, actor=self.actor)
            self.applied.note(True, f"team {code} (platform)")
        return team

    def _range(self, entry: Entry) -> tuple[datetime | None, datetime | None]:
        valid_from = entry.optional_instant("valid_from", self.zone)
        valid_until = entry.optional_instant("valid_until", self.zone)
        if valid_from and valid_until and valid_until <= valid_from:
            raise entry.error("valid_until", "must be after valid_from")
        return valid_from, valid_until

    def _ownership(self, entry: Entry, *, platform: bool) -> None:
        cluster, namespace = entry.name("cluster"), entry.name("namespace")
        team = self._platform_team(entry) if platform else self._team(entry)
        valid_from, valid_until = self._range(entry)
        entry.finish()
        changed = namespace_ownership_put(
            cluster=cluster, namespace=namespace, team=team, platform=platform, valid_from=valid_from,
            valid_until=valid_until, actor=self.actor,
        )  # fmt: skip
        owner = f"{team.code} (platform)" if platform else team.code
        self.applied.note(changed, f"{cluster}/{namespace} -> {owner}{_since(valid_from)}")

    def _consumer(self, entry: Entry) -> None:
        source, consumer = entry.name("source"), entry.name("consumer")
        team = self._team(entry)
        valid_from, valid_until = self._range(entry)
        entry.finish()
        changed = consumer_ownership_put(
            source=source, consumer=consumer, team=team, valid_from=valid_from, valid_until=valid_until,
            actor=self.actor,
        )  # fmt: skip
        self.applied.note(changed, f"{source}/{consumer} -> {team.code}{_since(valid_from)}")

    def _price_version(self, entry: Entry) -> None:
        found = price_entry(entry, zone=self.zone, currency=self.currency)
        prices = found.prices
        wanted = PriceVersionInput(
            found.name, self.currency, found.valid_from, prices.gpu, prices.tokens, prices.token_sheets
        )
        changed = price_version_publish(wanted=wanted, actor=self.actor)
        counted = f"{len(prices.gpu)} GPU and {len(prices.tokens)} token prices"
        self.applied.note(changed, f"price version {found.name} from {found.valid_from.isoformat()}: {counted}")

    def _policy(self, entry: Entry) -> None:
        fields: dict[str, Any] = {
            "name": entry.text("name"),
            "valid_from": entry.instant("valid_from", self.zone),
            "hfu_below": entry.decimal("hfu_below", places=6, at_most="1"),
            "penalty": entry.decimal("penalty", places=4, at_most="10"),
            "mfu_above": entry.decimal("mfu_above", places=6, at_most="1"),
            "reward": entry.decimal("reward", places=4, at_most="1"),
            "min_minutes": entry.integer("min_minutes", default=30),
            "min_coverage": entry.decimal("min_coverage", places=6, at_most="1", default=Decimal("0.95")),
            "min_gpu_seconds": entry.integer("min_gpu_seconds", default=SECONDS_PER_GPU_HOUR),
            "form": entry.choice("form", tuple(Form), Form.BANDS.value),
            "width": entry.decimal("width", places=6, at_least="0.000001", at_most="1", default=Decimal("0.10")),
            "shadow": entry.flag("shadow"),
            "classes": [self._workload_class(item) for item in entry.entries("classes")],
            "unrewarded": [self._known_team(entry, "unrewarded", code) for code in entry.texts("unrewarded")],
            "gather_short": entry.flag("gather_short"),
            "neutral_pool": entry.flag("neutral_pool"),
            "penalise_on": entry.choice("penalise_on", tuple(Metric), Metric.HFU.value),
        }
        if fields["hfu_below"] > fields["mfu_above"]:
            raise entry.error("hfu_below", f"{fields['hfu_below']} must not be above mfu_above {fields['mfu_above']}")
        entry.finish()
        changed = efficiency_policy_publish(fields=fields, actor=self.actor)
        self.applied.note(changed, f"efficiency policy {fields['name']} from {fields['valid_from'].isoformat()}")

    def _workload_class(self, entry: Entry) -> dict[str, Any]:
        """Bands of their own for some workloads, as the policy stores them."""
        fields: dict[str, Any] = {"name": entry.text("name")}
        for name in ("kinds", "queues", "accelerators"):
            if patterns := entry.texts(name):
                fields[name] = patterns
        limits = {"hfu_below": ("1", 6), "penalty": ("10", 4), "mfu_above": ("1", 6), "reward": ("1", 4)}
        for name, (at_most, places) in limits.items():
            if entry.has(name):
                fields[name] = str(entry.decimal(name, places=places, at_most=at_most))
        if until := entry.optional_instant("exempt_until", self.zone):
            fields["exempt_until"] = until.isoformat()
        if entry.has("penalise_on"):
            fields["penalise_on"] = entry.choice("penalise_on", tuple(Metric))
        for name in limits:
            entry.value(name)
        entry.finish()
        if len(fields) == 1:
            raise entry.error("name", f"{fields['name']!r} changes nothing: give bands, or exempt_until")
        return fields

    def _known_team(self, entry: Entry, field: str, code: str) -> str:
        if not Team.objects.filter(code=code).exists():
            raise entry.error(field, f"{code!r} is no team")
        return code

    def _carbon(self, entry: Entry) -> None:
        cluster, valid_from = entry.name("cluster"), entry.instant("valid_from", self.zone)
        known = read_carbon(entry)
        location = known.location or entry.decimal("location_kg_per_kwh", places=6, at_most="10")
        market = entry.decimal("market_kg_per_kwh", places=6, at_most="10", default=known.market or location)
        source = entry.text("source", known.source or None, limit=500)
        entry.finish()
        changed = carbon_factors_put(
            cluster=cluster, valid_from=valid_from, location=location, market=market, source=source, actor=self.actor
        )
        closed = closed_until()
        if changed and closed is not None and valid_from < closed:
            raise entry.error("valid_from", f"{valid_from.isoformat()} lies in a closed month, whose documents never change")
        self.applied.note(changed, f"carbon factors of {cluster} from {valid_from.isoformat()}")

    def _channel(self, entry: Entry) -> None:
        wish = read_channel(entry, self._team(entry) if entry.has("team") else None)
        self.applied.note(channel_put(wish=wish, actor=self.actor), f"channel {wish.name}")

    def _budget(self, entry: Entry) -> None:
        team = self._team(entry, groups=True)
        wish = read_budget(entry, self.zone)
        changed = budget_put(team=team, wish=wish, actor=self.actor)
        self.applied.note(changed, f"budget of {wish.name or team.code}: {wish.amount} per {wish.period}")


def _since(valid_from: datetime | None) -> str:
    return f" from {valid_from.isoformat()}" if valid_from else ""


def _refuse_cycle(code: str, declared: dict[str, Entry]) -> None:
    """Raise SetUpFileError if `code` stands above itself."""
    above = declared[code].text("parent", default="", limit=64)
    for _ in declared:
        if above == code:
            raise declared[code].error("parent", f"{code!r} would stand above itself")
        if above not in declared:
            return
        above = declared[above].text("parent", default="", limit=64)
