"""The `channels:` and `budgets:` sections of the set-up file: each entry becomes one call of the services of budgets."""

from datetime import time
from decimal import Decimal

from django.conf import settings

from billing.budgets.services import BudgetWish, ChannelWish
from billing.budgets.thresholds import ACTIONS, Rung
from billing.setup.file import Entry, Fields
from billing.tenancy.models import Team
from metering.intervals import MONTH

LONGEST_PATTERN = 128
LONGEST_URL = 2000
MOST_TOKENS = 10**12


def read_channel(entry: Entry, team: Team | None) -> ChannelWish:
    """One channel: a name, an Apprise address, and when alerts are sent to it."""
    wish = ChannelWish(
        name=entry.text("name"), url=entry.text("url", limit=LONGEST_URL), team=team,
        digest_at=_time(entry, "digest_at"), quiet_from=_time(entry, "quiet_from"), quiet_until=_time(entry, "quiet_until"),
        language=entry.choice("language", ("", *dict(settings.LANGUAGES)), ""),
    )  # fmt: skip
    entry.finish()
    return wish


def read_budget(entry: Entry, zone: str) -> BudgetWish:
    """One budget; without scope fields it is for everything that the team, or every team below the group, spends."""
    period = entry.choice("period", ("month", "quarter", "plan"), "month")
    plan = _plan(entry) if period == "plan" else {}
    amount = sum(plan.values(), Decimal(0)) if plan else entry.decimal("amount", places=2, at_least="0.01")
    scope = {name: entry.text(name, default="", limit=LONGEST_PATTERN)
             for name in ("cluster", "namespace", "consumer", "accelerator", "model")}  # fmt: skip
    wish = BudgetWish(
        period=period, amount=amount, plan=plan, name=entry.text("name", default=""), owner=entry.text("owner", default=""),
        thresholds=_percents(entry, "thresholds"),
        forecast_thresholds=_percents(entry, "forecast_thresholds"),
        commitment_thresholds=_percents(entry, "commitment_thresholds"),
        channels=_names(entry, "recipients"), ladder=_ladder(entry),
        reservation=entry.decimal("reservation", places=4) if entry.has("reservation") else None,
        valid_from=entry.optional_instant("valid_from", zone), valid_until=entry.optional_instant("valid_until", zone),
        **scope,
    )  # fmt: skip
    entry.finish()
    return wish


def _percents(entry: Entry, field: str) -> tuple[int, ...] | None:
    items = entry.value(field)
    if items is None:
        return None
    if not isinstance(items, list) or not all(_is_percent(item) for item in items):
        raise entry.error(field, "must be a list of whole percents up to 1000 such as [50, 80, 100]")
    return tuple(sorted({int(item) for item in items}))


def _is_percent(item: object) -> bool:
    return isinstance(item, str) and item.isdecimal() and len(item) <= 4 and int(item) <= 1000


def _names(entry: Entry, field: str) -> tuple[str, ...] | None:
    items = entry.value(field)
    if items is None:
        return None
    if not isinstance(items, list) or not all(isinstance(item, str) and item.strip() for item in items):
        raise entry.error(field, "must be a list of mail addresses and names of channels")
    return tuple(item.strip() for item in items)


def _plan(entry: Entry) -> dict[str, Decimal]:
    section = entry.value("amounts")
    if not isinstance(section, Fields) or not section:
        raise entry.error("amounts", 'must give an amount per month such as {2026-10: "1000.00", 2026-11: "500.00"}')
    months = Entry(section, f"{entry.where}.amounts", entry.path)
    for month in section:
        if not MONTH.match(month):
            raise months.error(month, "must be a month such as 2026-10")
    return {month: months.decimal(month, places=2, at_least="0.01") for month in section}


def _ladder(entry: Entry) -> tuple[Rung, ...]:
    rungs: list[Rung] = []
    for step in entry.entries("ladder"):
        action = step.choice("action", ACTIONS)
        percent = step.integer("at", at_most=1000)
        limits = [step.integer(field, at_most=MOST_TOKENS) for field in ("tokens_per_minute", "floor")
                  if action == "rate_limit"]  # fmt: skip
        if limits and limits[0] < limits[1]:
            raise step.error("floor", "must not be above tokens_per_minute")
        step.finish()
        if action in {rung.action for rung in rungs}:
            raise step.error("action", f"{action} occurs twice")
        rungs.append(Rung(percent, action, *limits))
    return tuple(rungs)


def _time(entry: Entry, field: str) -> time | None:
    text = entry.text(field, default="")
    try:
        found = time.fromisoformat(text) if text else None
    except ValueError as error:
        raise entry.error(field, f"{text!r} must be a local time of day such as 08:30") from error
    if found is not None and found.tzinfo is not None:
        raise entry.error(field, f"{text!r} is in the billing zone: no offset")
    return found

