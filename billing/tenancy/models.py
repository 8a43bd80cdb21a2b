"""Billing parties: the set-up of the installation, teams with their billing modes, and dated ownership of namespaces and
consumers.
"""

from django.contrib.auth.models import User
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, DateTimeRangeField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Lower


class ValidRange(Func):
    """SQL range [valid_from, valid_until); a missing bound is unbounded."""

    function = "TSTZRANGE"
    output_field = DateTimeRangeField()


GATHER_CONSUMERS_ABOVE = 40
"""Default number of consumers of a team in a month up to which each has token lines of its own."""


class BillingSetup(models.Model):
    """Billing set-up of this installation, in one row."""

    class Review(models.TextChoices):
        NONE = "none", "drafts of a clean close are approved"
        FOUR_EYES = "four-eyes", "drafts are approved by somebody else than who closed"

    class Reopening(models.TextChoices):
        NEVER = "never", "a closed month stays closed"
        TWO_PERSONS = "two-persons", "a month of which nothing was issued is reopened by two persons"

    singleton = models.BooleanField(primary_key=True, default=True, editable=False)
    currency = models.CharField(max_length=3)
    zone = models.CharField(max_length=64)
    issuer = models.CharField(max_length=64)
    legal_entity = models.CharField(max_length=200, blank=True, default="", help_text="whose books the issuer keeps")
    address = models.CharField(max_length=500, blank=True, default="")
    tax_id = models.CharField(max_length=64, blank=True, default="")
    contact = models.CharField(max_length=200, blank=True, default="", help_text="who answers for the documents")
    review = models.CharField(max_length=16, choices=Review.choices, default=Review.NONE)
    reopening = models.CharField(max_length=16, choices=Reopening.choices, default=Reopening.NEVER)
    holidays = ArrayField(models.DateField(), default=list, help_text="local days without work beside weekends")
    working_days = ArrayField(models.DateField(), default=list, help_text="days of weekends that are worked")
    cost_center_required = models.BooleanField(
        default=False, db_default=False, help_text="a team that is charged without a cost centre blocks the close"
    )
    gather_consumers_above = models.PositiveIntegerField(
        default=GATHER_CONSUMERS_ABOVE, db_default=GATHER_CONSUMERS_ABOVE,
        help_text="with more consumers a team's token lines are per model and class",
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(singleton=True), name="billing_setup_is_one_row")]


class Team(models.Model):
    """Invoiced team, or a group above teams (`is_group`), which owns nothing itself."""

    code = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=200)
    cost_center = models.CharField(max_length=64, blank=True)
    dated_cost_centers = models.JSONField(
        default=list, db_default=[], blank=True, help_text="`value` and `valid_from` of each, where it has more than one"
    )
    department = models.CharField(max_length=200, blank=True, default="", db_default="")
    legal_entity = models.CharField(max_length=200, blank=True, default="")
    dated_organisation = models.JSONField(
        default=dict, db_default={}, blank=True,
        help_text="`value` and `valid_from` of each department, legal entity and parent, where it has more than one",
    )
    recipient = models.CharField(max_length=200, blank=True, default="", help_text="to whose attention documents are")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    is_group = models.BooleanField(default=False)

    class Meta:
        ordering = ["code"]

    def __str__(self) -> str:
        return self.code


class BillingMode(models.Model):
    """Billing mode of a team from `from_month` on: shadow (the charge is only shown) or chargeback, also without any row.

    The month is that of the usage; once it is closed its mode never changes.
    """

    class Mode(models.TextChoices):
        SHADOW = "shadow", "shown, not charged"
        CHARGEBACK = "chargeback", "charged"

    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="billing_modes")
    from_month = models.CharField(max_length=7)
    mode = models.CharField(max_length=16, choices=Mode.choices)
    reason = models.TextField()
    set_by = models.CharField(max_length=200)
    set_at = models.DateTimeField()

    class Meta:
        db_table = "invoices_billingmode"  # where 1.0.0 made it
        ordering = ["team_id", "from_month"]
        constraints = [models.UniqueConstraint(fields=["team", "from_month"], name="one_billing_mode_per_month")]


def _one_owner_at_a_time(place: str, kind: str) -> list[models.BaseConstraint]:
    """Return constraints that two fields have one row at any instant, and that a row ends after it starts."""
    return [
        ExclusionConstraint(
            name=f"one_owner_of_a_{kind}_at_a_time",
            expressions=[
                (place, RangeOperators.EQUAL),
                (kind, RangeOperators.EQUAL),
                (ValidRange("valid_from", "valid_until"), RangeOperators.OVERLAPS),
            ],
        ),
        models.CheckConstraint(
            condition=Q(valid_from=None) | Q(valid_until=None) | Q(valid_from__lt=F("valid_until")),
            name=f"{kind}_ownership_ends_after_it_starts",
        ),
    ]


class NamespaceOwnership(models.Model):
    """Ownership of matching namespaces by `team` in [valid_from, valid_until); `platform`: paid by the platform."""

    team = models.ForeignKey(Team, on_delete=models.PROTECT)
    cluster = models.CharField(max_length=512)
    namespace = models.CharField(max_length=512)
    platform = models.BooleanField(default=False)
    valid_from = models.DateTimeField(null=True, blank=True)
    valid_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = _one_owner_at_a_time("cluster", "namespace")


