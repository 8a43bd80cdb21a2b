"""What the log says of requests."""

import logging


class RefusalsInOneLine(logging.Filter):
    """A request that was refused is one line; the frames behind it belong to errors of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the line, without frames below ERROR."""
        if record.levelno < logging.ERROR:
            record.exc_info = None
        return True
