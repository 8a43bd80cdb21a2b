"""Sections of teams and owners: written as text, read from a table, and previewed before they apply.

Operators change these sections in the portal; none of them needs a second person. The input of a form becomes the text
that `apply` takes, so there is one rule and one notation.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from io import StringIO
from pathlib import Path
from typing import Any, Final

from django.db.models import Q

from billing.budgets.group_times import lines_by_time
from billing.invoices.lines import invoice_lines
from billing.invoices.models import BillingPeriod
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.reference_data import gpu_seconds
from billing.setup.apply import Applied, fields_apply
from billing.setup.file import Entry, SetUpFileError, declared_text, fields_of
from billing.tenancy.cost_centers import ORGANISATION, CostCenters, DatedTexts, organisation_of
from billing.tenancy.models import ConsumerOwnership, NamespaceOwnership, Team
from metering.messages import Message
from pricing.money import EXACT, round_amount

SECTIONS: Final = ("teams", "ownership", "platform", "consumers", "channels", "budgets")
COLUMNS: Final = ("code", "name", "cost_center", "parent", "group", "legal_entity", "recipient", "department")
"""Columns of a table of teams; all but the first may be left out."""
MOST_BYTES: Final = 1024 * 1024
"""Largest text that a page takes."""
ZERO: Final = Decimal("0.00")

Sections = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Share:
    """Device time, tokens and amount of a payer; the amount is None if a part has no price."""

    gpu_seconds: Decimal = Decimal(0)
    tokens: Decimal = Decimal(0)
    amount: Decimal | None = ZERO

    def plus(self, seconds: Decimal, tokens: Decimal, amount: Decimal | None) -> "Share":
        """Return the sum; its amount is unknown if either is."""
        known = None if self.amount is None or amount is None else self.amount + amount
        return Share(EXACT.add(self.gpu_seconds, seconds), EXACT.add(self.tokens, tokens), known)


@dataclass(frozen=True, slots=True)
class Moved:
    """Payer of an open month, before and after. `payer`: a team's code, or one of `platform` and `nobody` (`kind`)."""

    month: str
    kind: str
    payer: str
    before: Share
    after: Share


@dataclass(frozen=True, slots=True)
class MovedFact:
    """Amount of an open month that moves from one value of a team's `fact` to another; `before`, `after`: "" for none."""

    month: str
    team: str
    fact: str
    before: str
    after: str
    amount: Decimal


@dataclass(frozen=True)
class Preview:
    """Changes of a text, and of the payers in open months. `unrated`: teams whose amounts are unknown.

    facts: amounts that move between cost centres, departments, legal entities and parents.
    """

    applied: Applied
    moved: list[Moved]
    unrated: Mapping[str, str]
    facts: list[MovedFact]


def sections_text(sections: Sections) -> str:
    """Return the sections as `apply` takes them, without empty ones."""
    declared = {name: [_filled(entry) for entry in sections[name]] for name in SECTIONS if sections.get(name)}
    return declared_text(declared)


