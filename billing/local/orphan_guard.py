"""Guard between a supervisor and one of its parts, so that no process of the part outlives either.

`python -m billing.local.orphan_guard PARENT GRACE -- COMMAND ...`, as the leader of a session of its own. A worker or a web
server forks processes that do not notice when their own parent is killed. They stay in the guard's session whichever
process adopts them, and are found by it. When the command ends, the rest of the session is killed; when PARENT has ended,
the command is asked to stop and killed after GRACE seconds. Exits with the command's status, 128 + n for signal n.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

from billing.local.linux import adopt_orphans, die_with_parent, session_kill

_AWAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_LOOK_SECONDS = 1.0
_NOT_FOUND = 127


def main(arguments: Sequence[str]) -> int:
    parent, grace, _, *command = arguments
    # blocked, so that no signal is lost between a check and `sigtimedwait`
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    die_with_parent(int(parent), signal.SIGTERM)
    adopt_orphans()
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(guard, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        try:
            os.execvp(command[0], command)  # noqa: S606 -- the caller's command, with no shell between
        except OSError as error:
            os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
            os._exit(_NOT_FOUND)
    deadline = float("inf")
    while (status := _status(child)) is None:
        received = signal.sigtimedwait(_AWAITED, _LOOK_SECONDS)
        orphaned = os.getppid() != int(parent)
        if orphaned and deadline == float("inf"):
            deadline = time.monotonic() + float(grace)
            _signal(child, signal.SIGTERM)
        elif received is not None and received.si_signo != signal.SIGCHLD and not orphaned:
            _signal(child, signal.SIGTERM)
        if time.monotonic() > deadline:
            _signal(child, signal.SIGKILL)
    session_kill(guard)
    return status


def _status(child: int) -> int | None:
    """Collect the processes that ended; return the status of the child once it is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                status = code if code >= 0 else 128 - code
    return status


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