class ConsumerOwnership(models.Model):
    """Ownership of a gateway's consumer by `team` in [valid_from, valid_until)."""

    team = models.ForeignKey(Team, on_delete=models.PROTECT)
    source = models.CharField(max_length=512)
    consumer = models.CharField(max_length=512)
    valid_from = models.DateTimeField(null=True, blank=True)
    valid_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = _one_owner_at_a_time("source", "consumer")


class TagRule(models.Model):
    """Allowed tag of a source of tokens or a cluster; other tags are not stored.

    `origin`: where the report has it: `tags.NAME` in the field `tags` of a record, `request_tags` or `metadata.NAME` in a
    gateway's request data, `label.NAME` in the labels of an allocation.
    """

    source = models.CharField(max_length=512, blank=True)
    cluster = models.CharField(max_length=512, blank=True)
    key = models.CharField(max_length=64)
    origin = models.CharField(max_length=512)
    longest = models.SmallIntegerField(help_text="characters of a value")
    values_a_day = models.IntegerField(help_text="different values that are kept")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["source", "cluster", "key"], name="one_rule_per_tag")]


class Membership(models.Model):
    """Role of a person: for one team, for a group and all teams below it, or (no team) for everything.

    The rights of each role are in `billing.tenancy.access`.
    """

    class Role(models.TextChoices):
        VIEWER = "viewer", "viewer"
        LEAD = "lead", "team lead"
        FINANCE = "finance", "finance"
        APPROVER = "approver", "approver"
        ADMIN = "admin", "platform admin"
        AUDITOR = "auditor", "auditor"

    class Origin(models.TextChoices):
        LOCAL = "local", "granted here"
        PROVIDER = "provider", "from a group of the identity provider"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    origin = models.CharField(max_length=16, choices=Origin.choices, default=Origin.LOCAL, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "team", "role", "origin"], name="a_role_is_held_once", nulls_distinct=False
            ),
            models.CheckConstraint(
                condition=Q(team=None) | Q(role__in=["viewer", "lead"]), name="roles_of_the_house_are_held_for_all_teams"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} {self.team or '*'}"


class FirstPassword(models.Model):
    """Mark of an account whose password another person chose or saw: its owner must change it at the next sign-in."""

    user = models.OneToOneField(User, primary_key=True, on_delete=models.CASCADE, related_name="first_password")


class ProvisionedAccount(models.Model):
    """Account that the identity provider manages by SCIM, under the names that it has there."""

    user = models.OneToOneField(User, primary_key=True, on_delete=models.CASCADE, related_name="provisioned")
    external_id = models.CharField(max_length=255, unique=True, help_text="the identifier with which the person signs in")
    user_name = models.CharField(max_length=255)
    active = models.BooleanField(null=True, help_text="what the provider last said; empty: it deleted the account")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                Lower("user_name"), name="a_user_name_of_the_provider_is_one_account", condition=Q(active__isnull=False)
            )
        ]


class ApiToken(models.Model):
    """Bearer token of a gateway, agent or script; only its hash is stored."""

    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    scopes = ArrayField(models.CharField(max_length=32))
    source = models.CharField(max_length=512, blank=True, help_text="may report only for this source or cluster")
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, help_text="may read only this team")
    owner = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="api_tokens", help_text="who stands behind it"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)


class TokenAddress(models.Model):
    """Address from which a token was used."""

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="addresses")
    address = models.CharField(max_length=64)
    first_used_on = models.DateField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["token", "address"], name="an_address_of_a_token_is_noted_once")]


class AuditEntry(models.Model):
    """Audit entry of a change that affects money; append-only: the database refuses UPDATE and DELETE."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=64)
    subject = models.CharField(max_length=300)
    detail = models.JSONField(default=dict)
    transaction = models.BigIntegerField(db_default=0, editable=False)  # transaction id of the database

    class Meta:
        ordering = ["id"]
        indexes = [  # partial: each serves one question among millions of entries
            models.Index(fields=["action", "at"], name="audit_backups", condition=models.Q(action__startswith="backup_")),
            models.Index(fields=["subject"], name="makers_of_tokens", condition=models.Q(action="api_token_create")),
            models.Index(fields=["subject"], name="earlier_mails", condition=models.Q(subject__startswith="auth_user ")),
            models.Index(
                fields=["subject"], name="writes_of_roles", condition=models.Q(subject__startswith="tenancy_membership ")
            ),
        ]


class AuditLink(models.Model):
    """Link of the chain over the audit log, written by the database when the entry's transaction commits.

    `digest` = SHA-256 of `previous` and `payload`, in hex; `payload` = the entry as JSON text.
    """

    ordinal = models.BigIntegerField(primary_key=True)
    entry = models.OneToOneField(AuditEntry, on_delete=models.PROTECT, related_name="link")
    payload = models.TextField()
    previous = models.CharField(max_length=64, blank=True)
    digest = models.CharField(max_length=64)

    class Meta:
        ordering = ["ordinal"]


class AnchorDelivery(models.Model):
    """Delivery state of the audit log's head to one outside place."""

    address_sha256 = models.CharField(max_length=64, primary_key=True)
    place = models.CharField(max_length=300)
    ordinal = models.BigIntegerField(default=0)
    sent_at = models.DateTimeField(null=True)
    tried_at = models.DateTimeField(null=True)
    failures = models.IntegerField(default=0)
    error = models.CharField(max_length=300, blank=True)
