"""PURE: may this request spend? Answered from memory, with a reservation held until its usage is in the ledger.

The counter of a budget is what the ledger says (`spent`) plus what is held for requests that were let through and are
not in the ledger yet. A request passes while that is below the limit and takes its own reservation in the same step, so
a burst passes the limit by at most one reservation, as long as each request costs no more than its own.

A hold ends when its record is in the ledger and in the counter (it was named by the record's id), when it is released, or
when its time is over. Until then it counts, also in part twice: the counter is never too low, at times a little too high.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from heapq import heappop, heappush
from threading import Lock
from typing import Final

from billing.budgets.scope import Scope
from billing.budgets.thresholds import ActionAsked, Rung, actions_asked
from billing.tenancy.ownership import OwnershipBook
from pricing.money import round_to
from pricing.rate_card import RateCard

HOLD_SECONDS: Final = 60
NAMED_HOLD_SECONDS: Final = 900
LONGEST_HOLD_SECONDS: Final = 3600
ASSUMED_INPUT_TOKENS: Final = 8_000
ASSUMED_OUTPUT_TOKENS: Final = 1_000
PLACES: Final = 4
SMALLEST: Final = Decimal("0.0001")
MOST_ROUTES: Final = 20_000


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """A budget with its counter as of one refresh; `generation` orders refreshes, `cap_raise` is added to its cap."""

    id: int
    name: str
    scope: Scope
    period: str
    amount: Decimal
    spent: Decimal
    as_of: datetime
    generation: int
    ladder: Sequence[Rung]
    reservation: Decimal | None = None
    cap_raise: Decimal = Decimal(0)


@dataclass(frozen=True)
class Grant:
    """What the bearer of a token may ask about."""

    scopes: frozenset[str]
    source: str = ""
    teams: frozenset[str] | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True)
class Snapshot:
    """Everything a check needs, read from the database at one time; `routes` and `estimates` remember what was asked."""

    currency: str
    budgets: Sequence[BudgetLine]
    consumers: OwnershipBook
    prices: RateCard
    grants: Mapping[str, Grant] = field(default_factory=dict)
    routes: dict[tuple[str, str, str], "Route"] = field(default_factory=dict)
    estimates: dict[str, Decimal | None] = field(default_factory=dict)

    def counted(self, budgets: Sequence[BudgetLine]) -> "Snapshot":
        """The same with newer counters."""
        return replace(self, budgets=budgets, routes={})


@dataclass(frozen=True, slots=True)
class Route:
    """Who pays for a consumer and which budgets watch over it; `estimate` is what an ordinary request costs."""

    team: str | None
    budgets: tuple[BudgetLine, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a gateway. `key` names its record in the ledger; tokens and amount make the reservation."""

    source: str
    consumer: str
    model: str = ""
    key: bytes | None = None
    amount: Decimal | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """An amount held on some budgets until an instant, or until its record, named by `key`, is counted."""

    id: str
    amount: Decimal
    budgets: tuple[int, ...]
    until: datetime
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a gateway is told. `budget` is the one that refuses, or the one with the least left; None where none applies."""

    allowed: bool
    reason: str
    team: str | None = None
    budget: BudgetLine | None = None
    held: Decimal = Decimal(0)
    hold: Reservation | None = None
    actions: Sequence[ActionAsked] = ()


class Counter:
    """The counters and holds of one process; every method may be called by any thread and takes microseconds.

    `remember` and `forget` are told of every hold that is made and that ends before its time. `waits_for` is told the name
    of every record that is to be looked for in the ledger.
    """

    def __init__(
        self,
        *,
        remember: Callable[[Reservation], None],
        forget: Callable[[str], None],
        new_id: Callable[[], str],
        waits_for: Callable[[bytes], None],
    ) -> None:
        self._remember, self._forget, self._new_id, self._waits_for = remember, forget, new_id, waits_for
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._holds: dict[str, Reservation] = {}
        self._held: dict[int, Decimal] = {}
        self._by_key: dict[bytes, str] = {}
        self._ends: list[tuple[datetime, str]] = []
        self._landed: dict[str, int] = {}

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest, or None before the first."""
        return self._snapshot

    def restore(self, holds: Iterable[Reservation]) -> None:
        """Take over the holds that an earlier process left."""
        with self._lock:
            for hold in holds:
                self._add(hold)

    def replace(self, snapshot: Snapshot, now: datetime) -> None:
        """Count anew from the ledger; what it counts now is no longer held."""
        generations = {line.id: line.generation for line in snapshot.budgets}
        with self._lock:
            self._snapshot = snapshot
            self._expire(now)
            for identity, landed in list(self._landed.items()):
                budgets = self._holds[identity].budgets
                if all(generations.get(budget, landed + 1) > landed for budget in budgets):
                    self._drop(identity)
                    self._forget(identity)

    def waiting_keys(self) -> list[bytes]:
        """Names of records that are held for and not yet seen in the ledger."""
        with self._lock:
            return [key for key, identity in self._by_key.items() if identity not in self._landed]

    def landed(self, keys: Iterable[bytes], generation: int) -> None:
        """These records are in the ledger; `generation` was the newest refresh when that had been seen.

        Any refresh that began later counts them, so their holds end with the first snapshot of a higher generation.
        """
        with self._lock:
            for key in keys:
                if (identity := self._by_key.get(key)) is not None:
                    self._landed.setdefault(identity, generation)

    def check(self, ask: Ask, now: datetime, *, hold: bool = True) -> Answer | None:
        """Decide and reserve in one step; None before the first snapshot."""
        snapshot = self._snapshot
        if snapshot is None:
            return None
        route = _route(snapshot, ask, now)
        if route.team is None:
            return Answer(True, "unknown_consumer")
        if not route.budgets:
            return Answer(True, "no_budget", route.team)
        estimate = _estimate(snapshot, ask, now)
        with self._lock:
            self._expire(now)
            return self._decide(ask, route, estimate, now, hold)

    def release(self, identity: str) -> bool:
        """End a hold: its request came to nothing, or its cost is known to be counted. False if there is none."""
        with self._lock:
            if identity not in self._holds:
                return False
            self._drop(identity)
            self._forget(identity)
            return True

    def held_on(self, budget: int) -> Decimal:
        """What is held on a budget now."""
        with self._lock:
            return self._held.get(budget, Decimal(0))

    def _decide(self, ask: Ask, route: Route, estimate: Decimal | None, now: datetime, hold: bool) -> Answer:
        known = self._by_key.get(ask.key) if ask.key is not None else None
        states = [(line, self._held.get(line.id, Decimal(0))) for line in route.budgets]
        refused = [(line, held) for line, held in states if _is_capped(line, held)]
        line, held = min(refused or states, key=_left)
        actions = _actions(line, held)
        if known is not None:
            return Answer(True, "within_budget", route.team, line, held, self._holds[known], actions)
        if refused:
            reason = "budget_used_up" if _is_capped(line, Decimal(0)) else "budget_reserved"
            return Answer(False, reason, route.team, line, held, None, actions)
        made = self._hold(ask, route, estimate, now) if hold else None
        reason = "within_budget" if line.spent + held < line.amount else "over_budget"
        return Answer(True, reason, route.team, line, self._held.get(line.id, Decimal(0)), made, actions)

    def _hold(self, ask: Ask, route: Route, estimate: Decimal | None, now: datetime) -> Reservation | None:
        stated = next((line.reservation for line in route.budgets if line.reservation is not None), None)
        amount = ask.amount if ask.amount is not None else stated if not _says_tokens(ask) and stated else estimate
        if amount is None:
            return None
        seconds = ask.seconds or (HOLD_SECONDS if ask.key is None else NAMED_HOLD_SECONDS)
        ids = tuple(line.id for line in route.budgets)
        until = now + timedelta(seconds=min(seconds, LONGEST_HOLD_SECONDS))
        made = Reservation(self._new_id(), max(amount, SMALLEST), ids, until, ask.key)
        self._remember(made)
        self._add(made)
        return made

    def _add(self, hold: Reservation) -> None:
        self._holds[hold.id] = hold
        heappush(self._ends, (hold.until, hold.id))
        if hold.key is not None:
            self._by_key[hold.key] = hold.id
            self._waits_for(hold.key)
        for budget in hold.budgets:
            self._held[budget] = self._held.get(budget, Decimal(0)) + hold.amount

    def _expire(self, now: datetime) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, identity = heappop(self._ends)
            with suppress(KeyError):  # it ended before its time
                self._drop(identity)

    def _drop(self, identity: str) -> None:
        hold = self._holds.pop(identity)
        self._landed.pop(identity, None)
        if hold.key is not None:
            self._by_key.pop(hold.key, None)
        for budget in hold.budgets:
            self._held[budget] -= hold.amount


