"""Application of a set-up file to the installation. Idempotent; adds facts, never edits a published one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from django.db import transaction
from django.utils import timezone

from billing.budgets.services import BudgetError, budget_change, budget_put, channel_put
from billing.closing.partial_close import ClosingChangeError, closing_check
from billing.corrections.services.proof import ClosedPeriodError, closed_periods_check
from billing.invoices.acceptance import last_deadline
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.selectors import document_of, with_cost_center
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.selectors import hypothetical_version, price_draft_named, version_in_force
from billing.rates.services import (
    PriceVersionInput,
    RateError,
    price_draft_create,
    price_draft_edit,
    price_draft_submit,
    price_version_publish,
)
from billing.rates.services.drafts import MAX_REASON
from billing.rating.price_warnings import set_back_warning
from billing.setup.budgets import read_budget, read_channel
from billing.setup.contacts import contact_store
from billing.setup.file import Entry, SetUpFileError, read_fields
from billing.setup.price_entries import PriceEntry, cost_sheet_store, price_entry, token_cost_sheet_store
from billing.setup.terms import (
    allocation_policy_store,
    capacity_type_store,
    carbon_store,
    commitment_store,
    efficiency_policy_store,
    interruption_policy_store,
    tag_rules_read,
    tier_rule_store,
)
from billing.tenancy.cost_centers import ORGANISATION, CostCenters, DatedTexts, organisation_of
from billing.tenancy.models import GATHER_CONSUMERS_ABOVE, BillingSetup, ConsumerOwnership, NamespaceOwnership, Team
from billing.tenancy.people import PeopleError, first_account_create
from billing.tenancy.selectors import NoSetupError, billing_setup, company_calendar
from billing.tenancy.services import (
    ISSUER_FACTS,
    SetupError,
    billing_setup_put,
    consumer_ownership_put,
    namespace_ownership_put,
    team_put,
)
from billing.usage.epochs import ingest_lock_shared
from billing.usage.services import tag_rules_put
from metering.intervals import billing_month, month_of
from metering.messages import Message
from pricing.business_days import SATURDAY, BusinessCalendar
from pricing.currencies import CurrencyError
from pricing.money import amounts_in

FOUR_EYES = BillingSetup.Review.FOUR_EYES


class _DryRun(Exception):
    """Signal that ends the transaction of a dry run without storing anything; no error."""


@dataclass
class Applied:
    """Changes of an application, in words, in the order in which they were made."""

    changes: list[str] = field(default_factory=list)
    unchanged: int = 0
    warnings: list[str] = field(default_factory=list)
    """Fields that are accepted and not used, and usage that a price list prices anew."""
    waiting: list[str] = field(default_factory=list)
    """Price lists that take effect once a second person approves them."""
    first_user: str = ""
    first_password: str = ""
    """Password of the first account, if the application created it."""

    def note(self, changed: bool, text: str) -> None:
        """Count one declared fact."""
        if changed:
            self.changes.append(text)
        else:
            self.unchanged += 1


def set_up_apply(*, path: Path, actor: str, dry_run: bool = False) -> Applied:
    """Apply the file in one transaction.  Raises SetUpFileError, with nothing changed."""
    try:
        return fields_apply(Entry(read_fields(path), "", path), actor, dry_run=dry_run, declared=True)
    except (ClosedPeriodError, ClosingChangeError, NoSetupError) as error:
        raise SetUpFileError(f"{path}: {error}") from error


def fields_apply(
    top: Entry, actor: str, *, dry_run: bool = False, declared: bool = False, look: Callable[[], object] = lambda: None
) -> Applied:
    """Apply the sections of `top` in one transaction. `look` is called after them, before a dry run is rolled back.

    declared: by the command, at once; else a budget that blocks is loosened only after another person agrees.
    Raises SetUpFileError, or what the services raise, with nothing changed.
    """
    applied = Applied()
    try:
        with transaction.atomic():
            ingest_lock_shared()  # until this ends no period is cut off, so the check below cannot miss one
            _Application(top, actor, applied, declared=declared).run()
            if applied.changes:
                closing_check()
                closed_periods_check()
            look()
            if dry_run:
                raise _DryRun
    except _DryRun:
        pass
    return applied


class _Application:
    def __init__(self, top: Entry, actor: str, applied: Applied, *, declared: bool) -> None:
        self.top, self.actor, self.applied, self.declared = top, actor, applied, declared
        self.zone = ""
        self.currency = ""
        self.four_eyes = False
        self.published: set[str] = set()

    def run(self) -> None:
        self._billing()
        self._first_account()
        self._teams()
        if self.top.has("tags"):
            for changed, text in tag_rules_put(rules=tag_rules_read(self.top), actor=self.actor):
                self.applied.note(changed, text)
        for section, store in self._sections().items():
            for entry in self.top.entries(section):
                self._store(entry, store)
        self.top.finish()

    def _store(self, entry: Entry, store: Callable[[Entry], tuple[bool, str]]) -> None:
        """Store one entry.  Raises SetUpFileError with the line of a file; for a page's fields, the service's error."""
        try:
            self.applied.note(*store(entry))
        except (SetupError, RateError, BudgetError) as error:
            raise entry.refused(error) if self.declared else error from error

    def _sections(self) -> dict[str, Callable[[Entry], tuple[bool, str]]]:
        """Return the function that stores an entry of each section, in the order in which sections depend on each other."""
        zone, actor = self.zone, self.actor
        return {
            "ownership": partial(self._ownership, platform=False),
            "platform": partial(self._ownership, platform=True),
            "consumers": self._consumer,
            "service_tiers": lambda entry: tier_rule_store(entry, zone, actor),
            "capacity_types": lambda entry: capacity_type_store(entry, zone, actor),
            "cost_sheets": lambda entry: cost_sheet_store(entry, actor),
            "token_cost_sheets": lambda entry: token_cost_sheet_store(entry, actor),
            "price_versions": self._price_version,
            "carbon": lambda entry: carbon_store(entry, zone, actor),
            "efficiency_policies": lambda entry: efficiency_policy_store(entry, zone, actor),
            "interruption_policies": lambda entry: interruption_policy_store(entry, zone, actor),
            "allocation_policies": lambda entry: allocation_policy_store(entry, zone, actor),
            "commitments": lambda entry: commitment_store(entry, self._team(entry), zone, actor),
            "contacts": lambda entry: contact_store(entry, self._team(entry), actor),
            "channels": self._channel,
            "budgets": self._budget,
        }

    def _billing(self) -> None:
        section = self.top.value("billing")
        if section is None:
            setup = billing_setup()
            self.zone, self.currency, self.four_eyes = setup.zone, setup.currency, setup.review == FOUR_EYES
            return
        entry = Entry(section, "billing", self.top.path)
        self.currency = entry.text("currency", limit=3)
        try:
            amounts_in(self.currency)
        except CurrencyError as error:
            raise entry.error("currency", str(error)) from error
        self.zone = entry.zone("zone")
        issuer = entry.text("issuer", limit=64)
        if "/" in issuer or "\\" in issuer or issuer.startswith("."):
            raise entry.error("issuer", f"{issuer!r} begins every invoice number and file name: no slash, no leading dot")
        review = entry.choice("review", tuple(BillingSetup.Review.values), BillingSetup.Review.NONE)
        self.four_eyes = review == FOUR_EYES
        reopening = entry.choice("reopening", tuple(BillingSetup.Reopening.values), BillingSetup.Reopening.NEVER)
        calendar = _read_calendar(entry)
        self._warn_of_holdbacks(entry)
        cost_center_required = entry.flag("cost_center_required")
        gather = entry.integer("gather_consumers_above", at_least=1, default=GATHER_CONSUMERS_ABOVE)
        issued_by = {name: entry.text(name, default="", limit=limit) for name, limit in ISSUER_FACTS.items()}
        entry.finish()
        self._refuse_new_basis(entry)
        _refuse_moved_deadlines(entry, calendar)
        changed = billing_setup_put(
            currency=self.currency, zone=self.zone, issuer=issuer, review=review, actor=self.actor, reopening=reopening,
            holidays=sorted(calendar.holidays), working_days=sorted(calendar.working_days),
            cost_center_required=cost_center_required, gather_consumers_above=gather, **issued_by,
        )  # fmt: skip
        facts = f"billing: {self.currency}, {self.zone}, issuer {issuer}, review {review}, reopening {reopening}"
        self.applied.note(changed, facts)

    def _warn_of_holdbacks(self, entry: Entry) -> None:
        """Accept the dispute limits of older files, and warn that they have no effect."""
        for name in ("dispute_hold_share", "dispute_hold_amount"):
            if entry.value(name) is not None:
                self.applied.warnings.append(f"billing.{name} is not used: disputes hold nothing off the ledger; remove it")

    def _first_account(self) -> None:
        """Create the first manager of people, if there is none; later the file makes nobody an admin."""
        section = self.top.value("first_account")
        if section is None:
            return
        entry = Entry(section, "first_account", self.top.path)
        user, name = entry.text("user", limit=150), entry.text("name", default="", limit=150)
        email = entry.text("email", default="", limit=254)
        entry.finish()
        try:
            password = first_account_create(username=user, full_name=name, email=email, actor=self.actor)
        except PeopleError as error:
            raise entry.error("user", str(error)) from error
        self.applied.first_user, self.applied.first_password = user, password
        self.applied.note(bool(password), f"first account {user}: admin")

    def _refuse_new_basis(self, entry: Entry) -> None:
        """Refuse another zone or currency than that of opened periods, or of published prices."""
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
        declared: dict[str, Entry] = {}
        for entry in self.top.entries("teams"):
            code = entry.text("code", limit=64)
            if code in declared:
                raise entry.error("code", f"{code!r} is declared twice")
            declared[code] = entry
        dated_facts = {
            code: {fact: self._dated(entry, fact, limit=64 if fact == "parent" else 200) for fact in ORGANISATION}
            for code, entry in declared.items()
        }
        organisation = {
            code: {fact: DatedTexts.stated(listed) if listed else DatedTexts(
                ((None, declared[code].text(fact, default="", limit=64 if fact == "parent" else 200)),)
            ) for fact, listed in facts.items()}
            for code, facts in dated_facts.items()
        }  # fmt: skip
        _refuse_cycles(declared, {code: facts["parent"] for code, facts in organisation.items()})
        for code, entry in declared.items():
            name = entry.text("name", default=code)
            dated = self._dated(entry, "cost_center", limit=64)
            now = timezone.now()
            cost_center = CostCenters.stated(dated).at(now) if dated else entry.text("cost_center", default="", limit=64)
            more = {fact: listed for fact in ORGANISATION if (listed := dated_facts[code][fact])}
            of_now = {fact: organisation[code][fact].at(now) for fact in ORGANISATION}
            groups = {group: self._parent(group, declared) for _, group in organisation[code]["parent"].entries if group}
            is_group = entry.flag("group")
            if is_group and _is_billed(code):
                raise entry.error("group", f"{code!r} owns usage or was billed and stays a team: name a new group above it")
            recipient = entry.text("recipient", default="", limit=200)
            if "@" in recipient:
                self.applied.warnings.append(
                    f"teams: {code}: recipient {recipient!r} is an address, to which nothing is sent: name it in `contacts:`"
                )
            entry.finish()
            before = Team.objects.filter(code=code).first()
            team, changed = team_put(
                code=code, name=name, cost_center=cost_center, parent=groups.get(of_now["parent"]), is_group=is_group,
                actor=self.actor, dated_cost_centers=dated, recipient=recipient, legal_entity=of_now["legal_entity"],
                department=of_now["department"], dated_organisation=more,
            )  # fmt: skip
            if changed and before is not None:
                _refuse_closed_cost_centers(entry, before, team)
                _refuse_closed_organisation(entry, before, team)
            kind = "group" if is_group else "team"
            words = [_dated_words("cost centre", cost_center, dated)]
            words += [_dated_words(fact.replace("_", " "), "", listed) for fact, listed in more.items()]
            self.applied.note(changed, f"{kind} {code}: {name}, {'; '.join(words)}")

    def _dated(self, entry: Entry, field: str, *, limit: int) -> list[dict[str, str | None]]:
        """Return a dated list as `Team` stores it, in order of time; empty if the field is a text.

        A legal entity changes only at the start of a month, because a document has one.  Raises SetUpFileError.
        """
        if not isinstance(entry.value(field), list):
            return []
        found: dict[datetime | None, str] = {}
        for item in entry.entries(field):
            if not item.has("value"):
                raise item.error("value", "is missing")
            value = item.text("value", None if field in ("cost_center", "legal_entity") else "", limit=limit)
            valid_from = item.optional_instant("valid_from", self.zone)
            item.finish()
            since = valid_from.astimezone(UTC) if valid_from else None
            if since and field == "legal_entity" and since != billing_month(month_of(since, self.zone), self.zone).start:
                local = since.astimezone(ZoneInfo(self.zone)).isoformat()
                raise item.error("valid_from", f"{local} must be the start of a month: a document is of one legal entity")
            if since in found:
                raise item.error("valid_from", f"{since.isoformat() if since else 'always'} is stated twice")
            found[since] = value
        if not found:
            raise entry.error(field, "must name at least one `value`")
        ordered = sorted(found.items(), key=lambda one: (one[0] is not None, one[0]))
        return [{"value": value, "valid_from": since.isoformat() if since else None} for since, value in ordered]

    def _parent(self, code: str, declared: dict[str, Entry]) -> Team:
        """Return the parent; a code that is no team yet becomes a group, which owns nothing and gets no invoice."""
        parent = Team.objects.filter(code=code).first()
        if parent is None:
            is_group = code not in declared or declared[code].flag("group")
            parent, changed = team_put(
                code=code, name=code, cost_center="", parent=None, is_group=is_group, actor=self.actor
            )
            if is_group:
                self.applied.note(changed, f"group {code}")
        return parent

    def _team(self, entry: Entry, *, groups: bool = False) -> Team:
        code = entry.text("team", limit=64)
        teams = Team.objects.filter(code=code) if groups else Team.objects.filter(code=code, is_group=False)
        team = teams.first()
        if team is None:
            raise entry.error("team", f"{code!r} is not declared under `teams:`")
        return team

    def _platform_team(self, entry: Entry) -> Team:
        """Return the platform's team, created if needed: it needs no entry under `teams:` and gets no invoice."""
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

    def _ownership(self, entry: Entry, *, platform: bool) -> tuple[bool, str]:
        cluster, namespace = entry.name("cluster"), entry.name("namespace")
        team = self._platform_team(entry) if platform else self._team(entry)
        valid_from, valid_until = self._range(entry)
        entry.finish()
        changed = namespace_ownership_put(
            cluster=cluster, namespace=namespace, team=team, platform=platform, valid_from=valid_from,
            valid_until=valid_until, actor=self.actor,
        )  # fmt: skip
        owner = f"{team.code} (platform)" if platform else team.code
        return changed, f"{cluster}/{namespace} -> {owner}{_since(valid_from)}"

    def _consumer(self, entry: Entry) -> tuple[bool, str]:
        source, consumer = entry.name("source"), entry.name("consumer")
        team = self._team(entry)
        valid_from, valid_until = self._range(entry)
        entry.finish()
        changed = consumer_ownership_put(
            source=source, consumer=consumer, team=team, valid_from=valid_from, valid_until=valid_until,
            actor=self.actor,
        )  # fmt: skip
        return changed, f"{source}/{consumer} -> {team.code}{_since(valid_from)}"

    def _price_version(self, entry: Entry) -> tuple[bool, str]:
        """Publish a list; one that prices past usage anew waits for a second person, if documents are reviewed."""
        found = price_entry(entry, zone=self.zone, currency=self.currency)
        prices = found.prices
        counted = f"{len(prices.gpu)} GPU and {len(prices.tokens)} token prices"
        text = f"price version {found.name} from {found.valid_from.isoformat()}: {counted}"
        if (warning := self._set_back(found)) is not None:
            self.applied.warnings.append(warning)
            if self.four_eyes:
                self.applied.waiting.append(found.name)
                return self._proposed(entry, found, warning), f"{text}, once a second person approves it"
        changed = price_version_publish(
            wanted=PriceVersionInput(found.name, self.currency, found.valid_from, prices), actor=self.actor
        )
        if changed:
            self.published.add(found.name)
        return changed, text

    def _set_back(self, found: PriceEntry) -> Message | None:
        """Return a warning if a new list prices past usage anew; lists of the same file have priced nothing before it."""
        before = version_in_force(found.valid_from)
        if before is None or before.name in self.published or PriceVersion.objects.filter(name=found.name).exists():
            return None
        listed = hypothetical_version(found.name, found.prices, found.valid_from)
        return set_back_warning(listed, timezone.now())

    def _proposed(self, entry: Entry, found: PriceEntry, warning: Message) -> bool:
        """Submit a list as a draft; return False if it waits already."""
        now, content = timezone.now(), found.prices.content
        draft = price_draft_named(found.name)
        same = draft is not None and (draft.content, draft.valid_from) == (content, found.valid_from)
        if draft is not None and same and draft.waits:
            return False
        if draft is not None and same and draft.state == PriceDraft.State.REJECTED:
            raise entry.error("name", f"{found.name!r} was sent back by {draft.decided_by}: {draft.decision}")
        if draft is None:
            draft = price_draft_create(
                name=found.name, valid_from=found.valid_from, content=content, actor=self.actor, now=now
            )
        elif not same:
            price_draft_edit(draft=draft, actor=self.actor, now=now, valid_from=found.valid_from, content=content)
        price_draft_submit(draft=draft, actor=self.actor, now=now, reason=f"set-up file: {warning}"[:MAX_REASON])
        return True

    def _channel(self, entry: Entry) -> tuple[bool, str]:
        wish = read_channel(entry, self._team(entry) if entry.has("team") else None)
        return channel_put(wish=wish, actor=self.actor), f"channel {wish.name}"

    def _budget(self, entry: Entry) -> tuple[bool, str]:
        team = self._team(entry, groups=True)
        wish = read_budget(entry, self.zone)
        text = f"budget of {wish.name or team.code}: {wish.amount} per {wish.period}"
        if self.declared:
            return budget_put(team=team, wish=wish, actor=self.actor, approved=True), text
        changed, waits = budget_change(team=team, wish=wish, reason="set-up text", now=timezone.now(), actor=self.actor)
        return changed, text if waits is None else f"{text}, once another person agrees on its page, since it blocks"


