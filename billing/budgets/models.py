"""Budgets: planned amounts by scope, their status, and the alerts that were sent."""

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Self

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.db import models
from django.db.models import F, Q

from billing.approvals.models import OfKind, Proposal
from billing.budgets.thresholds import ACTIONS, Rung
from billing.tenancy.models import Team, ValidRange
from pricing.number_text import amount_text

LONGEST_PATTERN = 128
MOST_DIGITS = 40
"""Digits of sums: no number of accepted records, at accepted prices, adds up to more."""
SCOPE_FIELDS = ("cluster", "namespace", "consumer", "accelerator", "model")
SPENT_LATE: Final = timedelta(minutes=5)
"""Age from which a sum is late: budgets are summed every minute."""
FORECAST_LATE: Final = timedelta(minutes=30)
"""Age from which a forecast is late: budgets are forecast every quarter of an hour."""


class Channel(models.Model):
    """Destination of alerts: an Apprise address, which is a secret, or a mail address sent through the mail set-up.

    `team`: only budgets of this team may name it. `digest_at`: everything but urgent alerts waits for that local time of
    day. Between `quiet_from` and `quiet_until` (local) only urgent alerts are sent. `language`: of its readers; empty
    for the language of the installation.

    A channel with `events` is a webhook: it takes events of these kinds as signed JSON, and no message. `events`: the
    instant of subscription by kind (RFC 3339); `secret`: the signing key as `whsec_` and Base64, never shown, never logged.
    """

    name = models.CharField(max_length=200, unique=True)
    url = models.TextField(blank=True, help_text="Apprise address; never shown, never logged")
    mail = models.EmailField(blank=True)
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="channels")
    digest_at = models.TimeField(null=True, blank=True)
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_until = models.TimeField(null=True, blank=True)
    language = models.CharField(max_length=16, blank=True, db_default="")
    secret = models.TextField(blank=True, db_default="")
    events = models.JSONField(null=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=(Q(url="") & ~Q(mail="")) | (~Q(url="") & Q(mail="")), name="channel_is_an_address_or_a_mail"
            ),
            models.CheckConstraint(
                condition=Q(quiet_from=None, quiet_until=None) | Q(quiet_from__isnull=False, quiet_until__isnull=False),
                name="quiet_hours_begin_and_end",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def event_names(self) -> str:
        """Return the kinds of events that a webhook takes."""
        return ", ".join(sorted(self.events or ()))


class Budget(models.Model):
    """Amount per period for the spending of a team, or of every team below a group, within a scope.

    The scope is everything, or what matches all patterns given: `cluster` and `namespace` of devices, `consumer` of tokens,
    one `accelerator` (or slice) or one `model`. A new amount is a new `revision`, which arms every threshold again.
    """

    class Period(models.TextChoices):
        MONTH = "month", "month"
        QUARTER = "quarter", "quarter"
        PLAN = "plan", "plan with monthly amounts"

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="budgets")
    name = models.CharField(max_length=200, blank=True)
    period = models.CharField(max_length=16, choices=Period.choices)
    cluster = models.CharField(max_length=LONGEST_PATTERN, blank=True)
    namespace = models.CharField(max_length=LONGEST_PATTERN, blank=True)
    consumer = models.CharField(max_length=LONGEST_PATTERN, blank=True)
    accelerator = models.CharField(max_length=LONGEST_PATTERN, blank=True)
    model = models.CharField(max_length=LONGEST_PATTERN, blank=True)
    amount = models.DecimalField(max_digits=20, decimal_places=2, help_text="of one period; of a plan the sum")
    revision = models.IntegerField(default=1)
    thresholds = ArrayField(models.IntegerField(), help_text="percent of the amount, actual spending")
    forecast_thresholds = ArrayField(models.IntegerField(), default=list, help_text="percent, forecast of the period")
    commitment_thresholds = ArrayField(models.IntegerField(), default=list, help_text="percent, with running jobs")
    owner = models.CharField(max_length=200, blank=True)
    channels = models.ManyToManyField(Channel, blank=True, related_name="budgets")
    reservation = models.DecimalField(
        max_digits=20, decimal_places=4, null=True, blank=True, help_text="held per checked request unless it says more"
    )
    valid_from = models.DateTimeField(null=True, blank=True)
    valid_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["team__code", "name", "id"]
        constraints = [
            ExclusionConstraint(
                name="one_budget_per_scope_and_period_at_a_time",
                expressions=[
                    *((field, RangeOperators.EQUAL) for field in ("team", "period", *SCOPE_FIELDS)),
                    (ValidRange("valid_from", "valid_until"), RangeOperators.OVERLAPS),
                ],
            ),
            models.CheckConstraint(condition=Q(amount__gt=0), name="budget_is_positive"),
            models.CheckConstraint(
                condition=Q(valid_from=None) | Q(valid_until=None) | Q(valid_from__lt=F("valid_until")),
                name="budget_ends_after_it_starts",
            ),
        ]

    def __str__(self) -> str:
        return self.name or f"{self.team.code} {self.period}"

    @property
    def is_whole_team(self) -> bool:
        """Return True if the budget covers everything that its team spends."""
        return not any(getattr(self, field) for field in SCOPE_FIELDS)


