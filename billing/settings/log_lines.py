"""What the log says, and how: lines for people, or one JSON object each for a collector of logs."""

import json
import logging
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from django.core.exceptions import DisallowedHost

from billing.runtime.request_id import request_id

LONGEST: Final = 300
"""Characters of what a client sent that a line shows."""


class RefusalsInOneLine(logging.Filter):
    """A request that was refused is one line; the frames behind it belong to errors of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the line, without frames where the request is at fault; not the second one of a host that is not ours."""
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
    """One JSON object a line; `request_id` is there where the line belongs to a request or to a task that one started."""

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
