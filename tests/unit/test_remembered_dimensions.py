"""Remembering what token records are summed by costs no connection."""

import asyncio

import pytest
from django.db import connections

from billing.usage.store.dimensions import remembered_dimensions


def test_a_loop_asks_for_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(connections, "create_connection", made.append)

    async def asked() -> None:
        remembered_dimensions()

    asyncio.run(asked())
    assert not made
