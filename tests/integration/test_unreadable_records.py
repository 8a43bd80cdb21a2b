"""One record that nobody can read stops nobody: it is kept by itself with the reason, its neighbours are taken."""

import gzip
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from billing.usage.models import AgentWatermark, GpuAllocation, QuarantinedRecord
from tests.factories import allocation_record, token_record
from tests.factories.api import gateway
from tests.gateway_records import lago_event, payload

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]

Post = Callable[..., Any]
HALF, WHOLE = "\ud83d", "\U0001f600 \\ud83d"  # WHOLE: a pair of escapes; a backslash before letters
DEEP = "[" * 1_500 + "]" * 1_500
CAPACITY = {"cluster": "hq-1", "node": "n-1", "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu", "quantity": 8,
            "from": "2026-10-01T00:00:00Z", "until": "2026-10-02T00:00:00Z"}  # fmt: skip
SAMPLE = {"cluster": "hq-1", "pod_uid": "u-1", "start": "2026-10-10T00:00:00Z", "end": "2026-10-10T01:00:00Z",
          "gpu_seconds": "3600", "mfu": "0.4", "hfu": "0.5", "dtype": "bf16", "coverage": "1"}  # fmt: skip
READING = {"source": "vllm", "replica": "r-1", "model": "m", "time": "2026-10-10T00:00:00Z", "prompt_tokens": 1,
           "generation_tokens": 1}  # fmt: skip
EVENT = {
    "specversion": "1.0", "type": "litellm_tokens", "id": "r-1", "source": "litellm-proxy", "subject": "nlp-key-1",
    "time": "2026-10-15T04:00:00Z", "data": {"model": "m", "prompt_tokens": 9, "completion_tokens": 5},
}  # fmt: skip


@pytest.fixture
def post(db: None) -> Post:
    return gateway()


def array(*records: str) -> str:
    return f"[{','.join(records)}]"


def text(record: dict[str, Any], old: str = "", new: str = "") -> str:
    written = json.dumps(record)
    assert old in written
    return written.replace(old, new, 1)


