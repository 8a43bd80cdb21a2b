"""Private PostgreSQL and Valkey for an installation that configures neither.

Any number of processes may attach to a home at once. Each holds a shared lock on `run/users.lock`, which the kernel
takes back however the process dies. A keeper, one per home, owns both servers as its children and waits for that lock
alone: when it gets it, nobody uses the servers any more, so it stops them and exits. A newcomer meanwhile waits for the
lock, then starts another keeper. Nothing polls, nothing is left behind, and a `kill -9` of anything is repaired by the
next to attach.
"""

from billing.config.embedded.attachment import Services, attach
from billing.config.embedded.errors import EmbeddedError

__all__ = ["EmbeddedError", "Services", "attach"]