class PlanAmount(models.Model):
    """Amount that a plan allows in one month."""

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="plan")
    month = models.CharField(max_length=7)
    amount = models.DecimalField(max_digits=20, decimal_places=2)

    class Meta:
        ordering = ["month"]
        constraints = [
            models.UniqueConstraint(fields=["budget", "month"], name="one_plan_amount_per_month"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="plan_amount_is_positive"),
        ]


class BudgetAction(models.Model):
    """One step of a budget's ladder of actions."""

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="ladder")
    percent = models.IntegerField()
    action = models.CharField(max_length=32, choices=[(action, action) for action in ACTIONS])
    tokens_per_minute = models.BigIntegerField(null=True, blank=True)
    floor_tokens_per_minute = models.BigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["percent", "action"]
        constraints = [models.UniqueConstraint(fields=["budget", "action"], name="one_rung_per_action")]

    @property
    def rung(self) -> Rung:
        return Rung(self.percent, self.action, self.tokens_per_minute, self.floor_tokens_per_minute)


class BudgetStatus(models.Model):
    """Status of a budget in one of its periods: the counter from which checks are answered, and the last forecast.

    `spent` is the sum of the rounded lines that a close would bill, so it equals preview and invoice. `encumbered`: expected
    cost of running jobs until the period ends. `generation` orders refreshes: one that started earlier never replaces a
    later one. `data_through`: instant up to which the usage behind `spent` is complete. `forecast_withheld`: why there is no
    forecast.
    """

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="standings")
    period = models.CharField(max_length=7, help_text="2026-10 or 2026-Q4")
    start = models.DateTimeField()
    end = models.DateTimeField()
    amount = models.DecimalField(max_digits=20, decimal_places=2)
    spent = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2)
    encumbered = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2)
    as_of = models.DateTimeField()
    generation = models.BigIntegerField()
    forecast_method = models.CharField(max_length=16, blank=True)
    forecast_p10 = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2, null=True)
    forecast_p50 = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2, null=True)
    forecast_p90 = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2, null=True)
    forecast_errors = models.JSONField(default=dict, help_text="back-tested error by method, ratio as text")
    forecast_windows = models.IntegerField(default=0)
    forecast_at = models.DateTimeField(null=True)
    forecast_withheld = models.CharField(max_length=16, blank=True, default="", db_default="")
    data_through = models.DateTimeField(null=True, help_text="None: unknown, or no usage was ever reported")
    silent_since = models.DateTimeField(null=True, help_text="a reporter of the scope is silent since then")

    class Meta:
        ordering = ["-start"]
        constraints = [models.UniqueConstraint(fields=["budget", "period"], name="one_standing_per_period")]

    def __str__(self) -> str:
        return f"{self.budget} {self.period}"

    def spent_as_of(self, now: datetime) -> datetime | None:
        """Return the instant of the sum if it is late, so that a reader must see it; else None."""
        return self.as_of if now - self.as_of > SPENT_LATE else None

    def forecast_as_of(self, now: datetime) -> datetime | None:
        """Return the instant of the forecast if it is late; else None."""
        made = self.forecast_at
        return made if made is not None and now - made > FORECAST_LATE else None


