"""PURE: one reading for each replica and model, from samples of vLLM or SGLang.

Series of one replica and model that differ in other labels (data parallel ranks) are added up. A server that several jobs
or Prometheus servers scrape is counted once. `started_at` is the start of the process or, if the server does not report it,
the creation of its counter.

Source: reference/METERING_FACTS.md, B3 (vllm:prompt_tokens_total, vllm:generation_tokens_total).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from metering.engines.samples import Sample, SampleError
from metering.records import MAX_COUNT, EngineReading

PROMPT, GENERATION, STARTED = "prompt_tokens_total", "generation_tokens_total", "process_start_time_seconds"
CREATED: Final = ("prompt_tokens_created", "generation_tokens_created")
WANTED: Final = re.compile(r"(?:vllm|sglang):(?:prompt|generation)_tokens_(?:total|created)\b|process_start_time_seconds\b")
MODEL_LABELS: Final = ("model_name", "model")
OF_SCRAPES: Final = frozenset({
    "instance", "job", "endpoint", "service", "container", "namespace", "node", "pod",
    "prometheus", "prometheus_replica", "replica", "__replica__",
})  # fmt: skip
"""Labels that say which scraper read a series and where, not what was counted."""


def readings(
    samples: Iterable[Sample], *, source: str, replica_of: Callable[[Mapping[str, str]], str], now: datetime,
    models: Mapping[str, str],
) -> list[EngineReading]:  # fmt: skip
    """Return readings by replica and model.  `models`: name that a server serves -> name in the ledger, where they differ.

    Raises SampleError if a counter is no whole number, or if there is nothing to read.
    """
    counts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    starts: dict[str, datetime] = {}
    created: dict[str, datetime] = {}
    times: dict[str, datetime] = {}
    for sample in samples:
        replica, name = replica_of(sample.labels), sample.name.partition(":")[2] or sample.name
        if name == STARTED:
            starts[replica] = _instant(sample.value)
        elif name in CREATED:
            created[replica] = min(_instant(sample.value), created.get(replica, now))
        elif name in (PROMPT, GENERATION):
            served = _model(sample)
            counted = counts[replica, models.get(served, served)]
            counted[name] = counted.get(name, 0) + _whole(sample)
            times[replica] = sample.time or now
    if not counts:
        raise SampleError("no counters of vLLM or SGLang (vllm:prompt_tokens_total, sglang:prompt_tokens_total)")
    return [
        EngineReading(
            source=source, replica=replica, model=model, time=times[replica], prompt_tokens=counted.get(PROMPT, 0),
            generation_tokens=counted.get(GENERATION, 0), started_at=starts.get(replica) or created.get(replica),
        )
        for (replica, model), counted in sorted(counts.items())
    ]  # fmt: skip


def scraped_once(samples: Iterable[Sample], replica_of: Callable[[Mapping[str, str]], str]) -> list[Sample]:
    """Keep one of each server's series that differ only in their scraper: the largest, as it is the latest.

    Addresses of a replica whose processes began at one instant are one server; if no start is reported, each address is a
    server.
    """
    every = list(samples)
    started = {_address(sample): str(sample.value) for sample in every if sample.name == STARTED}
    found: dict[tuple[object, ...], Sample] = {}
    for sample in every:
        own = frozenset((name, value) for name, value in sample.labels.items() if name not in OF_SCRAPES)
        server = started.get(_address(sample), _address(sample))
        key = (replica_of(sample.labels), server, sample.name, own)
        known = found.get(key)
        # Decimal.max, since comparing with NaN would raise.
        if known is None or known.value.max(sample.value) != known.value:
            found[key] = sample
    return list(found.values())


def _address(sample: Sample) -> str:
    return sample.labels.get("instance", "")


def _model(sample: Sample) -> str:
    for label in MODEL_LABELS:
        if sample.labels.get(label):
            return sample.labels[label]
    raise SampleError(f"{sample.name} has no label {' or '.join(MODEL_LABELS)}")


def _whole(sample: Sample) -> int:
    value = sample.value
    if not value.is_finite() or value != value.to_integral_value() or not 0 <= value <= MAX_COUNT:
        raise SampleError(f"{sample.name} {value} is no whole number of tokens")
    return int(value)


def _instant(value: Decimal) -> datetime:
    """Return the instant to the second: the digits after differ from one reader's float to the next."""
    try:
        return datetime.fromtimestamp(int(value), UTC)
    except (ValueError, OverflowError, OSError, ArithmeticError) as error:
        raise SampleError(f"{value} is no time in seconds since 1970") from error