def _dated_words(fact: str, plain: str, dated: Sequence[dict[str, str | None]]) -> str:
    if not dated:
        return f"{fact} {plain or '(none)'}"
    listed = [f"{item['value']} from {item['valid_from']}" if item["valid_from"] else item["value"] for item in dated]
    return f"{fact}{'s' if fact == 'cost centre' else ''} {', '.join(map(str, listed))}"


def _refuse_closed_cost_centers(entry: Entry, before: Team, after: Team) -> None:
    """Refuse dates that change the cost centre of a closed month, which is posted.  Raises SetUpFileError."""
    if not before.dated_cost_centers and not after.dated_cost_centers:
        return  # a single cost centre without a date is for future documents
    wanted = CostCenters.of(after)
    for period in BillingPeriod.objects.exclude(close_seq=None).order_by("month"):
        known = CostCenters.of(before).pieces(period.window)
        if not before.dated_cost_centers:
            charged = with_cost_center(period.invoices.exclude(status=Invoice.Status.VOID)).filter(team=before)
            known = [(period.window, invoice.cost_center or "") for invoice in charged[:1]]
        if known and known != wanted.pieces(period.window):
            was = ", ".join(value or "(none)" for _, value in known)
            raise entry.error("cost_center", f"changes {period.month}, which is closed and was charged to {was}")


