"""What the log says, and how: lines for people, or one JSON object each for a collector of logs."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from billing.runtime.request_id import request_id


class RefusalsInOneLine(logging.Filter):
    """A request that was refused is one line; the frames behind it belong to errors of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the line, without frames below ERROR."""
        if record.levelno < logging.ERROR:
            record.exc_info = None
        return True


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
