"""The form of a new budget: what was typed, kept as it was written, and each refusal beside the field it is about."""

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from django.http import QueryDict
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.budgets.models import LONGEST_PATTERN, SCOPE_FIELDS, Budget
from billing.budgets.services import BudgetError, BudgetWish
from billing.budgets.services.budgets import MOST_PERCENT, THRESHOLDS
from billing.runtime.translation import translated
from billing.tenancy.models import Team
from metering.intervals import MONTH
from metering.messages import Message
from pricing.fields import shown

LONGEST_NAME = 200
MOST_AMOUNT = Decimal(10**12)
PLAN_ROWS = 12
YEARS = range(2000, 2200)
AMOUNT: Final = re.compile(r"([0-9]{1,3}(,[0-9]{3})+|[0-9]+)(\.[0-9]{1,2})?")
LABELS: Final = {
    "team": _("Team or group"), "name": _("Name"), "owner": _("Owner"),
    "cluster": _("Cluster"), "namespace": _("Namespace"), "consumer": _("Consumer"),
    "accelerator": _("Accelerator or slice"), "model": _("Model"),
    "period": _("Period"), "amount": _("Amount"), "valid_from": _("From"), "valid_until": _("Ends on the morning of"),
    "thresholds": _("Percent of spending"), "forecast_thresholds": _("Percent of the forecast"),
    "commitment_thresholds": _("Percent of spending with running jobs"),
}  # fmt: skip
LIMITS: Final = {"name": LONGEST_NAME, "owner": LONGEST_NAME, **dict.fromkeys(SCOPE_FIELDS, LONGEST_PATTERN)}