class DailySpend(models.Model):
    """Cost of one line of usage on one local day at list price: the past for forecasts and anomalies.

    Without efficiency adjustments and corrections, which are known later than the day; not what is billed.
    """

    day = models.DateField()
    team = models.CharField(max_length=64)
    kind = models.CharField(max_length=16)
    cluster = models.CharField(max_length=512, blank=True)
    namespace = models.CharField(max_length=512, blank=True)
    consumer = models.CharField(max_length=512, blank=True)
    accelerator = models.CharField(max_length=512, blank=True)
    sku = models.CharField(max_length=512)
    amount = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=6)

    class Meta:
        indexes = [models.Index(fields=["day", "team"], name="spend_day_team")]


class DailyTeamSpend(models.Model):
    """Sum of the stored past of one whole team on one day: eight months of an installation are many lines."""

    day = models.DateField()
    team = models.CharField(max_length=64)
    amount = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=6)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "day"], name="one_sum_per_team_and_day")]


class CountedDays(models.Model):
    """Last local day up to which the stored past is complete: a day without spending leaves no row of its own.

    `judged`: last day that was searched for anomalies.
    """

    through = models.DateField()
    judged = models.DateField(null=True)


class CostAnomaly(models.Model):
    """A day on which a team spent unusually much on one SKU, and the feedback on it."""

    class Feedback(models.TextChoices):
        TRUE = "true", "was unusual"
        FALSE = "false", "false alarm"
        PLANNED = "planned", "was planned"

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="findings")
    kind = models.CharField(max_length=16)
    sku = models.CharField(max_length=512)
    day = models.DateField()
    amount = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2)
    median = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2)
    mad = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2)
    z = models.DecimalField(max_digits=16, decimal_places=3)
    basis = models.CharField(max_length=16, help_text="own or peers")
    found_at = models.DateTimeField()
    feedback = models.CharField(max_length=16, choices=Feedback.choices, blank=True)
    feedback_note = models.CharField(max_length=500, blank=True)
    feedback_by = models.CharField(max_length=200, blank=True)
    feedback_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-day", "-amount"]
        constraints = [models.UniqueConstraint(fields=["team", "kind", "sku", "day"], name="one_finding_per_day")]


class Alert(models.Model):
    """One alert, sent once. `cause` identifies it: the same cause never makes a second alert."""

    class Kind(models.TextChoices):
        THRESHOLD = "threshold", "threshold reached"
        BURN = "burn", "spends too fast"
        ANOMALY = "anomaly", "unusual day"
        SILENCE = "silence", "metering is silent"

    class Level(models.TextChoices):
        INFO = "info", "information"
        WARNING = "warning", "warning"
        URGENT = "urgent", "urgent"

    cause = models.CharField(max_length=200, unique=True)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    level = models.CharField(max_length=16, choices=Level.choices)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="alerts")
    budget = models.ForeignKey(Budget, null=True, on_delete=models.CASCADE, related_name="alerts")
    finding = models.ForeignKey(CostAnomaly, null=True, on_delete=models.CASCADE, related_name="alerts")
    period = models.CharField(max_length=10, help_text="2026-10, 2026-Q4 or a day")
    basis = models.CharField(max_length=16, help_text="actual, forecast, commitment; 6h or 3d; own or peers")
    percent = models.IntegerField(null=True)
    value = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2)
    amount = models.DecimalField(max_digits=MOST_DIGITS, decimal_places=2, help_text="what the value is compared with")
    owner = models.CharField(max_length=200, blank=True)
    data_time = models.DateTimeField(help_text="through when the usage in the value is complete")
    fired_at = models.DateTimeField()

    class Meta:
        ordering = ["-fired_at", "-id"]


