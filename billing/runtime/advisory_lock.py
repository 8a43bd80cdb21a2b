"""Advisory lock of the database, independent of the transactions of the work that it protects."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import DatabaseError, connection


@contextmanager
def advisory_lock(*keys: int, wait: bool) -> Iterator[bool]:
    """Take the lock of these keys until the block ends; yield False where `wait` is False and another session has it.

    A transaction on its own connection holds the lock: it ends with its process, and a pooler that shares connections
    between transactions gives it to nobody else.
    """
    own = connection.copy()
    own.set_autocommit(False)
    try:
        with own.cursor() as cursor:
            # this transaction is idle while the work goes on elsewhere
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            places = ", ".join(["%s"] * len(keys))
            cursor.execute(f"SELECT pg_try_advisory_xact_lock({places})", keys)
            taken = bool(cursor.fetchone()[0])
            if wait and not taken:
                if not connection.in_atomic_block:
                    connection.close()  # a waiting process needs one connection, not two
                cursor.execute(f"SELECT pg_advisory_xact_lock({places})", keys)
                taken = True
        yield taken
    finally:
        with suppress(DatabaseError):  # a lost connection has released the lock
            own.rollback()  # release at once: a pooler notices a closed client late, the server later
        own.close()