def _refuse_closed_organisation(entry: Entry, before: Team, after: Team) -> None:
    """Refuse dates of an organisation that differ from those of a closed month.  Raises SetUpFileError."""
    for fact in ORGANISATION:
        if fact not in before.dated_organisation and fact not in after.dated_organisation:
            continue  # a single value without a date is for future documents
        wanted, known = organisation_of(after, fact), organisation_of(before, fact)
        for period in BillingPeriod.objects.exclude(close_seq=None).order_by("month"):
            had = known.pieces(period.window) if fact in before.dated_organisation else []
            if not had and fact == "legal_entity":
                charged = period.invoices.exclude(status=Invoice.Status.VOID).filter(team=before)[:1]
                had = [(period.window, document_of(invoice)["recipient"].get(fact, "")) for invoice in charged]
            if had and had != wanted.pieces(period.window):
                was = ", ".join(value or "(none)" for _, value in had)
                raise entry.error(fact, f"changes {period.month}, which is closed and was of {was}")


def _since(valid_from: datetime | None) -> str:
    return f" from {valid_from.isoformat()}" if valid_from else ""


def _is_billed(code: str) -> bool:
    """Return True if a team owns anything at any time, or has documents, which no page shows for a group."""
    of_team = (NamespaceOwnership, ConsumerOwnership, Invoice, Note)
    return any(model._default_manager.filter(team__code=code, team__is_group=False).exists() for model in of_team)