class Delivery(models.Model):
    """Delivery of one alert to one channel; after a failure it stays pending until the channel accepts it."""

    class Status(models.TextChoices):
        PENDING = "pending", "to be sent"
        SENT = "sent", "sent"

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.PENDING)
    attempts = models.IntegerField(default=0)
    next_attempt_at = models.DateTimeField()
    last_error = models.CharField(max_length=300, blank=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["alert", "channel"], name="one_delivery_per_alert_and_channel")]
        indexes = [
            models.Index(fields=["channel", "next_attempt_at"], condition=Q(status="pending"), name="delivery_pending")
        ]


class WebhookEvent(models.Model):
    """One event for one webhook, which is pending until the webhook accepts it. An attempt sends the same id and `body`."""

    class Kind(models.TextChoices):
        CLOSED = "closed", "month closed"
        ISSUED = "issued", "document issued"
        BUDGET = "budget", "alert of a budget"
        ANOMALY = "anomaly", "unusual day"

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="webhook_events")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    team = models.ForeignKey(Team, null=True, on_delete=models.CASCADE, related_name="+")
    subject = models.CharField(max_length=200, help_text="what happened: number of a document, close, or cause of an alert")
    identity = models.CharField(max_length=64, help_text="id that the receiver sees: the same at each attempt")
    body = models.TextField(help_text="JSON that is sent and signed")
    status = models.CharField(max_length=16, choices=Delivery.Status.choices, default=Delivery.Status.PENDING)
    attempts = models.IntegerField(default=0)
    next_attempt_at = models.DateTimeField()
    last_error = models.CharField(max_length=300, blank=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["channel", "kind", "subject"], name="one_webhook_event_per_cause"),
        ]
        indexes = [
            models.Index(fields=["channel", "next_attempt_at"], condition=Q(status="pending"), name="webhook_event_pending")
        ]


class Mute(models.Model):
    """Pause of the alerts of a team, or of one of its budgets, until an instant; muted alerts are sent afterwards."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="mutes")
    budget = models.ForeignKey(Budget, null=True, blank=True, on_delete=models.CASCADE, related_name="mutes")
    since = models.DateTimeField()
    until = models.DateTimeField()
    reason = models.CharField(max_length=500)
    by = models.CharField(max_length=200)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(since__lt=F("until")), name="mute_ends_after_it_starts")]


class CapOverrideProposal(Proposal):
    """Proposal to let a budget pass its cap."""

    objects: ClassVar[OfKind[Self]] = OfKind("cap_override")

    class Meta:
        proxy = True


class BudgetChange(Proposal):
    """Proposal that a budget with a cap allows more or ends early; `payload` has the budget, its terms, and the wish."""

    objects: ClassVar[OfKind[Self]] = OfKind("budget_change")

    class Meta:
        proxy = True

    budget_id = property(lambda self: self.payload["budget"])
    before = property(lambda self: self.payload["before"])

    @property
    def after(self) -> dict[str, Any]:
        """Return the requested values, by the names of `before`."""
        wish = self.payload["wish"]
        return {name: wish[name] for name in self.before}

    @property
    def ends(self) -> list[datetime | None]:
        """Return the current and the requested end of the budget."""
        ends = (self.before["valid_until"], self.after["valid_until"])
        return [end and datetime.fromisoformat(end) for end in ends]


class CapOverride(models.Model):
    """Raise of a budget's cap by `amount`, in force `until` an instant once a second person approves it."""

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="overrides")
    amount = models.DecimalField(max_digits=20, decimal_places=2, help_text="by which the cap is raised")
    until = models.DateTimeField()
    proposal = models.OneToOneField(CapOverrideProposal, on_delete=models.PROTECT, related_name="override")

    class Meta:
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=Q(amount__gt=0), name="override_raises_the_cap")]

    reason = property(lambda self: self.proposal.reason)
    asked_by = property(lambda self: self.proposal.created_by)
    approved_by = property(lambda self: ", ".join(self.proposal.approvers))

    @property
    def terms(self) -> dict[str, str | int]:
        """Return the requested terms, as the proposal stores them."""
        until = self.until.astimezone(UTC).isoformat()
        return {"budget": self.budget_id, "amount": amount_text(self.amount), "until": until}