def _left(state: tuple[BudgetLine, Decimal]) -> Decimal:
    line, held = state
    return line.amount - line.spent - held


def _actions(line: BudgetLine, held: Decimal) -> Sequence[ActionAsked]:
    used = line.spent + held
    first = min(rung.percent for rung in line.ladder)
    if used * 100 < line.amount * first:
        return ()
    asked = actions_asked(used, line.amount, line.ladder)
    return asked if _is_capped(line, held) else [action for action in asked if action.action != "cap"]


def _is_capped(line: BudgetLine, held: Decimal) -> bool:
    caps = [rung.percent for rung in line.ladder if rung.action == "cap"]
    return bool(caps) and (line.spent + held - line.cap_raise) * 100 >= line.amount * min(caps)


def _route(snapshot: Snapshot, ask: Ask, now: datetime) -> Route:
    key = (ask.source, ask.consumer, ask.model)
    known = snapshot.routes.get(key)
    if known is None:
        owner = snapshot.consumers.owner(ask.source, ask.consumer, now)
        team = None if owner is None else owner.team
        fitting = (line for line in snapshot.budgets if team and line.scope.covers_tokens(team, ask.consumer, ask.model))
        known = Route(team, tuple(fitting))
        if len(snapshot.routes) < MOST_ROUTES:
            snapshot.routes[key] = known
    return known


