"""The address of the database, as libpq reads it.

Nothing that we keep in a session may be needed by the next statement: a pooler that shares connections between transactions
gives that to another session. So cursors live in the client, and no statement is prepared by name.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

VANISHED: Final = {
    "connect_timeout": "5", "tcp_user_timeout": "10000", "keepalives_idle": "10", "keepalives_interval": "5",
}  # fmt: skip
"""A server that vanished without a word is noticed within seconds; the system alone takes a quarter of an hour."""
OF_DJANGO = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
UNREADABLE = (
    "is no address of PostgreSQL, such as postgresql://user:password@host:5432/name?sslmode=verify-full, or it"
    " has a parameter that libpq does not know; of a password, other characters than letters and digits are written as %XX"
)


def read_database(url: str, variable: str = "DATABASE_URL", unless_given: Mapping[str, str] = VANISHED) -> dict[str, Any]:
    """Django's settings of a database, from postgresql://user:password@host:port,host:port/name?parameter=value.

    Several hosts are tried in their order. unless_given: parameters of libpq that hold where the address does not name them.
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
    if str(facts.get("port", "")).strip("0123456789,"):
        raise ImproperlyConfigured(f"{variable} {UNREADABLE}")
    return facts
