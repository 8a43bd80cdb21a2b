"""The contract outward: each wrong field is refused by name, and the keys say what they are meant to say."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from metering.records import (
    EfficiencySample,
    GpuAllocation,
    NodeCapacity,
    RecordError,
    TokenUsage,
    decode_batch,
    from_row,
)

MISSING = object()

TOKEN: dict[str, Any] = {
    "id": "req-1", "source": "litellm-hq", "time": "2026-10-15T12:00:00+08:00", "consumer": "nlp-key-1",
    "model": "llama-3-8b", "input_tokens": 1000, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 100,
    "output_tokens": 100, "reasoning_output_tokens": 40, "site": "hq", "provider": "own", "status": "ok",
    "attributes": {"trace": "t-1", "depth": [1, {"x": None}]},
}  # fmt: skip
ALLOCATION: dict[str, Any] = {
    "allocation_id": "alloc-1", "cluster": "hq-1", "namespace": "nlp-train", "pod": "train-0", "pod_uid": "uid-1",
    "resource": "nvidia.com/gpu", "quantity": 8, "device_fraction": "1", "accelerator": "NVIDIA-H800",
    "node": "node-1", "started_at": "2026-10-10T00:00:00Z", "ended_at": "2026-10-10T02:37:13Z",
    "observed_until": "2026-10-10T02:37:13Z", "end_reason": "completed", "scheduler": "volcano", "queue": "q1",
    "workload": {"kind": "PyTorchJob", "name": "llm", "uid": "w-1"}, "labels": {"app": "llm"},
    "priority_class": "high", "site": "hq", "pool": "a",
}  # fmt: skip
CAPACITY: dict[str, Any] = {
    "cluster": "hq-1", "node": "node-1", "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu", "quantity": 8,
    "from": "2026-10-01T00:00:00+08:00", "until": "2026-11-01T00:00:00+08:00", "condition": "Ready",
}  # fmt: skip
SAMPLE: dict[str, Any] = {
    "cluster": "hq-1", "start": "2026-10-10T00:00:00Z", "end": "2026-10-10T01:00:00Z", "gpu_seconds": "28800",
    "mfu": "0.41", "hfu": "0.47", "dtype": "bf16", "coverage": "0.99", "pod_uid": "uid-1", "method": "dcgm",
}  # fmt: skip

RECORDS: dict[type[Any], dict[str, Any]] = {
    TokenUsage: TOKEN, GpuAllocation: ALLOCATION, NodeCapacity: CAPACITY, EfficiencySample: SAMPLE,
}  # fmt: skip

NAMES = {
    TokenUsage: ("id", "source", "consumer", "model"),
    GpuAllocation: ("allocation_id", "cluster", "namespace", "pod", "pod_uid", "resource", "accelerator"),
    NodeCapacity: ("cluster", "node", "accelerator", "resource"),
    EfficiencySample: ("cluster", "pod_uid"),
}
LABELS = {
    TokenUsage: ("site", "provider", "status"),
    GpuAllocation: ("node", "end_reason", "scheduler", "queue", "priority_class", "site", "pool"),
    NodeCapacity: ("condition",),
    EfficiencySample: ("dtype", "method"),
}
COUNTS = {
    TokenUsage: (
        "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
        "reasoning_output_tokens",
    ),
    GpuAllocation: ("quantity",),
    NodeCapacity: ("quantity",),
    EfficiencySample: (),
}  # fmt: skip
INSTANTS = {
    TokenUsage: ("time",),
    GpuAllocation: ("started_at", "ended_at", "observed_until"),
    NodeCapacity: ("from", "until"),
    EfficiencySample: ("start", "end"),
}
DECIMALS = {
    TokenUsage: (),
    GpuAllocation: ("device_fraction",),
    NodeCapacity: (),
    EfficiencySample: ("gpu_seconds", "mfu", "hfu", "coverage"),
}
REQUIRED = {
    TokenUsage: (*NAMES[TokenUsage], "time", *COUNTS[TokenUsage]),
    GpuAllocation: (*NAMES[GpuAllocation], "quantity", "device_fraction", "node", "started_at"),
    NodeCapacity: (*NAMES[NodeCapacity], "quantity", "from", "until"),
    EfficiencySample: ("cluster", "start", "end", "gpu_seconds", "mfu", "hfu", "dtype", "coverage"),
}
NULLABLE = {(EfficiencySample, "mfu"), (EfficiencySample, "hfu")}


def each(*tables: Mapping[Any, tuple[str, ...]]) -> list[Any]:
    return [
        pytest.param(kind, field, id=f"{kind.__name__}.{field}")
        for table in tables
        for kind, fields in table.items()
        for field in fields
    ]


def body(kind: type[Any], **changed: Any) -> bytes:
    fields = {name: value for name, value in {**RECORDS[kind], **changed}.items() if value is not MISSING}
    return json.dumps(fields).encode()


def refusal(kind: type[Any], raw: bytes) -> RecordError:
    batch: Any = decode_batch(kind, [raw])
    assert batch.records == [], "a wrong record was taken"
    assert batch.rejected[0].raw == raw
    return batch.rejected[0].error


def assert_names(error: RecordError, field: str) -> None:
    assert error.field == field, (error.field, str(error))
    assert field in str(error)


@pytest.mark.parametrize("kind", RECORDS)
def test_the_complete_record_is_taken(kind: type[Any]) -> None:
    batch: Any = decode_batch(kind, [body(kind)])
    assert batch.rejected == []
    assert [index for index, _ in batch.records] == [0]


WRONG: list[tuple[list[Any], list[object]]] = [
    (each(REQUIRED), [MISSING]),
    ([case for case in each(REQUIRED) if case.values not in NULLABLE], [None]),
    (each(NAMES, LABELS), [True, 7, 1.5, ["x"], {"x": 1}, "a\0b"]),
    (each(NAMES), ["", "x" * 513]),
    (each({kind: names for kind, names in NAMES.items() if kind is not TokenUsage}), ["模" * 200]),  # bounded in bytes
    (each(LABELS), ["x" * 1025]),
    (each(COUNTS), [-1, 10**15 + 1, 10**30, 1.5, 1e300, "7", True, [], {}]),
    (each({GpuAllocation: ("quantity",)}), [0, 1_000_001]),
    (each(INSTANTS), [
        "2026-10-15T12:00:00", "2026-10-15", "", "noon", 1_760_000_000, 1.5, True, "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00", "1999-12-31T23:59:59.999999Z", "2200-01-01T00:00:00Z",
        "9999-12-31T23:59:59-14:00", "2026-10-32T00:00:00Z", "2026-10-15T25:00:00Z", "2026-10-15T00:00:00+16:00",
        "2026-10-15T00:00:00-22:28",
    ]),
    (each(DECIMALS), [
        "NaN", "sNaN", "Infinity", "-Infinity", "-0.1", "", "half", "1e999999", True, [], {}, "1e-30", "1E-2000000",
    ]),
    (each({EfficiencySample: ("mfu", "hfu", "coverage")}), ["1.0001"]),
    (each({GpuAllocation: ("device_fraction",)}), [
        "0", "-1", "1.000000000001", "0.1234567890123", f"0.{'9' * 40}", f"0.5{'0' * 30}1",
    ]),
    (each({EfficiencySample: ("gpu_seconds",)}), ["0.0000001", "999999999999999.0000000000000000000000000001"]),
    (each({TokenUsage: ("attributes",)}), [["x"], "x", 7, {"x\0": 1}, {"x": ["\0"]}]),
    (each({TokenUsage: ("reasoning_output_tokens",)}), [101]),  # output contains it
    (each({GpuAllocation: ("ended_at", "observed_until")}), ["2026-10-09T23:59:59.999999Z"]),  # before the start
    (each({NodeCapacity: ("until",)}), ["2026-09-30T15:59:59Z"]),
    (each({EfficiencySample: ("end",)}), ["2026-10-09T23:59:59Z"]),
    (each(dict.fromkeys(RECORDS, ("cached_tokens",))), [1]),  # unknown
]  # fmt: skip
"""Values of fields that break the contract."""


@pytest.mark.parametrize(
    ("kind", "field", "wrong"),
    [
        pytest.param(*case.values, wrong, id=f"{case.id}-{'missing' if wrong is MISSING else repr(wrong)[:24]}")
        for cases, values in WRONG for case in cases for wrong in values
    ],
)  # fmt: skip
def test_a_value_that_breaks_the_contract_is_refused_by_its_field(kind: type[Any], field: str, wrong: object) -> None:
    assert_names(refusal(kind, body(kind, **{field: wrong})), field)


@pytest.mark.parametrize(("kind", "field"), each(NAMES, LABELS))
def test_a_lone_surrogate_is_refused(kind: type[Any], field: str) -> None:
    error = refusal(kind, body(kind, **{field: "PLACE"}).replace(b'"PLACE"', b'"a\\ud800b"'))
    assert isinstance(error, RecordError)


@pytest.mark.parametrize("kind", RECORDS)
def test_bytes_that_are_not_utf_8_are_refused(kind: type[Any]) -> None:
    field = NAMES[kind][0]
    assert isinstance(refusal(kind, body(kind, **{field: "PLACE"}).replace(b"PLACE", b"\xff\xfe")), RecordError)


def test_a_node_may_offer_nothing() -> None:
    batch: Any = decode_batch(NodeCapacity, [body(NodeCapacity, quantity=0)])
    assert batch.records[0][1].quantity == 0


@pytest.mark.parametrize("raw", [b"", b"{", b"null", b"[]", b"7", b'"x"', b"{}x", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("kind", RECORDS)
def test_what_is_no_object_is_refused(kind: type[Any], raw: bytes) -> None:
    assert isinstance(refusal(kind, raw), RecordError)


def test_a_bad_record_costs_none_of_its_neighbours() -> None:
    batch: Any = decode_batch(TokenUsage, [body(TokenUsage, id="a"), b"{", body(TokenUsage, id="b")])
    assert [(index, record.id) for index, record in batch.records] == [(0, "a"), (2, "b")]
    assert [item.index for item in batch.rejected] == [1]


def test_input_contains_both_cache_classes() -> None:
    error = refusal(TokenUsage, body(TokenUsage, input_tokens=299))
    assert_names(error, "input_tokens")
    batch: Any = decode_batch(TokenUsage, [body(TokenUsage, input_tokens=300)])
    assert batch.records[0][1].uncached_input_tokens == 0


@pytest.mark.parametrize("labels", [["x"], {"x": 1}, {"x": None}, {"x": "\0"}, {"\0": "x"}])
def test_labels_map_text_to_text(labels: object) -> None:
    error = refusal(GpuAllocation, body(GpuAllocation, labels=labels))
    assert error.field is not None
    assert error.field.startswith("labels")


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        ("Job/x", "workload"), ({"kind": "Job"}, "workload"), ({"kind": "Job", "name": ""}, "workload.name"),
        ({"kind": "Job", "name": "x", "more": 1}, "workload"), ({"kind": 1, "name": "x"}, "workload.kind"),
    ],
)  # fmt: skip
def test_a_workload_is_kind_and_name(workload: object, field: str) -> None:
    error = refusal(GpuAllocation, body(GpuAllocation, workload=workload))
    assert error.field is not None
    assert field.split(".")[0] in error.field or field.split(".")[0] in str(error)


@pytest.mark.parametrize("part", ["kind", "name", "uid"])
def test_nul_inside_a_workload_names_the_part(part: str) -> None:
    workload = {**ALLOCATION["workload"], part: "a\0"}
    assert refusal(GpuAllocation, body(GpuAllocation, workload=workload)).field == part


def test_an_open_allocation_says_how_far_it_was_seen() -> None:
    assert_names(refusal(GpuAllocation, body(GpuAllocation, ended_at=None, observed_until=None)), "observed_until")


@pytest.mark.parametrize("subject", [{"pod_uid": None}, {"workload": "PyTorchJob/llm"}])
def test_a_sample_names_exactly_one_subject(subject: dict[str, Any]) -> None:
    assert_names(refusal(EfficiencySample, body(EfficiencySample, **subject)), "pod_uid")


def test_a_sample_may_leave_a_metric_unmeasured() -> None:
    batch: Any = decode_batch(EfficiencySample, [body(EfficiencySample, mfu=None, hfu=None)])
    assert (batch.records[0][1].mfu, batch.records[0][1].hfu) == (None, None)


# Keys


def token(**changed: Any) -> TokenUsage:
    return msgspec.json.decode(body(TokenUsage, **changed), type=TokenUsage)


def allocation(**changed: Any) -> GpuAllocation:
    return msgspec.json.decode(body(GpuAllocation, **changed), type=GpuAllocation)


def test_the_same_instant_in_another_offset_is_the_same_content() -> None:
    assert token().content == token(time="2026-10-15T04:00:00Z").content
    assert token().content == token(time="2026-10-15T04:00:00.000000+00:00").content
    assert token().content != token(time="2026-10-15T04:00:00.000001Z").content


def test_the_key_of_a_token_record_is_source_and_id_alone() -> None:
    assert token().key == token(time="2026-11-01T00:00:00Z", model="other", output_tokens=500).key
    assert len(token().key) == 16
    assert token(source="a", id="bc").key != token(source="ab", id="c").key


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("time", "2026-10-15T12:00:01+08:00"), ("consumer", "x"), ("model", "x"), ("input_tokens", 1001),
        ("cache_read_input_tokens", 201), ("cache_creation_input_tokens", 101), ("output_tokens", 101),
        ("reasoning_output_tokens", 41), ("site", None), ("provider", None), ("status", "error"),
        ("attributes", {"trace": "t-2"}),
    ],
)  # fmt: skip
def test_every_other_field_is_content(field: str, other: object) -> None:
    assert token().content != token(**{field: other}).content


def test_the_order_of_attributes_is_no_content() -> None:
    assert token(attributes={"a": 1, "b": 2}).content == token(attributes={"b": 2, "a": 1}).content
    assert token(attributes={}).content == token(attributes=None).content


def test_attributes_with_numbers_of_any_size_have_a_content() -> None:
    """A whole number beyond 64 bits is valid JSON; it must not break the batch that it comes in."""
    raw = body(TokenUsage, attributes={"n": 10**40, "f": 1.5})
    batch: Any = decode_batch(TokenUsage, [raw])
    for _, record in batch.records:
        assert msgspec.json.decode(record.content[3])["f"] == 1.5
    assert len(batch.records) + len(batch.rejected) == 1


@pytest.mark.parametrize("field", ["ended_at", "observed_until", "end_reason", "allocation_id"])
def test_what_a_later_report_may_say_is_not_identity(field: str) -> None:
    later = {"ended_at": None, "observed_until": "2026-10-11T00:00:00Z", "end_reason": None, "allocation_id": "b"}
    assert allocation().identity == allocation(**{field: later[field]}).identity


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("cluster", "x"), ("namespace", "x"), ("pod", "x"), ("pod_uid", "x"), ("resource", "x"), ("quantity", 7),
        ("device_fraction", "0.5"), ("accelerator", "x"), ("node", "x"), ("started_at", "2026-10-10T00:00:00.000001Z"),
        ("scheduler", None), ("queue", "q2"), ("workload", None), ("labels", {"app": "other"}),
        ("priority_class", None), ("site", None), ("pool", "b"),
    ],
)  # fmt: skip
def test_everything_else_of_an_allocation_is_identity(field: str, other: object) -> None:
    assert allocation().identity != allocation(**{field: other}).identity


@pytest.mark.parametrize("same", ["1", "1.0", "1.000000000000", "1E0", "10e-1"])
def test_a_fraction_written_otherwise_is_the_same_identity(same: str) -> None:
    assert allocation(device_fraction=same).identity == allocation().identity


def test_the_end_is_what_an_ended_allocation_is_known_until() -> None:
    assert allocation().known_until == datetime(2026, 10, 10, 2, 37, 13, tzinfo=UTC)
    seen = allocation(ended_at=None, observed_until="2026-10-10T01:00:00Z")
    assert seen.known_until == datetime(2026, 10, 10, 1, tzinfo=UTC)


# Rows of files


def row(kind: type[Any], **changed: Any) -> dict[str, Any]:
    fields = {name: value for name, value in RECORDS[kind].items() if not isinstance(value, dict)}
    return {**{name: str(value) for name, value in fields.items()}, **changed}


def test_the_text_numbers_of_a_file_become_numbers() -> None:
    record = from_row(TokenUsage, row(TokenUsage))
    assert (record.input_tokens, record.output_tokens) == (1000, 100)
    assert from_row(GpuAllocation, row(GpuAllocation, device_fraction="0.142857142857")).device_fraction == Decimal(
        "0.142857142857"
    )


@pytest.mark.parametrize("wrong", ["", "-1", "1.5", "1e30", "many", "nan", "inf", "true", "0x10", "1000000000000001"])
@pytest.mark.parametrize("field", COUNTS[TokenUsage])
def test_a_wrong_count_in_a_file_names_field_and_value(field: str, wrong: str) -> None:
    with pytest.raises(RecordError) as refused:
        from_row(TokenUsage, row(TokenUsage, **{field: wrong}))
    assert_names(refused.value, field)
    assert wrong in str(refused.value)


@pytest.mark.parametrize("wrong", ["1760000000", "1760000000.5", "2026-10-15T12:00:00", "2026-10-15", "yesterday"])
def test_an_instant_in_a_file_is_rfc_3339_with_an_offset_and_nothing_else(wrong: str) -> None:
    with pytest.raises(RecordError) as refused:
        from_row(TokenUsage, row(TokenUsage, time=wrong))
    assert_names(refused.value, "time")
