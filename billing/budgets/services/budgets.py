"""Writes of budgets, channels, recipients and mutes; each with its audit record in the same transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from billing.budgets.channels import is_address, is_webhook_address, signing_key
from billing.budgets.models import (
    SCOPE_FIELDS,
    Budget,
    BudgetAction,
    Channel,
    Delivery,
    Mute,
    PlanAmount,
    WebhookEvent,
)
from billing.budgets.thresholds import Rung, cap_percent
from billing.tenancy.access import team_and_below
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from metering.messages import Message, UserError

SECRETS = ("url", "secret")
MOST_RECIPIENTS = 20
MOST_PERCENT = 1000
DEFAULT_THRESHOLDS = (50, 80, 100)
DEFAULT_FORECAST_THRESHOLDS = (100,)


class BudgetError(UserError, ValueError):
    """Error: a budget, channel or mute that cannot be stored as requested; the message names what to change."""

    code = "budget"


@dataclass(frozen=True)
class BudgetWish:
    """Requested budget, complete. `plan` gives a plan's amount by month; `channels` are names.

    Thresholds None: the stored ones, for a new budget the defaults.
    """

    period: str
    amount: Decimal
    thresholds: tuple[int, ...] | None = None
    forecast_thresholds: tuple[int, ...] | None = None
    commitment_thresholds: tuple[int, ...] | None = None
    name: str = ""
    cluster: str = ""
    namespace: str = ""
    consumer: str = ""
    accelerator: str = ""
    model: str = ""
    owner: str = ""
    channels: tuple[str, ...] | None = None
    reservation: Decimal | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    plan: Mapping[str, Decimal] = field(default_factory=dict)
    ladder: tuple[Rung, ...] = ()

    @property
    def scope(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in SCOPE_FIELDS}


STORED = ("amount", "name", "owner", "reservation", "valid_until")
THRESHOLDS: Mapping[str, tuple[int, ...]] = {
    "thresholds": DEFAULT_THRESHOLDS, "forecast_thresholds": DEFAULT_FORECAST_THRESHOLDS, "commitment_thresholds": ()
}  # fmt: skip
"""Thresholds of a new budget if none are given, by field."""


def budget_put(*, team: Team, wish: BudgetWish, actor: str, approved: bool = False) -> bool:
    """Store a team's budget of that scope, kind of period and start; True if anything changed.

    Channels None leaves the recipients as they are, thresholds None the thresholds: the team's lead may have changed them.
    A new amount, or another plan, arms all thresholds again.  Raises BudgetError, also if the wish loosens a budget with a
    cap, unless another person `approved` that (`services.changes`).
    """
    with transaction.atomic():
        known = budget_of(team, wish)
        if known is not None and not approved and loosens(known, wish):
            raise BudgetError(Message(
                "budget of %(team)s: it blocks, so that it allows more or ends early takes a second person", team=team.code
            ))
        changed = _store(known, team, wish, actor)[1]
    return changed


def budget_new(*, team: Team, wish: BudgetWish, actor: str) -> Budget:
    """Store a new budget; an existing one is never overwritten.  Raises BudgetError."""
    with transaction.atomic():
        budget, _ = _store(None, team, wish, actor)
    return budget


def budget_of(team: Team, wish: BudgetWish) -> Budget | None:
    """Return the budget that a wish is about, locked; None if it does not exist yet."""
    return Budget.objects.select_for_update().filter(**_key(team, wish)).first()


def terms_of(budget: Budget) -> dict[str, Any]:
    """Return the amount, plan, end and ladder of a budget as JSON; the names are those of a wish."""
    shown = _shown(budget)
    return {name: shown[name] for name in ("amount", "plan", "valid_until", "ladder")}


def loosens(known: Budget, wish: BudgetWish) -> bool:
    """Return True if a wish allows more spending from a budget with a cap: larger amount, earlier end, later cap or none."""
    cap, wished = cap_percent(_ladder(known)), cap_percent(wish.ladder)
    if cap is None:
        return False
    before = _plan(known)
    # a plan with other months may move money into a month that had none
    raised = wish.amount > known.amount if not before else (
        before.keys() != wish.plan.keys() or any(wish.plan[month] > amount for month, amount in before.items())
    )
    until = wish.valid_until
    ends_early = until is not None and (known.valid_until is None or until < known.valid_until)
    return raised or ends_early or wished is None or wished > cap


def _key(team: Team, wish: BudgetWish) -> dict[str, Any]:
    return {"team": team, "period": wish.period, "valid_from": wish.valid_from, **wish.scope}


def _store(known: Budget | None, team: Team, wish: BudgetWish, actor: str) -> tuple[Budget, bool]:
    """Store the budget and return it, and whether anything changed; an audit record is written if so."""
    channels = None if wish.channels is None else _channels(team, wish.channels)
    before = _shown(known) if known else None
    budget = known or Budget(**_key(team, wish))
    rearmed = known is not None and (known.amount != wish.amount or _plan(known) != dict(wish.plan))
    for name in STORED:
        setattr(budget, name, getattr(wish, name))
    for name, usual in THRESHOLDS.items():
        percents = getattr(wish, name)
        if percents is not None or known is None:
            setattr(budget, name, list(usual if percents is None else percents))
    budget.revision += rearmed
    _save(budget)
    _replace_parts(budget, wish, channels)
    after = _shown(budget)
    if before == after:
        return budget, False
    audit_record(actor=actor, action="budget_put", subject=str(budget), detail={"before": before, "after": after})
    return budget, True


def _save(budget: Budget) -> None:
    try:
        with transaction.atomic():
            # a savepoint, so that the transaction of the caller survives a violated constraint
            budget.save()
    except IntegrityError as error:
        raise BudgetError(Message(
            "budget of %(team)s: another budget of the same scope and period is in force for part of that time",
            team=budget.team.code,
        )) from error


def _replace_parts(budget: Budget, wish: BudgetWish, channels: list[Channel] | None) -> None:
    if _plan(budget) != dict(wish.plan):
        budget.plan.all().delete()
        PlanAmount.objects.bulk_create(PlanAmount(budget=budget, month=m, amount=a) for m, a in wish.plan.items())
    if _ladder(budget) != sorted(wish.ladder, key=lambda rung: rung.action):
        budget.ladder.all().delete()
        BudgetAction.objects.bulk_create(BudgetAction(budget=budget, **asdict(rung)) for rung in wish.ladder)
    if channels is not None:
        _recipients_set(budget, channels)


def _recipients_set(budget: Budget, channels: list[Channel]) -> None:
    """Replace the recipients; pending deliveries to removed recipients move to the added ones."""
    before = set(budget.channels.all())
    budget.channels.set(channels)
    others = Channel.objects.filter(budgets__team=budget.team)
    waiting = Delivery.objects.filter(status=Delivery.Status.PENDING, channel__in=before - set(channels)).filter(
        # alerts without a budget (anomalies) stay if another budget of the team has the channel
        Q(alert__budget=budget) | Q(alert__budget=None, alert__team=budget.team) & ~Q(channel__in=others)
    )
    Delivery.objects.bulk_create(
        (Delivery(alert=row.alert, channel=channel, next_attempt_at=row.alert.fired_at)
         for row in waiting.select_related("alert") for channel in set(channels) - before),
        ignore_conflicts=True,
    )  # fmt: skip
    waiting.delete()


def _plan(budget: Budget) -> dict[str, Decimal]:
    return dict(PlanAmount.objects.filter(budget=budget.pk).values_list("month", "amount"))


def _ladder(budget: Budget) -> list[Rung]:
    return [row.rung for row in BudgetAction.objects.filter(budget=budget.pk).order_by("action")]


def _shown(budget: Budget) -> dict[str, Any]:
    """Return a budget as the audit log stores it; channels by name."""
    return {
        **{name: getattr(budget, name) for name in ("period", *SCOPE_FIELDS, "thresholds", "forecast_thresholds",
                                                    "commitment_thresholds", "name", "owner", "revision")},
        "amount": str(budget.amount),
        "reservation": None if budget.reservation is None else str(budget.reservation.normalize()),
        "valid_from": budget.valid_from and budget.valid_from.isoformat(),
        "valid_until": budget.valid_until and budget.valid_until.isoformat(),
        "plan": {month: str(amount) for month, amount in sorted(_plan(budget).items())},
        "ladder": [asdict(rung) for rung in _ladder(budget)],
        "channels": sorted(budget.channels.values_list("name", flat=True)),
    }  # fmt: skip


def _channels(team: Team, names: Iterable[str], language: str = "") -> list[Channel]:
    """Return the channels of those names; a name with an @ is a mail address, whose channel is created if missing."""
    wanted = list(dict.fromkeys(names))
    if len(wanted) > MOST_RECIPIENTS:
        raise BudgetError(Message(
            "recipients: %(n)s are more than %(most)s; use a mailing list", n=len(wanted), most=MOST_RECIPIENTS
        ))
    return [_mail(name, language) if "@" in name else _channel(team, name) for name in wanted]


def _mail(address: str, language: str) -> Channel:
    try:
        validate_email(address)
    except ValidationError as error:
        raise BudgetError(Message("recipient %(address)s: is not a mail address", address=repr(address))) from error
    channel, _ = Channel.objects.get_or_create(name=address, defaults={"mail": address, "language": language})
    return channel


def _channel(team: Team, name: str) -> Channel:
    channel = Channel.objects.filter(name=name).first()
    if channel is None or channel.team_id not in (None, team.pk):
        raise BudgetError(Message(
            "recipient %(name)s: is no channel that %(team)s may use, nor a mail address", name=repr(name), team=team.code
        ))
    if channel.events:
        raise BudgetError(Message("recipient %(name)s: is a webhook, which gets its events by itself", name=repr(name)))
    return channel


@dataclass(frozen=True)
class ChannelWish:
    """Requested channel, complete; `url` is an Apprise address, or with `events` the address and `secret` of a webhook."""

    name: str
    url: str
    team: Team | None = None
    digest_at: time | None = None
    quiet_from: time | None = None
    quiet_until: time | None = None
    language: str = ""
    secret: str = ""
    events: tuple[str, ...] = ()


def channel_put(*, wish: ChannelWish, actor: str) -> bool:
    """Store a channel; True if anything changed.  Raises BudgetError, which never repeats the address.

    An empty `url` or `secret` keeps that of an existing channel, for editors who may not see it. Giving a channel to a team
    removes it from the recipients of others. A webhook gets what happens from its subscription on.
    """
    known = Channel.objects.filter(name=wish.name).exclude(url="").first()
    wish = replace(wish, url=wish.url or (known.url if known else ""))
    wish = replace(wish, secret=(wish.secret or (known.secret if known else "")) if wish.events else "")
    if "@" in wish.name or not wish.name:
        raise BudgetError(Message(
            "channel %(name)s: a name without @; mail addresses are recipients by themselves", name=repr(wish.name)
        ))
    if wish.events:
        _check_webhook(wish)
    elif not is_address(wish.url):
        raise BudgetError(Message("channel %(name)s: its url is no address that Apprise knows", name=repr(wish.name)))
    if (wish.quiet_from is None) != (wish.quiet_until is None):
        raise BudgetError(Message("channel %(name)s: quiet_from and quiet_until go together", name=repr(wish.name)))
    if wish.language not in ("", *(languages := dict(settings.LANGUAGES))):
        raise BudgetError(Message(
            "channel %(name)s: language %(language)s is none of %(names)s",
            name=repr(wish.name), language=repr(wish.language), names=", ".join(languages),
        ))
    values = {name: value for name, value in vars(wish).items() if name != "name"}
    since = (known.events or {}) if known else {}
    values["events"] = {kind: since.get(kind, timezone.now().isoformat()) for kind in sorted(wish.events)} or None
    with transaction.atomic():
        stored = Channel.objects.filter(name=wish.name).first()
        if stored and all(getattr(stored, name) == value for name, value in values.items()):
            return False
        channel, _ = Channel.objects.update_or_create(name=wish.name, defaults=values)
        shown = {name: str(value) for name, value in values.items() if name not in SECRETS and value not in (None, "")}
        shown |= {} if stored is None else {
            name: "(changed)" for name in SECRETS if getattr(stored, name) != getattr(wish, name)
        }
        if wish.events:
            shown["events"] = ", ".join(sorted(wish.events))
        waiting = channel.webhook_events.filter(status=Delivery.Status.PENDING)
        waiting.exclude(kind__in=wish.events).delete()
        if wish.team is not None:
            waiting.exclude(team=None).exclude(team__in=team_and_below(wish.team.pk)).delete()
        audit_record(actor=actor, action="channel_put", subject=wish.name, detail=shown)
        if wish.team is not None:
            _leave_others(channel, wish.team, actor)
    return True


def _check_webhook(wish: ChannelWish) -> None:
    """Raise BudgetError unless the channel can be a webhook."""
    kinds = WebhookEvent.Kind.values
    if unknown := next((kind for kind in wish.events if kind not in kinds), None):
        raise BudgetError(Message(
            "channel %(name)s: event %(kind)s is none of %(names)s",
            name=repr(wish.name), kind=repr(unknown), names=", ".join(kinds),
        ))
    if not is_webhook_address(wish.url):
        raise BudgetError(Message(
            "channel %(name)s: the url of a webhook must be like https://erp.example.com/hooks", name=repr(wish.name)
        ))
    if signing_key(wish.secret) is None:
        raise BudgetError(Message(
            "channel %(name)s: the secret of a webhook must be whsec_ and 24 to 64 bytes in Base64", name=repr(wish.name)
        ))
    if wish.digest_at or wish.quiet_from or wish.quiet_until:
        raise BudgetError(Message(
            "channel %(name)s: a webhook gets events at once, without digest_at or quiet hours", name=repr(wish.name)
        ))
    if Budget.objects.filter(channels__name=wish.name).exists():
        raise BudgetError(Message(
            "channel %(name)s: is a recipient of budgets; a webhook is none, give it a name of its own", name=repr(wish.name)
        ))


def _leave_others(channel: Channel, team: Team, actor: str) -> None:
    """Stop sending alerts of teams other than `team` to a channel, pending ones included."""
    for budget in channel.budgets.exclude(team=team).select_related("team"):
        kept = budget.channels.exclude(pk=channel.pk).values_list("name", flat=True)
        recipients_put(budget=budget, names=kept, actor=actor)
    channel.deliveries.filter(status=Delivery.Status.PENDING).exclude(alert__team=team).delete()


def recipients_put(*, budget: Budget, names: Iterable[str], actor: str, language: str = "") -> bool:
    """Replace the alert recipients of a budget; True if anything changed.  Raises BudgetError.

    Mails to a new address are in `language`: that of the person who adds it.
    """
    with transaction.atomic():
        before = sorted(budget.channels.values_list("name", flat=True))
        channels = _channels(budget.team, names, language)
        after = sorted(channel.name for channel in channels)
        if before == after:
            return False
        _recipients_set(budget, channels)
        detail = {"before": before, "after": after}
        audit_record(actor=actor, action="budget_recipients_put", subject=str(budget), detail=detail)
    return True


def thresholds_put(*, budget: Budget, percents: Mapping[str, Iterable[int]], actor: str) -> bool:
    """Replace the thresholds of a budget, by the fields of THRESHOLDS; True if anything changed.  Raises BudgetError.

    A percentage that stays and fired in this period does not fire again.
    """
    wanted = {name: sorted(set(percents.get(name, ()))) for name in THRESHOLDS}
    for name, values in wanted.items():
        if any(not 1 <= value <= MOST_PERCENT for value in values):
            raise BudgetError(Message(
                "%(name)s %(text)s: must be whole percents from 1 to %(most)s", name=name, text=values, most=MOST_PERCENT
            ))
    with transaction.atomic():
        stored = Budget.objects.select_for_update().get(pk=budget.pk)
        before = {name: list(getattr(stored, name)) for name in THRESHOLDS}
        if before == wanted:
            return False
        Budget.objects.filter(pk=budget.pk).update(**wanted)
        detail = {"before": before, "after": wanted}
        audit_record(actor=actor, action="budget_thresholds_put", subject=str(budget), detail=detail)
    return True


def mute_put(*, budget: Budget, until: datetime, reason: str, now: datetime, actor: str) -> Mute:
    """Hold back the alerts of a budget until then.  Raises BudgetError: a mute has an end and a reason."""
    if not now < until:
        raise BudgetError(Message(
            "mute until %(until)s: must lie in the future; every mute expires", until=until.isoformat()
        ))
    if not reason.strip():
        raise BudgetError(Message("mute: a reason is missing"))
    with transaction.atomic():
        mute = Mute.objects.create(
            team=budget.team, budget=budget, since=now, until=until, reason=reason.strip()[:500], by=actor
        )
        detail = {"until": until.isoformat(), "reason": mute.reason}
        audit_record(actor=actor, action="mute_put", subject=str(budget), detail=detail)
    return mute


def mute_end(*, mute: Mute, now: datetime, actor: str) -> None:
    """End a mute before its time; muted alerts are then sent."""
    with transaction.atomic():
        if mute.since < now:
            Mute.objects.filter(pk=mute.pk, until__gt=now).update(until=now)
        audit_record(actor=actor, action="mute_end", subject=str(mute.budget or mute.team), detail={})
