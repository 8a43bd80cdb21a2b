"""DATABASE_URL is read as libpq reads it: several hosts, passwords with any character, its own parameters and no others."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from billing.settings.database_url import VANISHED, read_database

NAMES = ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@db:5433/suanpan", ("suanpan", "u", "p", "db", "5433", {})),
        ("postgres://u@db/suanpan", ("suanpan", "u", "", "db", "", {})),
        ("postgresql://u:p%40%2Fs%3A%E7%AE%97@db/suan%20pan", ("suan pan", "u", "p@/s:算", "db", "", {})),
        (
            "postgresql://u:p@a,b/suanpan?target_session_attrs=read-write",
            ("suanpan", "u", "p", "a,b", ",", {"target_session_attrs": "read-write"}),
        ),
        (
            "postgresql://u:p@a:5432,b:5433/suanpan?target_session_attrs=read-write&connect_timeout=3",
            ("suanpan", "u", "p", "a,b", "5432,5433", {"target_session_attrs": "read-write", "connect_timeout": "3"}),
        ),
        (
            "postgresql://u:p@[::1]:5432/suanpan?sslmode=verify-full",
            ("suanpan", "u", "p", "::1", "5432", {"sslmode": "verify-full"}),
        ),
        ("postgresql:///suanpan?host=/run/postgresql", ("suanpan", "", "", "/run/postgresql", "", {})),
        ("", ("", "", "", "", "", {})),
    ],
)  # fmt: skip
def test_an_address_gives_what_libpq_would_take_from_it(url: str, expected: tuple[Any, ...]) -> None:
    found = read_database(url)
    *place, options = expected
    assert tuple(found[name] for name in NAMES) == (*place, {**VANISHED, **options})


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hidden-word@db:port/suanpan",
        "postgresql://u:hidden-word@a:1,b:x/suanpan",
        "postgresql://u:hidden-word%zz@db/suanpan",
        "postgresql://u:hidden-word@db/suanpan?no_such_parameter=1",
        "postgresql://u:hidden-word@[::1/suanpan",
    ],
)
def test_an_address_that_cannot_be_read_is_one_line_without_its_password(url: str) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        read_database(url)
    text = str(refused.value)
    assert text.startswith("DATABASE_URL is no address of PostgreSQL, such as postgresql://")
    assert ("hidden-word" in text, "\n" in text) == (False, False)


def test_a_server_that_vanished_is_noticed_within_seconds_unless_the_address_says_otherwise() -> None:
    found = read_database("postgresql://u:p@db/suanpan?tcp_user_timeout=60000")["OPTIONS"]
    assert found == {
        "connect_timeout": "5", "tcp_user_timeout": "60000", "keepalives_idle": "10", "keepalives_interval": "5",
    }  # fmt: skip


def test_no_cursor_is_left_with_a_session_of_the_server() -> None:
    assert read_database("postgresql://u:p@db/suanpan")["DISABLE_SERVER_SIDE_CURSORS"] is True
