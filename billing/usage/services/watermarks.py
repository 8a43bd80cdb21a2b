"""Watermarks: up to when an agent has told everything. They only move forward."""

from datetime import datetime

from django.db import connection


def watermark_advance(*, agent: str, cluster: str, watermark: datetime) -> None:
    """Note that `agent` has reported all it saw of `cluster` before `watermark`."""
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO usage_agentwatermark (agent, cluster, watermark, reported_at) VALUES (%s, %s, %s, now())
               ON CONFLICT (agent, cluster) DO UPDATE
               SET watermark = greatest(usage_agentwatermark.watermark, excluded.watermark), reported_at = now()""",
            [agent, cluster, watermark],
        )
