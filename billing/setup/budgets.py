"""Sections `channels:` and `budgets:` of the set-up file: each entry becomes one call of the services of budgets."""

from collections.abc import Iterable
from datetime import datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings

from billing.budgets.models import SCOPE_FIELDS, Budget, Channel
from billing.budgets.services import BudgetWish, ChannelWish
from billing.budgets.services.budgets import THRESHOLDS
from billing.budgets.thresholds import ACTIONS, Rung
from billing.setup.file import Entry, Fields, declared_text
from billing.tenancy.models import Team
from metering.intervals import MONTH
from pricing.money import amount_places, smallest_amount

LONGEST_PATTERN = 128
LONGEST_URL = 2000
MOST_TOKENS = 10**12


def read_channel(entry: Entry, team: Team | None) -> ChannelWish:
    """Read a channel: a name, an Apprise address and the times of its alerts, or the events and secret of a webhook.

    Without `url` or `secret` a stored one keeps its own.
    """
    wish = ChannelWish(
        name=entry.text("name"), url=entry.text("url", default="", limit=LONGEST_URL), team=team,
        digest_at=_time(entry, "digest_at"), quiet_from=_time(entry, "quiet_from"), quiet_until=_time(entry, "quiet_until"),
        language=entry.choice("language", ("", *dict(settings.LANGUAGES)), ""),
        secret=entry.text("secret", default=""), events=tuple(dict.fromkeys(entry.texts("events"))),
    )  # fmt: skip
    entry.finish()
    return wish


def read_budget(entry: Entry, zone: str) -> BudgetWish:
    """Read a budget; without scope fields it covers all spending of the team, or of every team below the group."""
    period = entry.choice("period", ("month", "quarter", "plan"), "month")
    plan = _plan(entry) if period == "plan" else {}
    amount = sum(plan.values(), Decimal(0)) if plan else _amount(entry, "amount")
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
    return {month: _amount(months, month) for month in section}


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


def channels_text(channels: Iterable[Channel]) -> str:
    """Return the section of these channels, as `apply` takes it, without their addresses: secrets, which stay stored."""
    return _section("channels", [_channel_declared(channel) for channel in channels if channel.url])


def _channel_declared(channel: Channel) -> dict[str, Any]:
    times = {name: getattr(channel, name) for name in ("digest_at", "quiet_from", "quiet_until")}
    return {
        "name": channel.name, "team": channel.team and channel.team.code, "language": channel.language,
        **{name: value and value.isoformat("auto") for name, value in times.items()},
        "events": sorted(channel.events) if channel.events else None,
    }  # fmt: skip


def budgets_text(budgets: Iterable[Budget], zone: str) -> str:
    """Return the section of these budgets, as `apply` takes it; instants are written in the billing zone."""
    return _section("budgets", [_budget_declared(budget, ZoneInfo(zone)) for budget in budgets])


def budget_text(budget: Budget, wish: BudgetWish, zone: str) -> str:
    """Return the section of a budget with the name, amount and end of a wish."""
    declared, end = _budget_declared(budget, ZoneInfo(zone)), _instant(wish.valid_until, ZoneInfo(zone))
    plan = {month: str(amount) for month, amount in sorted(wish.plan.items())}
    asked = {"name": wish.name, "valid_until": end, **({"amounts": plan} if plan else {"amount": str(wish.amount)})}
    return _section("budgets", [{**declared, **asked}])


def _budget_declared(budget: Budget, zone: ZoneInfo) -> dict[str, Any]:
    plan = {row.month: str(row.amount) for row in budget.plan.all()}
    scope = {name: getattr(budget, name) for name in SCOPE_FIELDS}
    return {
        "team": budget.team.code, "name": budget.name, "period": budget.period,
        **({"amounts": plan} if plan else {"amount": str(budget.amount)}), **scope, "owner": budget.owner,
        "valid_from": _instant(budget.valid_from, zone), "valid_until": _instant(budget.valid_until, zone),
        **{name: list(getattr(budget, name)) for name in THRESHOLDS},
        "recipients": sorted(channel.name for channel in budget.channels.all()),
        "reservation": None if budget.reservation is None else f"{budget.reservation:f}",
        "ladder": [_rung_declared(row.rung) for row in budget.ladder.all()] or None,
    }  # fmt: skip


def _rung_declared(rung: Rung) -> dict[str, Any]:
    limits = {"tokens_per_minute": rung.tokens_per_minute, "floor": rung.floor_tokens_per_minute}
    return {"at": rung.percent, "action": rung.action, **(limits if rung.action == "rate_limit" else {})}


def _instant(at: datetime | None, zone: ZoneInfo) -> str | None:
    return None if at is None else at.astimezone(zone).isoformat()


def _section(name: str, entries: list[dict[str, Any]]) -> str:
    """Return a section without empty fields; an empty list declares that there is none, and stays."""
    declared = [{key: value for key, value in entry.items() if value not in (None, "")} for entry in entries]
    return declared_text({name: declared}) if declared else ""


def _amount(entry: Entry, field: str) -> Decimal:
    """Read an amount above zero, in the decimals of the currency."""
    return entry.decimal(field, places=amount_places(), at_least=str(smallest_amount()))
