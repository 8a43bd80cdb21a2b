"""A lock of the database that holds while work in other transactions goes on."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import DatabaseError, connection


@contextmanager
def advisory_lock(*keys: int, wait: bool) -> Iterator[bool]:
    """Whether the lock of these keys is ours until the block ends; `wait=False` gives up where somebody else has it.

    It is held by a transaction of a connection of its own: it ends with its process, and a pooler that shares connections
    between transactions gives it to nobody else.
    """
    own = connection.copy()
    own.set_autocommit(False)
    try:
        with own.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            places = ", ".join(["%s"] * len(keys))
            cursor.execute(f"SELECT pg_try_advisory_xact_lock({places})", keys)
            taken = bool(cursor.fetchone()[0])
            if wait and not taken:
                if not connection.in_atomic_block:
                    connection.close()  # who waits holds one connection, not two
                cursor.execute(f"SELECT pg_advisory_xact_lock({places})", keys)
                taken = True
        yield taken
    finally:
        with suppress(DatabaseError):  # a connection that is lost has no lock any more
            own.rollback()  # a pooler would see a client that is gone, and the server that later still
        own.close()