@dataclass
class Field:
    """One field as it stands in the form, with what is wrong with it."""

    name: str
    text: str
    errors: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What the page calls the field."""
        return str(LABELS[self.name])

    @property
    def limit(self) -> int:
        """The most characters that are kept of it."""
        return LIMITS.get(self.name, LONGEST_NAME)


@dataclass
class PlanRow:
    """One month of a plan as it stands in the form."""

    month: str
    amount: str
    errors: list[str] = field(default_factory=list)


@dataclass
class BudgetForm:
    """What the form shows: the fields by name, the months of a plan, and what is wrong with neither of them alone."""

    fields: dict[str, Field]
    plan: list[PlanRow]
    errors: list[str] = field(default_factory=list)
    plan_errors: list[str] = field(default_factory=list)

    @property
    def messages(self) -> list[str]:
        """Every refusal in the order of the page."""
        of_fields = [text for item in self.fields.values() for text in item.errors]
        return [*self.errors, *of_fields, *self.plan_errors, *(text for row in self.plan for text in row.errors)]

    def wish(self, zone: str) -> tuple[Team, BudgetWish] | None:
        """What is asked for; None where anything is refused, which then stands beside its field."""
        team, period = self._team(), self._period()
        texts = {name: self._printable(name) for name in LIMITS}
        if texts["accelerator"] and texts["model"]:
            self._refuse("model", gettext("stands beside an accelerator, and no usage has both: give one of them"))
        plan = self._plan(period)
        amount = self._amount() if period != Budget.Period.PLAN else self._sum(plan)
        since, until = self._day("valid_from", zone), self._day("valid_until", zone)
        if since and until and until <= since:
            begins = {"start": self.fields["valid_from"].text}
            self._refuse("valid_until", gettext("must come after %(start)s, on which the budget begins") % begins)
        actual, forecast, commitment = (
            self._percents(name) for name in ("thresholds", "forecast_thresholds", "commitment_thresholds")
        )
        if team is None or amount is None or self.messages:
            return None
        return team, BudgetWish(
            period=period, amount=amount, plan=plan, valid_from=since, valid_until=until,
            thresholds=actual, forecast_thresholds=forecast, commitment_thresholds=commitment,
            name=texts["name"], owner=texts["owner"], cluster=texts["cluster"], namespace=texts["namespace"],
            consumer=texts["consumer"], accelerator=texts["accelerator"], model=texts["model"],
        )

    def refuse(self, error: BudgetError) -> None:
        """Note what the service refused."""
        self.errors.append(translated(error))

    def _refuse(self, name: str, rule: str) -> None:
        item = self.fields[name]
        item.errors.append(_told(item.label, item.text, rule))

    def _team(self) -> Team | None:
        code = self.fields["team"].text
        team = Team.objects.filter(code=code).first()
        if team is None:
            self._refuse("team", gettext("there is no such team") if code else gettext("is missing"))
        return team

    def _period(self) -> str:
        period = self.fields["period"].text
        if period not in Budget.Period.values:
            self._refuse("period", gettext("must be month, quarter or plan"))
        return period

    def _printable(self, name: str) -> str:
        text, limit = self.fields[name].text, LIMITS[name]
        if len(text) > limit or not text.isprintable():
            self._refuse(name, gettext("must be printable text of up to %(limit)s characters") % {"limit": limit})
        return text

    def _amount(self) -> Decimal | None:
        found = _money(self.fields["amount"].text)
        if found is None:
            self._refuse("amount", _amount_rule())
        return found

    def _sum(self, plan: dict[str, Decimal]) -> Decimal:
        if self.fields["amount"].text:
            self._refuse("amount", gettext("must be left out: the amount of a plan is the sum of its months"))
        return sum(plan.values(), Decimal(0))

    def _plan(self, period: str) -> dict[str, Decimal]:
        """The amounts by month; rows without an amount ask for nothing."""
        plan: dict[str, Decimal] = {}
        rows = [row for row in self.plan if row.amount]
        for row in rows:
            amount = _money(row.amount)
            if period != Budget.Period.PLAN:
                rule = gettext("must be left out: only a plan has amounts by month")
                row.errors.append(_told(row.month, row.amount, rule))
            elif not MONTH.match(row.month) or int(row.month[:4]) not in YEARS:
                row.errors.append(_told(gettext("Month"), row.month, gettext("must be a month such as 2026-10")))
            elif row.month in plan:
                row.errors.append(_told(gettext("Month"), row.month, gettext("is there twice")))
            elif amount is None:
                row.errors.append(_told(row.month, row.amount, _amount_rule()))
            else:
                plan[row.month] = amount
        if period == Budget.Period.PLAN and not rows:
            self.plan_errors.append(_told(gettext("Amounts by month"), "", gettext("at least one month needs its amount")))
        return plan

    def _day(self, name: str, zone: str) -> datetime | None:
        """Local midnight at the beginning of a day; None where the field is empty or refused."""
        text = self.fields[name].text
        try:
            day = date.fromisoformat(text) if text else None
            if day is not None and day.year not in YEARS:
                raise ValueError(text)
        except ValueError:
            self._refuse(name, gettext("must be a day from 2000 to 2199 such as 2026-11-30"))
            return None
        return None if day is None else datetime.combine(day, time(), ZoneInfo(zone)).astimezone(UTC)

    def _percents(self, name: str) -> tuple[int, ...]:
        try:
            found = sorted(set(percents_written(name, self.fields[name].text)))
        except BudgetError:
            found = [0]
        if any(not 1 <= value <= MOST_PERCENT for value in found):
            self._refuse(name, gettext("must be whole percents from 1 to %(most)s") % {"most": MOST_PERCENT})
        return tuple(found)


def blank_form(today: date) -> BudgetForm:
    """The form before anything was typed: the usual thresholds, and the months of a year from this one on."""
    texts = {name: ", ".join(str(value) for value in usual) for name, usual in THRESHOLDS.items()}
    texts["period"] = Budget.Period.MONTH
    months = [divmod(today.year * 12 + today.month - 1 + ahead, 12) for ahead in range(PLAN_ROWS)]
    rows = [PlanRow(f"{year}-{month + 1:02d}", "") for year, month in months]
    return BudgetForm({name: Field(name, texts.get(name, "")) for name in LABELS}, rows)


def form_of_post(data: QueryDict) -> BudgetForm:
    """The form as it was sent."""
    given = zip(data.getlist("plan_month"), data.getlist("plan_amount"), strict=False)
    rows = [PlanRow(_plain(month), _plain(amount)) for month, amount in given]
    return BudgetForm({name: Field(name, _plain(data.get(name, ""))) for name in LABELS}, rows)


def percents_written(name: str, text: str) -> list[int]:
    """Whole percents as people write a list of them.  Raises BudgetError."""
    words = [word for word in re.split(r"[\s,;，、；%]+", text) if word]
    if not all(word.isdecimal() and len(word) <= len(str(MOST_PERCENT)) for word in words):
        raise BudgetError(Message(
            "%(name)s %(text)s: must be whole percents from 1 to %(most)s", name=name, text=text[:60], most=MOST_PERCENT
        ))
    return [int(word) for word in words]


def _plain(text: object) -> str:
    return str(text).replace("\0", "").strip()


def _money(text: str) -> Decimal | None:
    """An amount as people write it, thousands parted by commas or not; None where it is none that may be planned."""
    found = Decimal(text.replace(",", "")) if AMOUNT.fullmatch(text) else Decimal(0)
    return found if 0 < found <= MOST_AMOUNT else None


def _amount_rule() -> str:
    return gettext("must be an amount from 0.01 to %(most)s with at most 2 decimals, such as 100,000.00") % {
        "most": f"{MOST_AMOUNT:,}"
    }


def _told(label: str, text: str, rule: str) -> str:
    if not text:
        return gettext("%(field)s: %(text)s") % {"field": label, "text": rule}
    return gettext("%(field)s %(value)s: %(rule)s") % {"field": label, "value": shown(text), "rule": rule}
