"""Proposals by one person for a decision by another, with their history. Each kind is a proxy of `Proposal`."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from billing.tenancy.access import same_person

P = TypeVar("P", bound="Proposal")


class OfKind(models.Manager[P]):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def get_queryset(self) -> models.QuerySet[P]:
        return super().get_queryset().filter(kind=self.kind)


class Proposal(models.Model):
    """Proposal: the proposed content (`payload`), its `makers`, and its state.

    The database refuses a decision by a maker, a decision on other content than the submitted, and any later change.
    """

    class State(models.TextChoices):
        DRAFT = "draft", "being written"
        SUBMITTED = "submitted", "waits for a second person"
        APPROVED = "approved", "approved"
        REJECTED = "rejected", "turned down"
        WITHDRAWN = "withdrawn", "given up"

    WORDS: ClassVar[Mapping[str, str]] = {}
    """Words of the kind for states, where they differ."""

    kind = models.CharField(max_length=32)
    subject = models.CharField(max_length=300, help_text="what it is about: a name, a month")
    payload = models.JSONField(help_text="everything that is proposed")
    reason = models.TextField(blank=True, help_text=_("why, for whoever decides"))
    revision = models.IntegerField(default=1, help_text=_("counts every change of what is proposed"))
    state = models.CharField(max_length=16, choices=State.choices, default=State.DRAFT)
    makers = ArrayField(models.CharField(max_length=200), help_text="who wrote or submitted it, the first one first")
    created_at = models.DateTimeField()
    sha256 = models.CharField(max_length=64, blank=True, help_text=_("of all that was submitted"))
    outcome = models.JSONField(default=dict, help_text="what its approval did")

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["kind", "state"], name="proposals_of_a_kind")]
        constraints = [
            models.CheckConstraint(condition=Q(makers__len__gte=1), name="a_proposal_has_a_maker"),
            models.CheckConstraint(
                condition=~Q(state__in=("submitted", "approved", "rejected")) | (~Q(sha256="") & ~Q(reason="")),
                name="a_proposal_is_decided_after_submission",
            ),
            models.CheckConstraint(condition=Q(state="approved") | Q(outcome={}), name="only_an_approval_has_an_outcome"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} {self.state}"

    @property
    def word(self) -> str:
        """Return the state in the words of its kind."""
        return self.WORDS.get(self.state, self.state)

    @classmethod
    def words(cls) -> set[str]:
        """Return the states of a submitted proposal in the words of the kind."""
        return {cls.WORDS.get(state, state) for state in map(str, cls.State) if state != cls.State.DRAFT}

    @property
    def waits(self) -> bool:
        """Return True if another person has to decide."""
        return self.state == self.State.SUBMITTED

    @property
    def created_by(self) -> str:
        return self.makers[0]

    def made_by(self, actor: str) -> bool:
        """Return True if `actor` is one of the makers, however the name is spelt."""
        return any(same_person(actor, maker) for maker in self.makers)

    @property
    def approvers(self) -> list[str]:
        """Return the actors who approved the present revision; large amounts take more than one."""
        return [step.actor for step in self._steps(Step.Action.APPROVED)]

    @property
    def submission(self) -> "Step | None":
        """Return the step that submitted the present revision; None before."""
        return next(iter(self._steps(Step.Action.SUBMITTED)), None)

    @property
    def submitted_by(self) -> str:
        """Return the actor who submitted the present revision; "" before."""
        return self.submission.actor if self.submission else ""

    @property
    def submitted_at(self) -> datetime | None:
        return self.submission.at if self.submission else None

    @property
    def decided(self) -> "Step | None":
        """Return the step of the decision, a withdrawal included; None before."""
        final = self.state in (self.State.APPROVED, self.State.REJECTED, self.State.WITHDRAWN)
        return self._steps(self.state)[-1] if final else None

    @property
    def decided_by(self) -> str:
        """Return the actor of the decision; "" before."""
        return self.decided.actor if self.decided else ""

    @property
    def decided_at(self) -> datetime | None:
        return self.decided.at if self.decided else None

    @property
    def decision(self) -> str:
        return self.decided.comment if self.decided else ""

    def _steps(self, *actions: str) -> list["Step"]:
        """Return the steps with these actions of the present revision, in order."""
        return [step for step in self.history if step.revision == self.revision and step.action in actions]

    @cached_property
    def history(self) -> list["Step"]:
        return list(self.steps.all())

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        """Read the row again, and the history on next access."""
        super().refresh_from_db(*args, **kwargs)
        self.__dict__.pop("history", None)


class Step(models.Model):
    """Step of a proposal: actor, action, time and comment, and the payload at that time. Append-only."""

    class Action(models.TextChoices):
        CREATED = "created", "created"
        EDITED = "edited", "edited"
        SUBMITTED = "submitted", "submitted"
        NOTED = "noted", "noted"
        APPROVED = "approved", "approved"
        REJECTED = "rejected", "rejected"
        WITHDRAWN = "withdrawn", "withdrawn"

    proposal = models.ForeignKey(Proposal, on_delete=models.PROTECT, related_name="steps")
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=16, choices=Action.choices)
    comment = models.TextField(blank=True)
    revision = models.IntegerField()
    payload = models.JSONField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=~Q(action="rejected") | ~Q(comment=""), name="a_rejection_says_why"),
        ]


def fact(name: str, read: Callable[[Any], Any] = str) -> property:
    """Return a property that reads a fact of the payload; None where that is null."""
    return property(lambda row: None if row.payload[name] is None else read(row.payload[name]))


def instant_text(at: datetime | None) -> str | None:
    """Format an instant for a payload: UTC, with its offset."""
    return None if at is None else at.astimezone(UTC).isoformat()
