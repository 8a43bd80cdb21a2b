"""Whatever is read of token records, to compare what it gives before and after they moved, and wherever they are kept; and
the sealed month that they leave.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from billing.closing.services.closing import period_close
from billing.corrections.services.proof import period_verify
from billing.usage.archive.sealed import Seal
from billing.usage.scope import EpochFilter
from billing.usage.services.sealing import ClosedMonth, usage_seal
from billing.usage.store.dimensions import token_names
from billing.usage.store.proofs import rollup_difference
from billing.usage.store.records import known_keys, record_stored, requests_of
from billing.usage.store.sums import token_sums
from metering.intervals import billing_month
from metering.token_keys import token_key
from tests.factories import ingest_tokens, token_record
from tests.factories.months import OCTOBER_OVER

OCTOBER = billing_month("2026-10", "Asia/Shanghai")
CLOSED = ClosedMonth("2026-10", OCTOBER, "Asia/Shanghai", 1)
MASKED = "0190b5a2-7c1e-7abc-8def-0123456789ab"
LARGE = 3_000_000_000
RECORDS = [
    token_record(1, time="2026-10-01T00:00:00+08:00", attributes={"tags": ["a,b", 'c"d', "算盘"], "n": 1.50}),
    token_record(2, id=MASKED, time="2026-10-15T07:59:59.000001+08:00", site="", provider="azure"),
    token_record(3, time="2026-10-15T08:00:00+08:00", input_tokens=LARGE, output_tokens=40_000, reasoning_output_tokens=0),
]


def outcome(*records: dict[str, Any]) -> tuple[int, int, int]:
    """How many of what is reported were accepted, known already, and known with another content."""
    found = ingest_tokens(*records)
    return found.accepted, found.duplicates, found.conflicts


def sealed_october(archive: Path) -> Seal:
    """October, closed and sealed in that folder."""
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    seal, _ = usage_seal(closed=CLOSED, address=str(archive), actor="ops", now=OCTOBER_OVER)
    return seal


def reads() -> dict[str, Any]:
    """Whatever is asked of records and roll-ups of October: with cuts within an hour, buckets, requests, one record."""
    cuts = [OCTOBER.start + timedelta(days=14, hours=7, minutes=59, seconds=59, microseconds=n) for n in (1, 2)]
    pieces, (name,) = OCTOBER.cut(cuts), {name.source for name in token_names("nlp-key-1", "llama-3-8b")}
    bounds: list[dict[str, tuple[int, ...]]] = [{"llama-3-8b": (200, 1000)}, {}, {"llama-3-8b": (1000,)}]
    names = token_names("nlp-key-1", "llama-3-8b")
    epochs = EpochFilter(before=1)
    return {
        "sums": list(token_sums(pieces, epochs)),
        "hours": list(token_sums(pieces, epochs, hourly=True)),
        "buckets": list(token_sums(pieces, epochs, bounds)),
        "buckets by hour": list(token_sums(pieces, epochs, bounds, hourly=True)),
        "of some": list(token_sums(pieces, epochs, bounds, dimensions=[names[0].number])),
        "late": list(token_sums(pieces, EpochFilter(first=1))),
        "requests": requests_of([(name, OCTOBER)], names, epochs, "input", 2),
        "long requests": requests_of([(name, OCTOBER)], names, epochs, "output", 5),
        "known": sorted(known_keys([token_key("litellm-hq", name) for name in ("req-1", MASKED, "req-3", "req-4", "none")])),
        "record": [record_stored(token_key("litellm-hq", name)) for name in ("req-1", MASKED, "req-3", "none")],
        "roll-ups": rollup_difference(OCTOBER),
        "proof": [(proof.number, proof.stored, proof.recomputed) for proof in period_verify(month="2026-10", usage=True)],
    }
