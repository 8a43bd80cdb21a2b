"""A process that dies at a chosen statement."""

import os
import signal
from collections.abc import Callable
from typing import Any


def die_at(statement: int, *, executed: bool) -> Callable[..., Any]:
    """Wrapper of every statement of a connection that kills this process at one of them."""
    count = 0

    def execute(run: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        nonlocal count
        count += 1
        if count == statement and not executed:
            os.kill(os.getpid(), signal.SIGKILL)
        result = run(sql, params, many, context)
        if count == statement:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return execute
