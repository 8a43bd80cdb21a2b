"""Heartbeats of worker and scheduler, which have no endpoint to probe."""

from django.db import models


class Heartbeat(models.Model):
    """Time of the last heartbeat of a part."""

    class Part(models.TextChoices):
        WORKER = "worker", "worker"
        SCHEDULER = "scheduler", "scheduler"

    part = models.CharField(max_length=16, primary_key=True, choices=Part.choices)
    at = models.DateTimeField()
