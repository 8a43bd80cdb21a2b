"""A month of a thousand teams: token records, roll-ups, allocations and efficiency samples, made set-based in the database.

Nothing is sent through a door here (`ingest` measures those): rows are in the ledger as the services would have left
them. The roll-up is the sum of the events by hour and dimension, which is what the folder makes of them. With
`told` > 1 the roll-up has so many times more than the events that are stored, except in the hour that the price change
cuts, of which every event is there: a close reads whole hours from the roll-up, so it does the work of that many events.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import yaml

from metering.intervals import billing_month
from tests.benchmarks.processor import say

MONTH, ZONE = "2026-10", "Asia/Shanghai"
START, END = "2026-09-30T16:00:00Z", "2026-10-31T16:00:00Z"
PRICE_CHANGE = "2026-10-16T03:30:00+08:00"
CUT_HOUR = "2026-10-15T19:00:00Z"
SINCE = "2020-01-01"
"""When owners begin."""
ORDERED_KEY = "lpad(to_hex(n), 32, '0')::uuid"
RANDOM_KEY = "md5(n::text)::uuid"
AT_ONCE = 5_000_000
"""Records of one statement."""
WITHOUT_INDEX = "ALTER TABLE token_entry DROP CONSTRAINT token_entry_pkey"
INDEX = (
    "ALTER TABLE token_entry ADD PRIMARY KEY (key)",
    "ALTER INDEX token_entry_other_pkey SET (fillfactor = 70)",
    "REINDEX INDEX token_entry_other_pkey",
    "ALTER INDEX token_entry_other_pkey RESET (fillfactor)",
)  # fmt: skip
"""Made at once, as full as random keys leave it."""
MODELS = ("model-a", "model-b", "model-c", "model-d")
ACCELERATORS = ("NVIDIA-H800", "NVIDIA-A800")


@dataclass(frozen=True)
class Size:
    """How much of everything; `told`: how many times the stored events the roll-up of whole hours has."""

    teams: int = 1_000
    tokens: int = 10_000_000
    allocations: int = 200_000
    reports: int = 1

    def scaled(self, share: float) -> "Size":
        """The same month, smaller; at least ten teams."""
        return Size(max(10, int(self.teams * share)), int(self.tokens * share), int(self.allocations * share), self.reports)

    def __str__(self) -> str:
        return f"{self.tokens * self.reports:,} token records, {self.allocations:,} allocations, {self.teams:,} teams"


def fill(
    size: Size, home: Path, months: Mapping[str, Size] | None = None, *, key: str = ORDERED_KEY,
    elsewhere: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Empty the ledger, set the installation up, and write the month.

    `months`: write these instead, each with its tokens and allocations. `key`: of record number n, in SQL.
    `elsewhere`: takes the records to another store once they are added up.
    """
    wanted, first = months or {MONTH: size}, replace(size, tokens=0, allocations=0)
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        _empty(connection)
        _set_up(size, home, min(wanted))
        connection.execute("SET session_replication_role = replica")  # only folding writes a roll-up
        connection.execute(DIMENSIONS.format(**_facts(size)).encode())
        if key != ORDERED_KEY:
            connection.execute(WITHOUT_INDEX)
        for name, own in wanted.items():
            facts = _facts(replace(own, teams=size.teams), name, first) | {"key": key}
            for since in range(first.tokens, first.tokens + own.tokens, AT_ONCE):
                until = min(since + AT_ONCE, first.tokens + own.tokens)
                connection.execute(ENTRIES.format(**facts, since=since, until=until).encode())
                say(f"{until:,} records written")
            connection.execute(ALLOCATIONS.format(**facts).encode())
            first = replace(first, tokens=first.tokens + own.tokens, allocations=first.allocations + own.allocations)
        for statement in (ROLL_UP, DAYS, SPANS, SAMPLES, *_contents()):
            connection.execute(statement.format(**_facts(size)).encode())
        say("added up")
        if elsewhere:
            elsewhere()
        for statement in INDEX if key != ORDERED_KEY else ():
            connection.execute(statement.encode())
        connection.execute("SET session_replication_role = origin")
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def roll_up(size: Size) -> None:
    """Fold the month's events again, reported as often as `size` says."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("TRUNCATE token_hour, token_day")
        for statement in (ROLL_UP, DAYS):
            connection.execute(statement.format(**_facts(size)).encode())
        connection.execute("VACUUM ANALYZE token_hour")
        connection.execute("VACUUM ANALYZE token_day")


def _contents() -> list[str]:
    """The hashes of what was reported, and how many rows were."""
    from billing.usage.contents import ALLOCATION, SAMPLE, content_sha256

    return [
        f"""UPDATE usage_{table} r SET content_sha256 = {content_sha256(columns, 'r')};
            INSERT INTO usage_acceptedrows (kind, rows) SELECT '{table}', count(*) FROM usage_{table}"""
        for table, columns in (("gpuallocation", ALLOCATION), ("efficiencysample", SAMPLE))
    ]


def _facts(size: Size, name: str = MONTH, first: Size = Size(tokens=0, allocations=0)) -> dict[str, Any]:
    """`first`: how many records and allocations were written before."""
    window = billing_month(name, ZONE)
    return {
        "teams": size.teams, "tokens": size.tokens, "allocations": size.allocations, "told": size.reports,
        "start": window.start.isoformat(), "seconds": round((window.end - window.start).total_seconds()), "cut": CUT_HOUR,
        "first": first.tokens, "first_allocation": first.allocations,
    }  # fmt: skip


def _empty(connection: psycopg.Connection[Any]) -> None:
    """Every table but those of Django itself; the triggers that forbid it are for people."""
    names = connection.execute(
        """SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables WHERE schemaname = 'public'
           AND tablename NOT LIKE 'django_%' AND tablename NOT LIKE 'auth_%'"""
    ).fetchone()
    assert names is not None
    connection.execute("SET session_replication_role = replica")
    connection.execute(f"TRUNCATE {names[0]} RESTART IDENTITY CASCADE".encode())
    connection.execute("SET session_replication_role = origin")


def _set_up(size: Size, home: Path, first: str) -> None:
    """Through the set-up file, as a person would: two price lists from a month on, the second begins within an hour."""
    from billing.setup.apply import set_up_apply

    codes = [f"t{number:04d}" for number in range(1, size.teams + 1)]

    def version(name: str, valid_from: str, gpu: tuple[str, str], output: str) -> dict[str, Any]:
        tokens = [
            {"model": model, "input": "2.0000", "cache_read": "0.2000", "cache_creation": "2.5000", "output": output}
            for model in MODELS
        ]
        prices = [{"accelerator": a, "price_per_gpu_hour": p} for a, p in zip(ACCELERATORS, gpu, strict=True)]
        return {"name": name, "valid_from": valid_from, "gpu": prices, "tokens": tokens}

    document = {
        "billing": {"currency": "CNY", "zone": ZONE, "issuer": "AI-INFRA", "review": "none"},
        "teams": [{"code": c, "name": f"Team {c}", "cost_center": f"CC-{c}"} for c in codes],
        "ownership": [{"cluster": "hq-1", "namespace": f"{c}-*", "team": c, "valid_from": SINCE} for c in codes],
        "consumers": [
            {"source": "gateway", "consumer": f"{c}-key-{key}", "team": c, "valid_from": SINCE}
            for c in codes for key in (0, 1)
        ],
        "price_versions": [
            version("2026-10", f"{first}-01T00:00:00+08:00", ("10.0000", "7.5000"), "8.0000"),
            version("2026-10b", PRICE_CHANGE, ("10.5000", "7.2500"), "7.6000"),
        ],
        "efficiency_policies": [
            {"name": "bands", "valid_from": f"{first}-01T00:00:00+08:00", "hfu_below": "0.20", "penalty": "0.20",
             "mfu_above": "0.50", "reward": "0.10"}
        ],
    }  # fmt: skip
    path = home / "set-up.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    set_up_apply(path=path, actor="bench")


DIMENSIONS = """
INSERT INTO token_dimension (digest, source, consumer, model)
SELECT sha256(convert_to(n::text, 'UTF8')), 'gateway',
       format('t%s-key-%s', lpad((n / 4 + 1)::text, 4, '0'), n / 2 % 2),
       'model-' || chr(97 + (n * 7 + n / 4) % 4)