def _filled(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with its fields as text: an instant with its offset, a flag only if it is set."""
    return {name: _text(value) for name, value in entry.items() if value not in (None, "", False)}


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return value
    if value is True:
        return "true"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def teams_declared(teams: Iterable[Team]) -> list[dict[str, Any]]:
    """Return teams and groups as entries of the section `teams`."""
    return [
        {
            "code": team.code, "name": team.name, "cost_center": _fact_declared(team, "cost_center"),
            "parent": _fact_declared(team, "parent"), "group": team.is_group,
            "legal_entity": _fact_declared(team, "legal_entity"), "recipient": team.recipient,
            "department": _fact_declared(team, "department"),
        }
        for team in teams
    ]  # fmt: skip


def _fact_declared(team: Team, fact: str) -> Any:
    """Return the cost centre or a fact of the organisation as in a set-up file: a text, or the dated list."""
    listed = team.dated_cost_centers if fact == "cost_center" else team.dated_organisation.get(fact, [])
    if listed:
        return [{name: value for name, value in item.items() if value} for item in listed]
    if fact == "parent":
        return team.parent.code if team.parent else None
    return getattr(team, fact)


def changed_from(team: Team, fact: str, value: str, since: datetime | None) -> Any:
    """Return a fact of a team as a set-up file has it if its value is `value` from an instant on.

    A value that is the current one changes nothing; without an instant the value is that of all time.
    """
    known = _fact_declared(team, fact)
    now = (team.parent.code if team.parent else "") if fact == "parent" else getattr(team, fact)
    if value == now:
        return known
    if since is None:
        return value
    before = known if isinstance(known, list) else [{"value": known}] if known else []
    kept = [item for item in before if not item.get("valid_from") or datetime.fromisoformat(item["valid_from"]) < since]
    return [*kept, {"value": value, "valid_from": since.isoformat()}]


def namespace_declared(row: NamespaceOwnership, **changed: Any) -> tuple[str, dict[str, Any]]:
    """Return the section and the entry of a row, with other facts if they are given."""
    facts = {"cluster": row.cluster, "namespace": row.namespace, "team": row.team.code, **_times(row)}
    return ("platform" if row.platform else "ownership"), {**facts, **changed}


def consumer_declared(row: ConsumerOwnership, **changed: Any) -> tuple[str, dict[str, Any]]:
    """Return the section and the entry of a gateway's consumer, with other facts if they are given."""
    facts = {"source": row.source, "consumer": row.consumer, "team": row.team.code, **_times(row)}
    return "consumers", {**facts, **changed}


def _times(row: NamespaceOwnership | ConsumerOwnership) -> dict[str, Any]:
    return {"valid_from": row.valid_from, "valid_until": row.valid_until}


def in_sections(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for section, entry in entries:
        found[section].append(entry)
    return dict(found)


def owners_declared(
    namespaces: Iterable[NamespaceOwnership], consumers: Iterable[ConsumerOwnership]
) -> dict[str, list[Mapping[str, Any]]]:
    return in_sections([*map(namespace_declared, namespaces), *map(consumer_declared, consumers)])


def team_ending(code: str, day: datetime, successor: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the entries that end a team's ownership on `day`: its successor owns from then on, or nobody if that is empty.

    Raises SetUpFileError if the team begins to own something later and has no successor.
    """
    entries: list[tuple[str, Mapping[str, Any]]] = []
    for rows, declared in ((_owned(NamespaceOwnership, code, day), namespace_declared),
                           (_owned(ConsumerOwnership, code, day), consumer_declared)):  # fmt: skip
        for row in rows:
            begins_later = row.valid_from is not None and row.valid_from >= day
            if begins_later and not successor:
                raise SetUpFileError(Message(
                    "%(team)s begins to own %(name)s later: name a team that does instead",
                    team=code, name="/".join(list(declared(row)[1].values())[:2]),
                ))
            if not begins_later:
                entries.append(declared(row, valid_until=day))
            if successor:
                entries.append(declared(row, team=successor, valid_from=row.valid_from if begins_later else day))
    return in_sections(entries)


def _owned(model: Any, code: str, day: datetime) -> Any:
    rows = model.objects.filter(team__code=code).filter(Q(valid_until=None) | Q(valid_until__gt=day))
    return rows.select_related("team").order_by("id")


def file_text(content: bytes, name: str) -> str:
    """Return the text of an uploaded file; a table (.csv) of teams becomes its section.  Raises SetUpFileError.

    `content` has one byte beyond MOST_BYTES where the file is larger: the beginning of a file must not pass for the whole.
    """
    if len(content) > MOST_BYTES:
        raise SetUpFileError(Message("%(file)s: larger than %(most)s bytes", file=name, most=MOST_BYTES))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SetUpFileError(Message("%(file)s: not UTF-8 at byte %(byte)s", file=name, byte=error.start)) from error
    return sections_text({"teams": _table(text, name)}) if name.lower().endswith(".csv") else text


def _table(text: str, name: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(StringIO(text, newline=""), strict=True)
    try:
        columns = list(reader.fieldnames or ())
        # an unknown column is refused: a misspelt one would otherwise empty its fact in silence
        if "code" not in columns or not set(columns) <= set(COLUMNS) or len(set(columns)) < len(columns):
            raise SetUpFileError(Message(
                "%(file)s: the first row names its columns: code, and any of %(columns)s, each once",
                file=name, columns=", ".join(COLUMNS[1:]),
            ))
        known = {team.code: team for team in Team.objects.select_related("parent")}
        rows = []
        for row in reader:
            # DictReader puts surplus cells under None, and None in the place of missing ones
            if None in row or None in row.values():
                raise SetUpFileError(Message(
                    "%(file)s line %(line)s: not as many cells as the first row", file=name, line=reader.line_num
                ))
            facts = dict[str, Any](row)
            if (team := known.get(row["code"].strip())) is not None:  # without a change, dates stay
                dated = [fact for fact in ("cost_center", *ORGANISATION) if fact in row]
                facts |= {fact: changed_from(team, fact, row[fact].strip(), None) for fact in dated}
            rows.append(facts)
    except csv.Error as error:
        raise SetUpFileError(f"{name} line {reader.line_num}: {error}") from error
    return rows


def owners_apply(*, text: str, name: str, actor: str) -> Applied:
    """Apply a text of teams and owners, as `apply` does.  Raises SetUpFileError, or what the services raise."""
    return fields_apply(sections_of(text, name, SECTIONS), actor)


def owners_preview(*, text: str, name: str, actor: str, periods: Sequence[BillingPeriod]) -> Preview:
    """Return the changes of a text, and its payers in `periods` that are not closed.  Raises as `owners_apply`."""
    return preview_of(sections_of(text, name, SECTIONS), actor, periods)


def preview_of(top: Entry, actor: str, periods: Sequence[BillingPeriod]) -> Preview:
    """Return the changes of sections, and their payers in `periods` that are not closed.  Raises as `fields_apply`."""
    # rated before the change, and again inside its transaction, which is then rolled back
    rated: list[list[RatingResult]] = [[_rated(period) for period in periods]]
    known, facts = _dated_facts(), list[MovedFact]()

    def look() -> None:
        rated.append([_rated(period) for period in periods])
        wanted = _dated_facts()
        for period, result in zip(periods, rated[-1], strict=True):
            facts.extend(_moved_facts(period, result, known, wanted))

    applied = fields_apply(top, actor, dry_run=True, look=look)
    moved: list[Moved] = []
    for period, before, after in zip(periods, *rated, strict=True):
        moved += _moved(period.month, before, after)
    faults = [result.faults for results in rated for result in results]
    return Preview(applied, moved, reduce(lambda one, other: {**one, **other}, faults, {}), facts)


def _dated_facts() -> dict[tuple[str, str], DatedTexts]:
    """Return the dated values of each team's cost centre and organisation, by code and fact."""
    teams = Team.objects.select_related("parent")
    return {(team.code, fact): dated for team in teams for fact, dated in dated_facts_of(team).items()}


def dated_facts_of(team: Team) -> dict[str, DatedTexts]:
    """Return the dated values of a team's cost centre and of each fact of ORGANISATION."""
    return {"cost_center": CostCenters.of(team), **{fact: organisation_of(team, fact) for fact in ORGANISATION}}


def _moved_facts(
    period: BillingPeriod, rated: RatingResult, known: Mapping[tuple[str, str], DatedTexts],
    wanted: Mapping[tuple[str, str], DatedTexts],
) -> list[MovedFact]:  # fmt: skip
    """Return the amounts of a month whose value of a fact changes, by usage at the time of use.

    A team that is new moves nothing.
    """
    changed = {name for name in known.keys() & wanted.keys() if known[name].entries != wanted[name].entries}
    moves = {
        team: sorted({at for name in changed if name[0] == team for at in (*known[name].changes(), *wanted[name].changes())})
        for team, _ in changed
    }
    charges = [charge for charge in rated.charges if charge.key.team in moves and not charge.key.platform]
    amounts = {line.charge.key: Fraction(line.amount) for line in invoice_lines(charges)}
    sums: dict[tuple[str, str, str, str], Decimal] = defaultdict(Decimal)
    for part in lines_by_time(amounts, period, moves):
        for team, fact in changed:
            before, after = known[team, fact].at(part.since), wanted[team, fact].at(part.since)
            if team == part.key.team and before != after:
                sums[team, fact, before, after] += round_amount(part.amount)
    return [MovedFact(period.month, *name, amount) for name, amount in sorted(sums.items()) if amount]


def sections_of(text: str, name: str, allowed: Sequence[str]) -> Entry:
    """Parse a text whose sections must all be in `allowed`.  Raises SetUpFileError."""
    top = fields_of(text, Path(name))
    for section in top:
        if section not in allowed:
            raise SetUpFileError(Message(
                "%(file)s: %(section)s: only %(sections)s are changed here", file=name, section=section,
                sections=", ".join(allowed),
            ))
    return Entry(top, "", Path(name))


def _rated(period: BillingPeriod) -> RatingResult:
    return rate_period(window=period.window, zone=period.zone, close_seq=period.close_seq)


def _moved(month: str, before: RatingResult, after: RatingResult) -> list[Moved]:
    """Return the payers whose usage or amount changes: teams, then the platform, then nobody."""
    shares = _shares(before), _shares(after)
    payers = sorted(shares[0].keys() | shares[1].keys(), key=lambda payer: (KINDS.index(payer[0]), payer[1]))
    rows = [Moved(month, *payer, *(found.get(payer, Share()) for found in shares)) for payer in payers]
    return [row for row in rows if row.before != row.after]


KINDS: Final = ("team", "platform", "nobody")


def _shares(rated: RatingResult) -> dict[tuple[str, str], Share]:
    """Return the share of each payer; the platform is charged nothing, and unowned usage has the amount at its price."""
    found: dict[tuple[str, str], Share] = defaultdict(Share)
    nothing = Decimal(0)

    def add(kind: str, payer: str, seconds: Decimal, tokens: Decimal, amount: Decimal | None) -> None:
        found[kind, payer] = found[kind, payer].plus(seconds, tokens, amount)

    for teams in rated.team_time.values():
        for team, held in teams.items():
            add("team", team, gpu_seconds(held), nothing, ZERO)
    for payer, late in rated.late_time.items():
        add("team" if payer else "platform", payer, gpu_seconds(late), nothing, ZERO)
    for charge in rated.charges:
        if not charge.key.platform:
            tokens = charge.usage_quantity if charge.key.counts_tokens else nothing
            add("team", charge.key.team, nothing, tokens, charge.amount)
    for item in rated.unpriced:
        counted = (nothing, item.quantity) if item.unit == "tokens" else (gpu_seconds(item.quantity), nothing)
        add("team", item.team, *counted, None)
    for time in rated.device_time.values():
        add("platform", "", gpu_seconds(time.platform), nothing, ZERO)
    for left in rated.unowned:
        counted = (nothing, left.quantity) if left.unit == "tokens" else (left.quantity, nothing)
        add("nobody", "", *counted, left.amount)
    return dict(found)
