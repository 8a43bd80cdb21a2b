"""Budget check of a request: may it spend? A reservation is kept for it until its usage is in the ledger.

The counter of a budget is the spending in the ledger (`spent`) plus the reservations of requests that were allowed and
are not in the ledger yet. A request passes while that is below the limit and takes its own reservation in the same step,
so a burst passes the limit by at most one reservation, as long as each request costs no more than its own.

A reservation ends when its record is in the ledger (it was named by the record's id), when it is released, or when its time
is over. A budget that could not be summed lacks the record; its counter keeps the reservation until it has the record.
Until then both may count, so the counter is never too low, at times a little too high.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final

from billing.budgets.reference import BudgetLine, Reference, Route
from billing.budgets.reservations import Reservation, Reservations
from billing.budgets.thresholds import Rung, actions_asked
from pricing.contexts import contexts_of, priced_class
from pricing.money import round_to

SECONDS: Final = 60
NAMED_SECONDS: Final = 900
MOST_SECONDS: Final = 3600
# an ordinary request, if the gateway states no tokens
ASSUMED_INPUT_TOKENS: Final = 8_000
ASSUMED_OUTPUT_TOKENS: Final = 1_000
PLACES: Final = 4
SMALLEST: Final = Decimal("0.0001")
MOST_ROUTES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Ask:
    """Request of a gateway. `key` names its record in the ledger; tokens and amount determine the reservation."""

    source: str
    consumer: str
    model: str = ""
    key: bytes | None = None
    amount: Decimal | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a gateway. `budget`: the one that refuses, or the one with the least left; None if none applies."""

    allowed: bool
    reason: str
    team: str | None = None
    budget: BudgetLine | None = None
    reserved: Decimal = Decimal(0)
    reservation: Reservation | None = None
    actions: Sequence[Rung] = ()


def check(
    ask: Ask, reference: Reference, kept: Reservations, now: datetime, *, reserve: bool = True
) -> Answer:
    """Decide and reserve in one step.  Raises ReservationsAwayError."""
    route = _route(reference, ask, now)
    if route.team is None:
        return Answer(True, "unknown_consumer")
    if not route.budgets:
        return Answer(True, "no_budget", route.team)
    amount = _reservation_amount(reference, route, ask, now) if reserve else None
    # without the key of a record only time ends the reservation, so it ends soon
    seconds = ask.seconds or (SECONDS if ask.key is None else NAMED_SECONDS)
    limits = [(line, _limit(line)) for line in route.budgets]
    taken = kept.take(limits, amount, seconds=min(seconds, MOST_SECONDS), key=ask.key)
    states = [
        (replace(line, spent=counted.spent, as_of=counted.as_of), counted.reserved)
        for line, counted in zip(route.budgets, taken.counters, strict=True)
    ]
    refused = [state for state in states if _is_capped(*state)]
    line, reserved = min(refused or states, key=lambda state: state[0].amount - state[0].spent - state[1])  # least left
    actions = _actions(line, reserved)
    # a repeated question gets the same yes: its reservation counts already
    if taken.reservation is not None and not taken.is_new:
        return Answer(True, "within_budget", route.team, line, reserved, taken.reservation, actions)
    if refused:
        reason = "budget_used_up" if _is_capped(line, Decimal(0)) else "budget_reserved"
        return Answer(False, reason, route.team, line, reserved, None, actions)
    reason = "within_budget" if line.spent + reserved < line.amount else "over_budget"
    after = reserved if amount is None else reserved + amount
    return Answer(True, reason, route.team, line, after, taken.reservation, actions)


def _actions(line: BudgetLine, reserved: Decimal) -> Sequence[Rung]:
    used = line.spent + reserved
    first = min(rung.percent for rung in line.ladder)
    if used * 100 < line.amount * first:
        return ()
    asked = actions_asked(used, line.amount, line.ladder)
    return asked if _is_capped(line, reserved) else [action for action in asked if action.action != "cap"]


def _limit(line: BudgetLine) -> Decimal | None:
    """Return the limit that spent plus reserved must stay below; None if the ladder has no cap.

    Exact in four places: an amount has two, and its percent two more.
    """
    caps = [rung.percent for rung in line.ladder if rung.action == "cap"]
    return line.amount * min(caps) / 100 + line.cap_raise if caps else None


def _is_capped(line: BudgetLine, reserved: Decimal) -> bool:
    limit = _limit(line)
    return limit is not None and line.spent + reserved >= limit


def _route(reference: Reference, ask: Ask, now: datetime) -> Route:
    key = (ask.source, ask.consumer, ask.model)
    known = reference.routes.get(key)
    if known is None:
        owner = reference.consumers.owner(ask.source, ask.consumer, now)
        team = None if owner is None else owner.team
        fitting = (line for line in reference.budgets if team and line.scope.covers_tokens(team, ask.consumer, ask.model))
        known = Route(team, tuple(fitting))
        # consumer names come from callers: without a limit they would fill the memory
        if len(reference.routes) < MOST_ROUTES:
            reference.routes[key] = known
    return known


def _reservation_amount(reference: Reference, route: Route, ask: Ask, now: datetime) -> Decimal | None:
    """Return the requested amount, the budget's stated one, or the estimated cost; None if none is known."""
    stated = next((line.reservation for line in route.budgets if line.reservation is not None), None)
    amount = ask.amount
    if amount is None:
        amount = stated if not _states_tokens(ask) and stated else _estimate(reference, ask, now)
    return None if amount is None else max(amount, SMALLEST)


def _states_tokens(ask: Ask) -> bool:
    return ask.input_tokens is not None or ask.output_tokens is not None


def _estimate(reference: Reference, ask: Ask, now: datetime) -> Decimal | None:
    """Estimate a request at list price, by default as an ordinary one; without a model, as one of the dearest model.

    None if no price is known: a missing price is never guessed.
    """
    if _states_tokens(ask):
        return _cost(reference, ask, now)
    if ask.model not in reference.estimates:
        if len(reference.estimates) >= MOST_ROUTES:
            return _cost(reference, ask, now)
        reference.estimates[ask.model] = _cost(reference, ask, now)
    return reference.estimates[ask.model]


def _cost(reference: Reference, ask: Ask, now: datetime) -> Decimal | None:
    version = reference.prices.version_at(now)
    if version is None:
        return None
    counts = {
        "input": ASSUMED_INPUT_TOKENS if ask.input_tokens is None else ask.input_tokens,
        "output": ASSUMED_OUTPUT_TOKENS if ask.output_tokens is None else ask.output_tokens,
    }
    bounds = reference.prices.context_bounds(now)
    costs = []
    for model in [ask.model] if ask.model else sorted({model for model, _ in version.tokens}):
        context = next((str(one) for one in contexts_of(bounds.get(model, ())) if one.holds(counts["input"])), "")
        prices = {name: version.tokens.get((model, priced_class(name, context))) for name in counts}
        parts = [counts[name] * Fraction(price) for name, price in prices.items() if price is not None]
        costs += [sum(parts)] if parts else []
    return round_to(Fraction(max(costs)) / 1_000_000, PLACES) if costs else None