FROM generate_series(0, {teams} * 4 - 1) AS n
"""
"""Four per team: two consumers with two models each."""

ENTRIES = """
INSERT INTO token_entry
SELECT {key}, '{start}'::timestamptz + (n - {first}) * ({seconds}::float8 / {tokens}) * interval '1 second',
       1 + floor({teams} * 4 * power(u, 2))::int, c + f + 1, c, c / 7, 1 + (h >> 8) % 2000, (h >> 8) % 2000 / 3, 0, '', ''
FROM (SELECT n, h, ((h >> 16) & 65535) / 65536.0::float8 AS u, CASE WHEN h % 10 < 4 THEN h % 3000 ELSE 0 END AS c,
             c.f
      FROM (SELECT n, hashint8(n)::bigint + 2147483648 AS h FROM generate_series({since}, {until} - 1) AS n) k,
             LATERAL (SELECT (h >> 4) % 9000 + 500 AS f) c) e
"""
"""Evenly over the month; some keys are used far more than others; four in ten read from a cache."""

ROLL_UP = """
INSERT INTO token_hour
SELECT hour, dimension, 0, requests * m, i * m, r * m, c * m, o * m, s * m FROM (
    SELECT date_trunc('hour', time, 'UTC') AS hour, dimension, count(*) AS requests, sum(input_tokens) AS i,
           sum(cache_read_input_tokens) AS r, sum(cache_creation_input_tokens) AS c, sum(output_tokens) AS o,
           sum(reasoning_output_tokens) AS s
    FROM token_entry GROUP BY 1, 2) x,
    LATERAL (SELECT CASE WHEN hour = '{cut}'::timestamptz THEN 1 ELSE {told} END AS m) f
