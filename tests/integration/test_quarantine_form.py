"""Quarantine as a form: field by field beside the ledger, and all records of one cause at once."""

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from billing.usage.models import GpuAllocation, QuarantinedRecord
from billing.usage.scope import EpochFilter
from billing.usage.side_by_side import RecordField, corrected_text, record_fields
from billing.usage.store.sums import token_sums
from metering.intervals import Interval
from tests import factories
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, person, signed_in, token_record

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]


def fields() -> dict[str, RecordField]:
    found = record_fields(QuarantinedRecord.objects.get(), factories.AFTER)
    assert found is not None
    return {field.name: field for field in found}


def differing() -> dict[str, tuple[str | None, str | None]]:
    return {name: (field.stored, field.reported) for name, field in fields().items() if field.differs}


def typed(page: str) -> dict[str, str]:
    """What stands in the inputs of the page, by name."""
    parts = [part.split(">", 1)[0] for part in page.split("<input ")[1:]]
    found = {}
    for part in parts:
        if 'name="value-' in part:
            name = part.split('name="', 1)[1].split('"', 1)[0]
            found[name] = unescape(part.split('value="', 1)[1].split('"', 1)[0]) if 'value="' in part else ""
    return found


def requests() -> int:
    return sum(row.requests for row in token_sums([Interval(*factories.SHANGHAI_OCTOBER)], EpochFilter()))


def test_a_conflict_shows_what_the_ledger_has_beside_what_was_reported() -> None:
    ingest_tokens(token_record(), token_record(output_tokens=7, reasoning_output_tokens=0))
    first = token_record()
    assert differing() == {
        "output_tokens": (str(first["output_tokens"]), "7"),
        "reasoning_output_tokens": (str(first["reasoning_output_tokens"]), "0"),
    }  # fmt: skip


def test_a_conflict_of_an_allocation_shows_both() -> None:
    ingest_allocations(allocation_record(1))
    ingest_allocations(allocation_record(1, quantity=4))
    assert differing() == {"quantity": ("8", "4")}
    assert GpuAllocation.objects.get().quantity == 8


def test_a_conflict_of_capacity_shows_both() -> None:
    node: dict[str, Any] = {
        "cluster": "hq-1", "node": "node-1", "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu",
        "from": "2026-10-01T00:00:00Z", "until": "2026-11-01T00:00:00Z",
    }  # fmt: skip
    factories.ingest_capacity(**node, quantity=8)
    factories.ingest_capacity(**node, quantity=6)
    assert differing() == {"quantity": ("8", "6")}


def test_a_missing_field_is_offered_and_text_stays_text() -> None:
    lacking = {name: value for name, value in allocation_record(1, node="007").items() if name != "accelerator"}
    ingest_allocations(lacking)
    shown = fields()
    assert (shown["accelerator"].reported, shown["node"].reported) == (None, "007")
    filled = {name: field.reported or "" for name, field in shown.items()} | {"accelerator": "NVIDIA-H800"}
    corrected = json.loads(corrected_text(list(shown.values()), filled) or "")
    assert corrected == {**lacking, "accelerator": "NVIDIA-H800"}
    as_it_came = {name: field.reported or "" for name, field in shown.items()}
    assert corrected_text(list(shown.values()), as_it_came) is None


@pytest.mark.parametrize("record", ["[1, 2", '{"id": "a", "id": "b"}', "[]", '{"id": '])
def test_what_is_no_object_with_each_field_once_stays_a_text(tmp_path: Path, record: str) -> None:
    apply(tmp_path)
    entry = quarantined(record)
    assert record_fields(entry, factories.AFTER) is None
    page = signed_in(person("ada", "admin")).get(f"/quarantine/{entry.pk}/").content.decode()
    assert "<textarea" in page


def quarantined(record: str) -> QuarantinedRecord:
    return QuarantinedRecord.objects.create(
        door="usage/tokens", reporter="tests", reason="invalid", error="no", record=record, digest=record.encode()[:16],
        at=factories.AFTER,
    )  # fmt: skip


def test_a_record_is_corrected_in_its_field_and_refused_with_what_was_typed(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(input_tokens=-5))
    entry = QuarantinedRecord.objects.get()
    admin = signed_in(person("ada", "admin"))
    values = typed(admin.get(f"/quarantine/{entry.pk}/").content.decode())
    (name,) = [name for name, value in values.items() if value == "-5"]
    decide: dict[str, Any] = {**values, "action": "replay", "reason": "typo"}
    refused = admin.post(f"/quarantine/{entry.pk}/", {**decide, name: "many"})
    assert (refused.status_code, 'value="many"' in refused.content.decode()) == (409, True)
    assert "write a number" in refused.content.decode()
    assert admin.post(f"/quarantine/{entry.pk}/", {**decide, name: "1000"}).status_code == 302
    assert requests() == 1
    entry.refresh_from_db()
    assert json.loads(entry.corrected) == token_record(input_tokens=1000)


def test_all_records_of_a_cause_are_decided_at_once_and_what_is_refused_again_stays(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(*(token_record(number, input_tokens=-number) for number in (1, 2, 3)))
    ingest_allocations(allocation_record(1, quantity=0))
    admin = signed_in(person("ada", "admin"))
    page = admin.get("/quarantine/").content.decode()
    assert "Decide all 3…" in page
    assert "Decide all 1…" not in page
    cause = {"reason": "invalid", "door": "usage/tokens", "reporter": "tests", "why": "a test"}
    again = admin.post("/quarantine/cause/", {**cause, "action": "replay"})
    assert (again.status_code, QuarantinedRecord.objects.filter(status="open").count()) == (409, 4)
    assert admin.post("/quarantine/cause/", {**cause, "action": "dismiss"}).status_code == 302
    left = QuarantinedRecord.objects.filter(status="open")
    assert [row.door for row in left] == ["usage/gpu-allocations"]
    assert set(QuarantinedRecord.objects.filter(status="dismissed").values_list("resolution", "resolved_by")) == {
        ("a test", "ada")
    }
