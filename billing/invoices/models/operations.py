"""Long operations that a worker or a command executes for a month."""

from django.db import models

from metering.messages import Message


class Operation(models.Model):
    """Request to rate, close or issue, executed by a worker or a command, again after each crash until it is finished.

    A row is claimed by an advisory lock of a transaction, which PostgreSQL releases if the claimant dies.
    """

    class Status(models.TextChoices):
        PENDING = "pending", "pending"
        DONE = "done", "done"
        REFUSED = "refused", "refused"
        FAILED = "failed", "failed"

    kind = models.CharField(max_length=32)
    month = models.CharField(max_length=7)
    parameters = models.JSONField(default=dict)
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField(auto_now_add=True)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.PENDING)
    attempts = models.IntegerField(default=0)
    message = models.TextField(blank=True)
    finished_at = models.DateTimeField(null=True)
    step = models.CharField(max_length=16, blank=True, default="", help_text="what a runner was at when it last told")
    done = models.IntegerField(default=0)
    total = models.IntegerField(default=0, help_text="how many parts the step has, 0 where nobody counts")

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["status", "id"], name="operation_pending")]

    @property
    def outcome(self) -> Message:
        """Return the outcome as a translatable message; `message` is its English text."""
        return Message.from_json(self.parameters.get("message", self.message))
