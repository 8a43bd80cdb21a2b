"""Bodies that ask for something beside usage: nothing in them is passed over."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from billing.closing.models import MeterReading
from billing.portal.forms import Number
from billing.usage.models import QuarantinedRecord
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.api import problem, program

pytestmark = pytest.mark.django_db
READINGS = "/api/v1/periods/2026-10/meter-readings"
READING = {"cluster": "hq-1", "metered_kwh": "10.5", "source": "meter 7"}
ADDRESSES: dict[str, tuple[str, dict[str, Any]]] = {
    "disputes": ("disputes:write", {"document": "X", "lines": [1], "reason_code": "sla", "statement": "s"}),
    "commitments/drafts": ("prices:write", {
        "name": "n", "team": "nlp", "accelerator": "H800", "gpu_hours_per_month": "1", "price_per_gpu_hour": "1",
        "valid_from": "2099-01-01T00:00:00Z", "reason": "r",
    }),
    "commitments/drafts/1/withdraw": ("prices:write", {"reason": "r"}),
    "price-versions": ("prices:write", {"name": "2099-01"}),
    "price-versions/2026-10/submit": ("prices:write", {"reason": "r"}),
    "periods/2026-10/meter-readings": ("usage:correct", READING),
    "periods/2026-10/journal": ("journal:acknowledge", {"batch_hash": "h", "reference": "r"}),
    "quarantine/1": ("usage:correct", {"action": "dismiss", "reason": "r"}),
}  # fmt: skip
Send = Callable[..., Any]


@pytest.fixture(scope="module")
def send(for_all_tests: Path) -> Send:
    apply(for_all_tests)

    def sent(path: str, body: str | bytes, kind: str = "application/json") -> Any:
        scope = ADDRESSES[path][0]
        client = program(scope, team="nlp" if path == "disputes" else "")
        return client.post(f"/api/v1/{path}", body, content_type=kind)

    return sent


def test_a_group_of_half_a_character_is_refused() -> None:
    client = program("people:provision")
    answer = client.post("/api/v1/scim/v2/Groups", '{"displayName": "\\ud800"}', content_type="application/scim+json")
    assert (answer.status_code, answer.json()["detail"]) == (400, "displayName: a text of at most 150 characters")


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_field_that_there_is_not_or_that_is_there_twice_is_named(send: Send, path: str) -> None:
    body = ADDRESSES[path][1]
    errors = problem(send(path, json.dumps({**body, "ammount": "1"})), 400)["errors"]
    assert errors["ammount"][0].startswith(("there is no such field, only ", "is no field of"))
    name = next(iter(body))
    twice = problem(send(path, f'{json.dumps(body)[:-1]}, "{name}": {json.dumps(body[name])}}}'), 400)
    assert twice["detail"] == f"body: field '{name}' is given twice"


@pytest.mark.parametrize("path", [*ADDRESSES, "scim"])
def test_a_body_that_nobody_can_read_is_a_400_and_one_that_is_too_large_a_413(send: Send, path: str) -> None:
    if path == "scim":
        client = program("people:provision")
        post = lambda body, kind="application/scim+json": client.post(  # noqa: E731
            "/api/v1/scim/v2/Groups", body, content_type=kind
        )
    else:
        post = lambda body, kind="application/json": send(path, body, kind)  # noqa: E731
    for body in (b"[" * 100_000, b'{"a":' * 100_000, b"{", b'{"a": NaN}', b'{"a": "\xff"}'):
        assert post(body).status_code == 400, body[:20]
    assert post(b" " * (16 * 1024 * 1024 + 1)).status_code == 413
    assert post(b"a=1", "application/x-www-form-urlencoded").status_code == 415


def test_a_number_is_taken_for_its_digits_as_a_text_is(send: Send) -> None:
    exact = json.dumps({**READING, "metered_kwh": "N"}).replace('"N"', "123456.789")
    assert send("periods/2026-10/meter-readings", exact).status_code == 201
    assert str(MeterReading.objects.get().metered_kwh) == "123456.789"
    wrong = json.dumps({**READING, "metered_kwh": "N"}).replace('"N"', "1e400")
    assert "metered_kwh" in problem(send("periods/2026-10/meter-readings", wrong), 400)["detail"]


@pytest.mark.parametrize("text", ["8,5", "1,23", "1,2345", ",5", "1,234,5", "1.234,5"])
def test_a_comma_that_parts_no_thousands_is_never_left_out(send: Send, text: str) -> None:
    """A price of 8,5 was billed as 85."""
    with pytest.raises(ValidationError, match="is not a decimal"):
        Number().clean(text)
    body = json.dumps({**READING, "metered_kwh": text})
    assert f"metered_kwh {text!r} is not a decimal" in problem(send("periods/2026-10/meter-readings", body), 400)["detail"]
    assert Number().clean("1,234,567.5") == Decimal("1234567.5")


def test_a_corrected_record_keeps_its_numbers_and_half_a_character_is_refused(send: Send) -> None:
    wrong = allocation_record(1, device_fraction="2")
    ingest_allocations(wrong)
    entry = QuarantinedRecord.objects.get()
    client: Client = program("usage:correct")

    def replay(record: str) -> Any:
        body = f'{{"action": "replay", "reason": "typo", "record": {record}}}'
        return client.post(f"/api/v1/quarantine/{entry.pk}", body, content_type="application/json")

    half = problem(replay('{"pod": "\\ud800"}'), 400)
    assert half["errors"] == {"record": ["contains half a character"]}
    right = json.dumps({**wrong, "device_fraction": "N"}).replace('"N"', "0.142857142857")
    assert '"device_fraction":0.142857142857' in replay(right).json()["corrected"]
