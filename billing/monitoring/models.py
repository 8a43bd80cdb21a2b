"""Signs of life of the parts that serve nobody and so cannot be asked."""

from django.db import models


class Heartbeat(models.Model):
    """When a part was last seen at work."""

    class Part(models.TextChoices):
        WORKER = "worker", "worker"
        SCHEDULER = "scheduler", "scheduler"

    part = models.CharField(max_length=16, primary_key=True, choices=Part.choices)
    at = models.DateTimeField()