def _says_tokens(ask: Ask) -> bool:
    return ask.input_tokens is not None or ask.output_tokens is not None


def _estimate(snapshot: Snapshot, ask: Ask, now: datetime) -> Decimal | None:
    """The request at list price, or of an ordinary request of the model; of an unknown model the dearest.

    None where nothing is priced: what a price is missing for is never guessed.
    """
    if _says_tokens(ask):
        return _cost(snapshot, ask, now)
    if ask.model not in snapshot.estimates:
        if len(snapshot.estimates) >= MOST_ROUTES:
            return _cost(snapshot, ask, now)
        snapshot.estimates[ask.model] = _cost(snapshot, ask, now)
    return snapshot.estimates[ask.model]


def _cost(snapshot: Snapshot, ask: Ask, now: datetime) -> Decimal | None:
    version = snapshot.prices.version_at(now)
    if version is None:
        return None
    counts = {
        "input": ASSUMED_INPUT_TOKENS if ask.input_tokens is None else ask.input_tokens,
        "output": ASSUMED_OUTPUT_TOKENS if ask.output_tokens is None else ask.output_tokens,
    }
    models = [ask.model] if ask.model else sorted({model for model, _ in version.tokens})
    costs = [
        sum(Fraction(count) * Fraction(version.tokens[model, name]) for name, count in counts.items())
        for model in models
        if all((model, name) in version.tokens for name in counts)
    ]
    return round_to(Fraction(max(costs)) / 1_000_000, PLACES) if costs else None
