"""Log formats: lines for people, or one JSON object each for a log collector."""

import json
import logging
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from django.core.exceptions import DisallowedHost

from billing.runtime.request_id import request_id

LONGEST: Final = 300
"""Limit of logged characters of client input."""


class RefusalsInOneLine(logging.Filter):
    """Log filter that reduces a refused request to one line; tracebacks are for errors of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True to keep a record, without traceback for client errors; drop the duplicate of a disallowed host."""
        if record.name.startswith("django.security"):
            record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
            record.msg, record.args = record.getMessage()[:LONGEST], ()
        elif record.name == "django.request":
            if record.levelno < logging.ERROR:
                record.exc_info = None
            return not _is_of_another_host(record)
        return True


def _is_of_another_host(record: logging.LogRecord) -> bool:
    request = getattr(record, "request", None)
    if request is None or getattr(record, "status_code", 0) != HTTPStatus.BAD_REQUEST:
        return False
    try:
        request.get_host()
    except DisallowedHost:
        return True
    return False


class JsonLine(logging.Formatter):
    """Log formatter of one JSON object per line; `request_id` is present within a request or a task that one started."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname, "logger": record.name, "message": record.getMessage(),
        }  # fmt: skip
        if identifier := request_id():
            line["request_id"] = identifier
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
