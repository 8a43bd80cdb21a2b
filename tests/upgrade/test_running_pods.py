"""Pods that run while a release is replaced: agents of both releases report them on, and issued documents stay."""

import json
from contextlib import closing
from typing import Any

import httpx
from psycopg import Connection

from billing.backup.ledger_facts import broken_documents, ledger_facts
from billing.backup.programs import server_connection
from billing.usage.contents import ALLOCATION, content_sha256
from metering.records import GpuAllocation, decode_batch
from tests.factories import allocation_record
from tests.factories.servers import WebProcess
from tests.upgrade.conftest import Manage
from tests.upgrade.load import new_token

STARTED = {"started_at": "2026-11-05T00:00:00Z"}
LEARNED = {"capacity_type": "spot", "tags": {"project": "apollo"}}
"""Fields that only an agent of this release states."""


def running(number: int, hour: int, **more: Any) -> dict[str, Any]:
    observed = {"ended_at": None, "end_reason": None, "observed_until": f"2026-11-05T{hour:02}:00:00Z"}
    return allocation_record(number, **STARTED, **observed, **more)


def ended(number: int, hour: int, **more: Any) -> dict[str, Any]:
    end = f"2026-11-05T{hour:02}:00:00Z"
    return allocation_record(number, **STARTED, ended_at=end, observed_until=end, end_reason="completed", **more)


def stored_by_the_release(ledger: Connection[Any], *reported: dict[str, Any]) -> None:
    """Store the reports of running pods as the release did: rows with the hash of their content, and the time so far."""
    names = ", ".join(ALLOCATION)
    empty = {"workload_kind": "", "workload_name": "", "queue": "", "site": "", "facts": "{}", "from_file": False,
             "end_reason": "", "end_rule": "", "end_estimated": False, "end_earliest": None, "end_latest": None,
             "end_reconstructed": False, "reconstructed_from": "", "ended_at": None}  # fmt: skip
    batch: Any = decode_batch(GpuAllocation, [json.dumps(record).encode() for record in reported])
    for _, record in batch.records:
        row = {name: empty[name] if name in empty else getattr(record, name) for name in ALLOCATION}
        (row_id,) = ledger.execute(
            f"""INSERT INTO usage_gpuallocation ({names}, received_at, content_sha256)
                SELECT n.*, now(), {content_sha256(ALLOCATION, 'n')}
                FROM (SELECT {', '.join(f'%s::{kind} AS {name}' for name, kind in ALLOCATION.items())}) AS n
                RETURNING id""",
            list(row.values()),
        ).fetchone() or (None,)
        ledger.execute(
            "INSERT INTO usage_allocationrevision (epoch, start, until, allocation_id) VALUES (1, %s, %s, %s)",
            [record.started_at, record.observed_until, row_id],
        )
    ledger.execute("INSERT INTO usage_acceptedrows (kind, rows) VALUES ('gpuallocation', %s)", [len(reported)])


def documents(ledger: Connection[Any]) -> tuple[Any, ...]:
    """Every document as it was issued, to the byte."""
    rows = ledger.execute("SELECT md5(string_agg(i::text, chr(10) ORDER BY i.id)) FROM invoices_invoice i").fetchall()
    facts = ledger_facts(ledger)
    return facts["chains"], facts["periods"], broken_documents(ledger), rows


def test_pods_that_run_go_on_under_agents_of_both_releases(restored: str, manage: Manage) -> None:
    """Pod 51 keeps an old agent, 52 gets a new one, 53 is reported by both in turn, 54 is new and of a new agent."""
    with closing(server_connection(restored, autocommit=True)) as ledger:
        stored_by_the_release(ledger, running(51, 1), running(52, 1), running(53, 1))
        proofs = ledger_facts(ledger)["chains"], ledger_facts(ledger)["periods"]
        manage("migrate", "--no-input")
        before = documents(ledger)
        assert (before[:2], before[2][1]) == (proofs, [])
        web = WebProcess(1, DATABASE_URL=manage.environment["DATABASE_URL"], FUTURE_TOLERANCE_SECONDS=str(10**9))
        web.start()
        try:
            token = new_token(restored)
            answers = [
                reported(web, token, *records)
                for records in (
                    (running(51, 2), running(52, 2, **LEARNED), running(53, 2, **LEARNED), running(54, 2, **LEARNED)),
                    (running(51, 2), running(52, 2, **LEARNED), running(53, 3), running(54, 2, **LEARNED)),
                    (ended(51, 4), ended(52, 4, **LEARNED), ended(53, 4, **LEARNED), ended(54, 4, **LEARNED)),
                    (ended(51, 4), ended(52, 4), ended(53, 4), ended(54, 4)),
                )
            ]  # fmt: skip
        finally:
            web.kill()
        assert answers == [(4, 0, 0, []), (1, 3, 0, []), (4, 0, 0, []), (0, 4, 0, [])]
        held = ledger.execute(
            """SELECT a.allocation_id, sum(extract(epoch FROM s.until - s.start))::int
               FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
               WHERE a.allocation_id IN ('alloc-51', 'alloc-52', 'alloc-53', 'alloc-54') GROUP BY 1 ORDER BY 1"""
        ).fetchall()
        assert held == [(f"alloc-{number}", 4 * 3600) for number in (51, 52, 53, 54)]
        assert documents(ledger) == before
    manage("period_verify", "--all")
    manage("audit_verify")


def reported(web: WebProcess, token: str, *records: dict[str, Any]) -> tuple[int, int, int, list[Any]]:
    """Accepted, duplicates, conflicts and rejected of a report."""
    answer = httpx.post(
        f"{web.url}/api/v1/usage/gpu-allocations", json={"allocations": records}, timeout=60,
        headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip
    assert answer.status_code == httpx.codes.OK, answer.text
    said = answer.json()
    return said["accepted"], said["duplicates"], said["conflicts"], said["rejected"]
