"""Facts of a ledger for comparison: rows, totals and chains, read alike from the production and a restored database.

The functions run plain SQL on a given connection, so that both sides are computed by the same statements.
"""

import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from billing.runtime.canonical_json import document_hash
from billing.usage.store.proofs import tokens_stored

TABLES = """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1"""
PERIODS = """SELECT p.month, p.status, p.close_seq, p.start, p."end", count(i.id), count(i.number),
                    coalesce(sum(i.total), 0.00),
                    (SELECT count(*) FROM rating_charge c WHERE c.close_seq = p.close_seq)
             FROM invoices_billingperiod p LEFT JOIN invoices_invoice i ON i.period_id = p.id
             GROUP BY p.id ORDER BY p.month"""
CHAINS = "SELECT kind, issuer, fiscal_year, last_number, last_sha256 FROM invoices_numberseries ORDER BY 1, 2, 3"
HELD = "SELECT coalesce(sum(microseconds(until - start)), 0) FROM usage_allocationrevision"
DOCUMENTS = """SELECT 'invoice' AS kind, i.issuer, i.fiscal_year, i.sequence, i.number, i.total, i.document, i.sha256,
                      i.previous_sha256,
                      (SELECT coalesce(sum(l.amount), 0.00) FROM invoices_invoiceline l WHERE l.invoice_id = i.id)
               FROM invoices_invoice i WHERE i.status = 'issued'
               UNION ALL
               SELECT n.kind, n.issuer, n.fiscal_year, n.sequence, n.number, n.total, n.document, n.sha256,
                      n.previous_sha256,
                      (SELECT coalesce(sum(l.amount), 0.00) FROM invoices_noteline l WHERE l.note_id = n.id)
               FROM invoices_note n WHERE n.number IS NOT NULL ORDER BY 1, 2, 3, 4"""


def ledger_facts(ledger: Connection[Any]) -> dict[str, Any]:
    """Return rows per table, totals per period, heads of the chains, sums of usage; JSON values, numbers as text."""
    rows = {}
    for (table,) in ledger.execute(TABLES).fetchall():
        (rows[table],) = ledger.execute(SQL("SELECT count(*) FROM {}").format(Identifier(table))).fetchone() or (0,)
    names = ("status", "close_seq", "start", "end", "invoices", "issued", "total", "charges")
    periods = {
        row[0]: {name: _shown(value) for name, value in zip(names, row[1:], strict=True)}
        for row in ledger.execute(PERIODS).fetchall()
    }
    usage = (*(ledger.execute(HELD).fetchone() or (0,)), *tokens_stored(ledger))
    return {
        "rows": rows,
        "periods": periods,
        "chains": {
            f"{kind} {issuer} {year}": {"last_number": number, "last_sha256": digest}
            for kind, issuer, year, number, digest in ledger.execute(CHAINS).fetchall()
        },
        "audit": _audit_head(ledger),
        "usage": dict(zip(("held_microseconds", "input_tokens", "output_tokens"), map(str, usage), strict=True)),
    }


def _audit_head(ledger: Connection[Any]) -> dict[str, Any]:
    head = ledger.execute("SELECT ordinal, digest FROM tenancy_auditlink ORDER BY ordinal DESC LIMIT 1").fetchone()
    return {"entries": head[0], "head": head[1]} if head else {"entries": 0, "head": ""}


def _shown(value: Any) -> Any:
    """Convert a value for JSON: a total exactly, an instant in UTC."""
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def differences(expected: Any, found: Any, where: str = "") -> list[str]:
    """Return every leaf in which two facts differ, with its path."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = sorted(expected.keys() | found.keys())
        return [
            text
            for name in names
            for text in differences(expected.get(name), found.get(name), f"{where}.{name}" if where else name)
        ]
    return [] if expected == found else [f"{where}: {expected} in the backup, {found} restored"]


def broken_documents(ledger: Connection[Any]) -> tuple[int, list[str]]:
    """Return the number of issued documents, and their defects: hash, chain, number, total, gaps."""
    rows = ledger.execute(DOCUMENTS).fetchall()
    # a hash chain alone does not show that its last documents are missing: the heads of the series do
    heads = {row[:3]: row[3:] for row in ledger.execute(CHAINS).fetchall()}
    found: list[str] = []
    for series, group in groupby(rows, key=lambda row: row[:3]):
        sequence, previous = 0, ""
        for row in group:
            found += [f"{row[4]}: {complaint}" for complaint in _complaints(row, sequence + 1, previous)]
            sequence, previous = row[3], row[7]
        if heads.pop(series, None) != (sequence, previous):
            found.append(f"{' '.join(map(str, series))}: the series does not end with its last document")
    found += [f"{' '.join(map(str, series))}: documents are missing" for series, (last, _) in heads.items() if last]
    return len(rows), found


def _complaints(row: tuple[Any, ...], sequence: int, previous: str) -> list[str]:
    _, _, _, stored_sequence, number, total, text, digest, stored_previous, lines = row
    document = json.loads(text)
    checks = {
        "the hash is not that of the document": document_hash(text) == digest,
        "the chain does not lead to the document before": stored_previous == previous,
        "the document names another predecessor": (document["previous_sha256"] or "") == previous,
        "the document has another number": document["number"] == number,
        "a number before it is missing": stored_sequence == sequence,
        "the total is not that of the document": Decimal(document["total"]) == total,
        "the lines do not add up to the total": lines == total,
    }
    return [complaint for complaint, holds in checks.items() if not holds]
