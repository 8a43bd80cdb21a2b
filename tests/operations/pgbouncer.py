"""Debian's PgBouncer before the database of a test, as it comes but for `pool_mode = transaction`."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection

from billing.local.process_list import free_port
from tests.factories.servers import until
from tests.operations.peers import home_of, program, running_as

POOL = 6
"""Connections to the server: a close needs up to four, all others wait for the rest."""


@contextmanager
def pgbouncer(server: str = "") -> Iterator[int]:
    """The port at which it listens; `server`: a connection string, else the database of the test."""
    facts, port = connection.settings_dict, free_port()
    server = server or f"host={facts['HOST']} port={facts['PORT']} user={facts['USER']} password={facts['PASSWORD']}"
    with home_of("nobody") as home, (home / "pgbouncer.log").open("wb") as log:
        configuration = home / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\n* = {server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = transaction\nmax_client_conn = 100\ndefault_pool_size = {POOL}\n"
        )
        process = subprocess.Popen(
            [program("pgbouncer"), str(configuration)], stdout=log, stderr=subprocess.STDOUT, **running_as("nobody")
        )
        try:
            until(lambda: answers(port), 30)
            yield port
        finally:
            process.terminate()
            process.wait(timeout=30)


def answers(port: int) -> bool:
    try:
        psycopg.connect(host="127.0.0.1", port=port, user="pgbouncer", dbname="pgbouncer").close()
    except psycopg.OperationalError:
        return False
    return True
