"""Parsing of the database address, by libpq.

No statement may depend on state of the session: a pooler that shares connections between transactions gives the session
to other clients. So cursors are client-side, and no statement is prepared by name.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

VANISHED: Final = {
    "connect_timeout": "5", "tcp_user_timeout": "10000", "keepalives_idle": "10", "keepalives_interval": "5",
}  # fmt: skip
"""libpq parameters that detect an unreachable server within seconds; the system's defaults take a quarter of an hour."""
OF_DJANGO = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
UNREADABLE = (
    "is no address of PostgreSQL, such as postgresql://user:password@host:5432/name?sslmode=verify-full, or it"
    " has a parameter that libpq does not know; of a password, other characters than letters and digits are written as %XX"
)


def read_database(url: str, variable: str = "DATABASE_URL", unless_given: Mapping[str, str] = VANISHED) -> dict[str, Any]:
    """Return Django's settings of a database, from postgresql://user:password@host:port,host:port/name?parameter=value.

    Several hosts are tried in their order. unless_given: default libpq parameters, which the address may override.
    Raises ImproperlyConfigured with the name of the `variable` and without the address, which may hold a password.
    """
    facts = dict(_facts(url, variable))
    return {
        "ENGINE": "django.db.backends.postgresql",
        **{ours: str(facts.pop(theirs, "")) for theirs, ours in OF_DJANGO.items()},
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": True,
        "OPTIONS": {**unless_given, **facts},
        "TEST": {"TEMPLATE": "template0"},
    }


def _facts(url: str, variable: str) -> Mapping[str, Any]:
    scheme = url.partition(":")[0]
    if url and scheme not in ("postgres", "postgresql"):
        raise ImproperlyConfigured(f"{variable} has scheme {scheme!r}; Suanpan keeps its ledger in postgresql")
    try:
        facts = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise ImproperlyConfigured(f"{variable} {UNREADABLE}") from error
    # libpq accepts any text as a port when parsing, and fails only when connecting
    if str(facts.get("port", "")).strip("0123456789,"):
        raise ImproperlyConfigured(f"{variable} {UNREADABLE}")
    return facts
