"""Few records, which one statement writes: the event loop sends it, and goes on with other requests meanwhile."""

import time
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import OperationalError

from billing.usage import epochs
from billing.usage.services import tokens
from billing.usage.store import wire
from tests.factories import token_record
from tests.factories.gateway_connection import port, post, queried, stored, token
from tests.factories.token_endpoint import body
from tests.integration.usage_held import usage_held

pytestmark = pytest.mark.postgresql("ClickHouse takes no records by one statement")
__all__ = ["port", "token"]


def test_few_records_need_no_thread_once_there_is_a_connection(
    port: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert post(port, body(token_record(1)), token).json()["accepted"] == 1
    with monkeypatch.context() as patched:
        patched.setattr(tokens, "write_group", lambda *_: [OperationalError("refused")])
        assert post(port, body(token_record(2), token_record(2)), token).json() == {
            "accepted": 1, "duplicates": 1, "conflicts": 0, "rejected": [],
        }  # fmt: skip
        assert post(port, body(token_record(3, consumer="nobody-before")), token).status_code == 503
    assert post(port, body(token_record(3, consumer="nobody-before")), token).json()["accepted"] == 1
    assert stored() == 3


def test_few_records_may_be_more_bytes_than_the_connection_takes_at_once(port: int, token: str) -> None:
    assert post(port, body(token_record(1)), token).json()["accepted"] == 1
    large = body(*[token_record(number, attributes={"prompt": "x" * 8000}) for number in range(2, 60)])
    assert post(port, large, token).json()["accepted"] == 58
    assert queried("SELECT count(*), min(length(rest)), max(length(rest)) FROM token_entry WHERE rest <> ''") == [
        (58, 8028, 8028)
    ]  # fmt: skip


def test_what_few_records_leave_in_quarantine_waits_for_a_lock_once(
    port: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close comes between the record and the conflict; written again, they would wait the 10 seconds of `token_take`."""
    conflict = token_record(1, output_tokens=12_345)
    assert post(port, body(token_record(1)), token).json()["accepted"] == 1
    monkeypatch.setattr(epochs, "ENTER", epochs.ENTER.replace("10s", "50ms"))
    with ExitStack() as close, monkeypatch.context() as patched:
        async def taken(*arguments: Any) -> str:
            known = await wire.token_take_async(*arguments)
            close.enter_context(usage_held())
            return known

        patched.setattr(tokens, "token_take_async", taken)
        began = time.monotonic()
        assert post(port, body(token_record(2), conflict), token).status_code == 503
    assert time.monotonic() - began < 8
    assert post(port, body(token_record(2), conflict), token).json()["conflicts"] == 1
