"""Long lines that a container runtime cut into parts: one line again, whatever else was printed in between."""

import json
from typing import Any

import pytest

from metering.logs.containers import container_of
from metering.records import RecordError

PART_BYTES = 16_384  # containerd and Docker cut after so many
CRI = (
    b'2026-10-05T10:00:00.1Z stdout P {"a": "one, \n'
    b"2026-10-05T10:00:00.2Z stderr F a warning that was printed meanwhile\n"
    b"2026-10-05T10:00:00.1Z stdout P two, \n"
    b'2026-10-05T10:00:00.1Z stdout F three", "b": 3}\n'
)
LONG = json.dumps({"prompt": "p" * PART_BYTES, "a": 1})


def docker(printed: str, stream: str = "stdout") -> bytes:
    fields = {"log": printed, "stream": stream, "time": "2026-10-05T10:00:00.1Z"}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


DOCKER = docker(LONG[:PART_BYTES]) + docker('{"err": 1}\n', "stderr") + docker(LONG[PART_BYTES:] + "\n")


@pytest.mark.parametrize(
    ("parts", "objects"),
    [
        (CRI, [{"a": "one, two, three", "b": 3}]),
        (DOCKER, [{"err": 1}, {"prompt": "p" * PART_BYTES, "a": 1}]),
    ],
)
def test_a_line_that_was_cut_is_one_line_again_and_waits_for_its_last_part(
    parts: bytes, objects: list[dict[str, Any]]
) -> None:
    container = container_of(parts[:64])
    assert container.frame_end(parts + parts, 0) == len(parts)
    assert list(container.open(parts)) == objects
    assert {container.frame_end(parts[:length], 0) for length in (*range(0, len(parts), 97), len(parts) - 1)} == {-1}


def test_a_line_without_its_last_part_is_bad_and_costs_no_other() -> None:
    container = container_of(CRI)
    with pytest.raises(RecordError, match="not JSON"):
        list(container.open(CRI[: CRI.rindex(b"2026")]))
    whole = b'2026-10-05T10:00:00.1Z stdout F {"a": 1}\n'
    assert container.frame_end(whole + CRI, 0) == len(whole)


def test_a_short_text_of_docker_without_an_end_is_no_part_of_what_another_process_prints_next() -> None:
    last, first = docker('{"a": 1}'), docker('{"a": 2}\n')
    container = container_of(last)
    assert container.frame_end(last + first, 0) == len(last)
    assert list(container.open(last)) == [{"a": 1}]