ORDER BY hour, dimension
"""
"""In order of time, as a folder that runs all the time leaves it."""

DAYS = """
INSERT INTO token_day
SELECT date_trunc('day', hour, 'UTC'), dimension, epoch, sum(requests), sum(input_tokens), sum(cache_read_input_tokens),
       sum(cache_creation_input_tokens), sum(output_tokens), sum(reasoning_output_tokens)
FROM token_hour GROUP BY 1, 2, 3 ORDER BY 1, 2
"""

ALLOCATIONS = """
INSERT INTO usage_gpuallocation (allocation_id, identity, cluster, namespace, pod, pod_uid, resource, quantity,
    device_fraction, accelerator, node, started_at, ended_at, observed_until, end_reason, workload_kind, workload_name,
    queue, site, facts, from_file, end_rule, end_estimated, reconstructed_from, end_reconstructed, received_at,
    content_sha256)
SELECT 'a-' || n, hashint8(n), 'hq-1', format('t%s-%s', lpad((n % {teams} + 1)::text, 4, '0'), n / {teams} % 4), 'pod-' || n,
       'uid-' || n, 'nvidia.com/gpu', 1 + n % 8, 1, CASE WHEN (n / 4) % 3 = 0 THEN 'NVIDIA-A800' ELSE 'NVIDIA-H800' END,
       'node-' || n % 500, s, s + d, s + d, 'completed', 'Job', 'job-' || n, '', '', '{{}}', false, '', false, '', false,
       s + d, ''
FROM (SELECT n, '{start}'::timestamptz + (h % ({seconds} - 90000)) * interval '1 second' AS s,
             (600 + (h >> 7) % 86400) * interval '1 second' + (h % 1000) * interval '1 millisecond' AS d
      FROM (SELECT n, hashint8(n + 77)::bigint + 2147483648 AS h
            FROM generate_series({first_allocation}, {first_allocation} + {allocations} - 1) AS n) k) e
"""
"""Up to a day each, of 1 to 8 devices, in four namespaces of every team."""

SPANS = """
INSERT INTO usage_allocationrevision (allocation_id, epoch, start, until)
SELECT id, 0, started_at, ended_at FROM usage_gpuallocation
"""

SAMPLES = """
INSERT INTO usage_efficiencysample (cluster, pod_uid, workload, start, "end", gpu_seconds, mfu, hfu, dtype, method, coverage,
    reason, epoch, content_sha256)
SELECT cluster, pod_uid, '', started_at, ended_at, round(quantity * extract(epoch FROM ended_at - started_at), 6),
       (10 + identity & 63) / 100.0, (10 + identity & 63) / 100.0, 'bf16', 'counters', 1, '', 0, ''
FROM usage_gpuallocation WHERE id % 10 = 0
"""
"""One job in ten is measured from end to end."""
