"""A worker whose broker is away looks for it every few seconds, for as long as it takes."""

import pytest
from kombu.utils import functional
from kombu.utils.imports import symbol_by_name

from billing.settings.celery import app

FAILS = 200
"""More attempts than Celery makes by itself."""


def test_it_never_waits_longer_than_five_seconds_and_never_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, waited = app.connection_for_read("memory://broker"), list[float]()

    def connect() -> str:
        if len(waited) == FAILS:
            return "connected"
        waited.append(0.0)
        raise ConnectionRefusedError

    def sleep(seconds: float) -> None:
        waited[-1] += seconds

    monkeypatch.setattr(functional, "sleep", sleep)
    monkeypatch.setattr(connection, "_connection_factory", connect)
    monkeypatch.setattr(type(connection), "recoverable_connection_errors", (ConnectionRefusedError,))
    consumer = object.__new__(symbol_by_name(app.conf.worker_consumer))
    consumer.app, consumer.first_connection_attempt, consumer.broker_connection_retry_attempt = app, False, 0
    assert consumer.ensure_connected(connection) is connection
    assert (len(waited), waited[:3], max(waited)) == (FAILS, [2.0, 4.0, 5.0], 5.0)