GOOD, LATER = text(token_record(1)), text(token_record(3))
WRONG = {
    "too deep": text(token_record(2, attributes={"a": 1}), '"a": 1', f'"a": {DEEP}'),
    "NaN": text(token_record(2), '"input_tokens": 1000', '"input_tokens": NaN'),
    "-Infinity": text(token_record(2, attributes={"a": 1}), '"a": 1', '"a": -Infinity'),
    "half a character": text(token_record(2, consumer=HALF)),
    "a raw control character": text(token_record(2), "llama", "llama\x01"),
    "no JSON": text(token_record(2), "1000", "1e"),
    "a word": "undefined",
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("ndjson", [False, True])
def test_a_token_record_that_cannot_be_read_fails_only_itself(post: Post, wrong: str, ndjson: bool) -> None:
    records = (GOOD, wrong, LATER)
    answer = post("usage/tokens", "\n".join(records) if ndjson else array(*records)).json()
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (2, [1])
    entry = QuarantinedRecord.objects.get()
    assert (entry.reason, entry.record, entry.error != "") == ("invalid", wrong, True)
    if wrong.startswith("{"):
        assert (entry.key, entry.at) == (
            "litellm-hq/req-2", datetime(2026, 10, 15, 4, tzinfo=UTC),
        ), "it is in the month of its own time, under its own key"  # fmt: skip


def test_a_record_of_ten_thousand_that_cannot_be_read_fails_only_itself(post: Post) -> None:
    """As many as a batch may have, which are read as columns where all are well."""
    records = [text(token_record(number)) for number in range(1, 10_001)]
    records[7_000] = WRONG["NaN"].replace("req-2", "req-7001")
    answer = post("usage/tokens", array(*records)).json()
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (9_999, [7_000])


@pytest.mark.parametrize(
    ("endpoint", "envelope", "good", "wrong"),
    [
        ("usage/gpu-allocations", '{"watermark": null, "allocations": %s, "agent": null}', text(allocation_record(1)),
         text(allocation_record(2), '"quantity": 8', '"quantity": NaN')),
        ("usage/gpu-allocations", '{"allocations": %s}', text(allocation_record(1)),
         text(allocation_record(2), '"quantity": 8', f'"quantity": {DEEP}')),
        ("usage/capacity", '{"nodes": %s}', text(CAPACITY), text(CAPACITY, '"quantity": 8', '"quantity": Infinity')),
        ("usage/efficiency", "%s", text(SAMPLE), text(SAMPLE, '"mfu": "0.4"', '"mfu": NaN')),
        ("usage/engine-counters", "%s", text(READING), text(READING, '"prompt_tokens": 1', f'"prompt_tokens": {DEEP}')),
        ("events/batch", '{"events": %s}', text(lago_event()),
         text(lago_event(transaction_id="t-2"), '"prompt_tokens": 10', '"prompt_tokens": NaN')),
        ("events", "%s", text(EVENT), text({**EVENT, "id": "r-2"}, '"prompt_tokens": 9', f'"prompt_tokens": {DEEP}')),
        ("usage/litellm", "%s", text(payload(id="a")), text(payload(id="b"), '"prompt_tokens": 10', '"prompt_tokens": NaN')),
        ("usage/gpu-allocations", '{"allocations": %s}', text(allocation_record(1)), text(allocation_record(2, pod=HALF))),
        ("events/batch", '{"events": %s}', text(lago_event()),
         text(lago_event(transaction_id="t-2", external_subscription_id=HALF))),
        ("events/batch", '{"events": %s}', text(lago_event()), text(lago_event(transaction_id="t-2", code=HALF))),
        ("usage/tokens", "%s", text(token_record(1)), text(token_record(2, time=HALF))),
        ("usage/gpu-allocations", '{"allocations": %s}', text(allocation_record(1)),
         text(allocation_record(2, started_at=HALF))),
        ("usage/capacity", '{"nodes": %s}', text(CAPACITY), text({**CAPACITY, "from": HALF})),
        ("usage/efficiency", "%s", text(SAMPLE), text({**SAMPLE, "start": HALF})),
        ("events", "%s", text(EVENT), text({**EVENT, "id": "r-2", "time": HALF})),
        ("usage/litellm", "%s", text(payload(id="a")), text(payload(id="b", startTime=HALF))),
    ],
)  # fmt: skip
def test_so_does_a_record_of_every_other_endpoint(post: Post, endpoint: str, envelope: str, good: str, wrong: str) -> None:
    answer = post(endpoint, envelope % array(wrong, good)).json()
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (1, [0])
    assert QuarantinedRecord.objects.count() == 1


def test_a_nan_in_what_is_thrown_away_costs_nobody_the_usage(post: Post) -> None:
    """Python writes NaN; LiteLLM writes what Python has, in one line or printed over several."""
    assert post("usage/litellm", text(payload(id="a", saved_cache_cost=float("nan")))).json()["accepted"] == 1
    printed = json.dumps(payload(id="b", saved_cache_cost=float("nan")), indent=1)
    assert post("usage/litellm", printed).json()["accepted"] == 1
    assert not QuarantinedRecord.objects.exists()


def test_a_prompt_that_is_thrown_away_costs_nobody_the_usage(post: Post) -> None:
    sent = [payload(id="a", messages=HALF), payload(id="b", messages=WHOLE)]
    assert post("usage/litellm", json.dumps(sent)).json() == {
        "accepted": 2, "duplicates": 0, "conflicts": 0, "rejected": [],
    }  # fmt: skip


def test_whole_characters_beside_half_a_one_stay_what_they_are(post: Post) -> None:
    whole = text(token_record(1, consumer=WHOLE))
    answer = post("usage/tokens", array(whole, text(token_record(2, consumer=HALF)))).json()
    assert (answer["accepted"], "half a character" in answer["rejected"][0]["error"]) == (1, True)
    assert post("usage/tokens", array(whole)).json()["duplicates"] == 1


def test_the_watermark_of_a_report_with_an_unreadable_allocation_still_counts(post: Post) -> None:
    wrong = text(allocation_record(2), '"quantity": 8', '"quantity": NaN')
    body = '{"allocations": %s, "agent": {"name": "a", "cluster": "hq-1"}, "watermark": "2026-10-11T00:00:00Z"}'
    assert post("usage/gpu-allocations", body % array(wrong, text(allocation_record(1)))).status_code == 200
    assert AgentWatermark.objects.get().watermark == datetime(2026, 10, 11, tzinfo=UTC)
    assert GpuAllocation.objects.get().allocation_id == "alloc-1"


@pytest.mark.parametrize("body", [f"[{GOOD},", f"[{GOOD}]]", f"[{GOOD},,{LATER}]", f"[{GOOD}", '[{"a": [}]', "[,]"])
def test_an_array_whose_brackets_do_not_match_is_refused_whole(post: Post, body: str) -> None:
    assert post("usage/tokens", body).status_code == 400
    assert not QuarantinedRecord.objects.exists()


# Keys that occur twice


TWICE = {
    "a count": text(token_record(2), '"output_tokens": 100', '"output_tokens": 100, "output_tokens": 50'),
    "the same count": text(token_record(2), '"output_tokens": 100', '"output_tokens": 100, "output_tokens": 100'),
    "written with an escape": text(
        token_record(2), '"output_tokens": 100', '"output_tokens": 100, "output_token\\u0073": 50'
    ),
    "an attribute": text(token_record(2, attributes={"a": 1}), '"a": 1', '"a": 1, "a": 2'),
    "beside null": text(token_record(2, site=None), '"site": null', '"site": null, "model": "free"'),
    "beside a quote": text(
        token_record(2, consumer='a "b"'), '"output_tokens": 100', '"output_tokens": 50, "output_tokens": 90'
    ),
}


@pytest.mark.parametrize("wrong", TWICE.values(), ids=TWICE)
@pytest.mark.parametrize("others", [1, 200])
def test_a_record_that_says_something_twice_is_ambiguous(post: Post, wrong: str, others: int) -> None:
    good = [text(token_record(number, site=None, attributes={"k": number})) for number in range(10, 10 + others)]
    answer = post("usage/tokens", array(*good, wrong)).json()
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (others, [others])
    assert "occurs twice" in QuarantinedRecord.objects.get().error


@pytest.mark.parametrize("count", [1, 3, 200])
@pytest.mark.parametrize("sep", [(",", ":"), (", ", ": ")])
def test_records_with_everything_that_a_record_may_say_are_taken(post: Post, count: int, sep: tuple[str, str]) -> None:
    full = {"site": "hq", "provider": None, "status": 'it said "no"', "attributes": {"a": None, 'b"': [None, '"']},
            "sequence": 1, "sequence_run": "run"}  # fmt: skip
    records = [token_record(number, **(full | {"sequence": number} if number % 2 else {})) for number in range(count)]
    answer = post("usage/tokens", json.dumps(records, separators=sep)).json()
    assert (answer["accepted"], answer["rejected"]) == (count, [])


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("usage/gpu-allocations",
         '{"allocations": [' + text(allocation_record(1), '"quantity": 8', '"quantity": 8, "quantity": 1') + "]}"),
        ("usage/capacity", '{{"nodes": [{}]}}'.format(text(CAPACITY, '"quantity": 8', '"quantity": 8, "quantity": 1'))),
        ("usage/efficiency", array(text(SAMPLE, '"mfu"', '"hfu": 1, "mfu"'))),
        ("usage/litellm",
         array(text(payload(id="a"), '"prompt_tokens": 10', '"prompt_tokens": 1, "prompt_tokens": 10'))),
        ("events/batch",
         '{"events": [' + text(lago_event(), '"prompt_tokens": 10', '"prompt_tokens": 1, "prompt_tokens": 10') + "]}"),
    ],
)  # fmt: skip
def test_so_is_one_of_every_other_endpoint(post: Post, endpoint: str, body: str) -> None:
    answer = post(endpoint, body).json()
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (0, [0])
    assert "occurs twice" in QuarantinedRecord.objects.get().error


