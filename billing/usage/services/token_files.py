"""Notes which sources of tokens are fed by files: of such a source nobody expects more than its files hold."""

from collections.abc import Iterable
from datetime import datetime

from django.db import connection

from metering.records import TokenUsage


def token_files_note(records: Iterable[TokenUsage]) -> None:
    """Note that these records came in a file."""
    latest: dict[str, datetime] = {}
    for record in records:
        latest[record.source] = max(record.time, latest.get(record.source, record.time))
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO usage_tokenfile (source, until) SELECT * FROM unnest(%s::text[], %s::timestamptz[])
               ON CONFLICT (source) DO UPDATE SET until = greatest(usage_tokenfile.until, excluded.until)""",
            [sorted(latest), [latest[source] for source in sorted(latest)]],
        )