def _refuse_cycles(declared: Mapping[str, Entry], parents: Mapping[str, DatedTexts]) -> None:
    """Raise SetUpFileError if a team is above itself at any time, by its declared and the other teams' stored parents."""
    others = Team.objects.select_related("parent").exclude(code__in=parents)
    known = {**{team.code: organisation_of(team, "parent") for team in others}, **parents}
    # a cycle may exist between two dated changes only, so every instant of a change is checked
    always = datetime.min.replace(tzinfo=UTC)
    for instant in sorted({always, *(change for dated in known.values() for change in dated.changes())}):
        stored = {code: dated.at(instant) for code, dated in known.items()}
        for code in declared:
            above, passed = stored[code], set[str]()
            while above and above not in passed:
                if above == code:
                    raise declared[code].error("parent", f"{code!r} would be above itself")
                passed.add(above)
                above = stored.get(above, "")


def _read_calendar(entry: Entry) -> BusinessCalendar:
    """Return the calendar of `holidays` and `working_days`.  Raises SetUpFileError."""
    holidays, working_days = entry.days("holidays"), entry.days("working_days")
    if both := sorted(holidays & working_days):
        raise entry.error("working_days", f"{both[0]} is under holidays too: a day is either")
    if worked := sorted(day for day in working_days if day.weekday() < SATURDAY):
        raise entry.error("working_days", f"{worked[0]} is no Saturday or Sunday: it is worked anyway")
    return BusinessCalendar(holidays, working_days)


def _refuse_moved_deadlines(entry: Entry, wanted: BusinessCalendar) -> None:
    """Refuse days that would move a deadline on an issued document.  Raises SetUpFileError."""
    setup = BillingSetup.objects.first()
    if setup is None:
        return
    known = company_calendar(setup)
    last = last_deadline(known, setup.zone)
    for name in ("holidays", "working_days"):
        changed: frozenset[date] = getattr(wanted, name) ^ getattr(known, name)
        moved = [day for day in sorted(changed) if last is not None and day < last.date()]
        if moved:
            raise entry.error(name, f"{moved[0]} lies within the deadlines of issued documents, which are sent already")