def test_an_envelope_with_two_lists_is_refused_for_one_of_them_would_be_lost(post: Post) -> None:
    one = f'"allocations": [{text(allocation_record(1))}]'
    answer = post("usage/gpu-allocations", f"{{{one}, {one.replace('alloc-1', 'alloc-2')}}}")
    assert (answer.status_code, "'allocations' occurs twice" in answer.json()["detail"]) == (400, True)
    assert not GpuAllocation.objects.exists()


# Byte order marks and many gzip members


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("usage/tokens", array(GOOD)), ("usage/tokens", f"{GOOD}\n"), ("usage/litellm", text(payload(id="a"))),
        ("usage/gpu-allocations", f'{{"allocations": [{text(allocation_record(1))}]}}'),
        ("usage/capacity", f'{{"nodes": [{text(CAPACITY)}]}}'), ("usage/efficiency", array(text(SAMPLE))),
        ("events/batch", f'{{"events": [{text(lago_event())}]}}'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_is_no_part_of_a_record(post: Post, endpoint: str, body: str, packed: bool) -> None:
    marked = b"\xef\xbb\xbf" + body.encode()
    sent = post(endpoint, gzip.compress(marked), **{"Content-Encoding": "gzip"}) if packed else post(endpoint, marked)
    assert (sent.json()["accepted"], sent.json()["rejected"]) == (1, [])


def test_gzip_members_are_read_up_to_a_limit_and_padding_between_them_is_none(post: Post) -> None:
    def sent(content: bytes) -> Any:
        return post("usage/tokens", content, **{"Content-Encoding": "gzip"})

    good = gzip.compress(b"[" + GOOD.encode()) + bytes(700) + gzip.compress(b"]") + bytes(3)
    assert sent(good).json()["accepted"] == 1
    assert sent(gzip.compress(GOOD.encode())[:-9]).status_code == 400
    assert sent(good + b"x").status_code == 400
    empty = gzip.compress(b"")
    assert sent(empty * 9_998 + good).json()["duplicates"] == 1
    begun = time.process_time()
    refused = sent(empty * 250_000)
    assert (refused.status_code, "10000 members" in refused.json()["detail"]) == (413, True)
    assert time.process_time() - begun < 2, "5 MB of empty members once took 5 s"
