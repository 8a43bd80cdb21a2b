"""PURE: how an agent tells up to when it has watched a source, behind everything that it told before in the same spool."""

from datetime import datetime
from typing import Final

import msgspec

WATERMARKS: Final = "usage/watermarks"


def watermark_body(*, agent: str, source: str, watermark: datetime) -> bytes:
    """The body for `usage/watermarks`: `agent` has told all that it saw of `source` before `watermark`.

    >>> from datetime import UTC
    >>> watermark_body(agent="log reader", source="envoy-hq", watermark=datetime(2026, 10, 5, 10, tzinfo=UTC)).decode()
    '{"agent":"log reader","source":"envoy-hq","watermark":"2026-10-05T10:00:00Z"}'
    """
    return msgspec.json.encode({"agent": agent, "source": source, "watermark": watermark})
