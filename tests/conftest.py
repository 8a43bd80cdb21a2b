"""What every suite shares."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def token_ledger_is_empty(request: pytest.FixtureRequest) -> Iterator[None]:
    """Empty the plain tables of the token ledger around tests that commit: Django's flush knows only its models."""
    marker = request.node.get_closest_marker("django_db")
    marked = marker is not None and marker.kwargs.get("transaction")
    if not marked and not {"transactional_db", "live_server"} & set(request.fixturenames):
        yield
        return
    request.getfixturevalue("transactional_db")
    _empty()
    yield
    _empty()


def _empty() -> None:
    from django.db import connection

    from billing.usage.services import tokens

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE token_key, token_event, token_hour, token_hour_delta, token_dimension RESTART IDENTITY")
    tokens._dimension_ids.clear()
