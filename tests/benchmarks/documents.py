"""Invoice documents per second and core, against a compiler that is made anew for each."""

import json
import statistics
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from billing.invoices.documents import PdfRenderer
from billing.invoices.lines import InvoiceParties, draft_document, invoice_lines, numbered_document
from billing.runtime.canonical_json import canonical_json, document_hash
from metering.intervals import billing_month
from pricing.rating import Charge, LineKey

COUNT, ROUNDS, LINES = 30, 3, 20
ISSUED = datetime(2026, 11, 3, tzinfo=UTC)


def measure() -> list[tuple[str, ...]]:
    """One row: documents with one reused compiler against one compiler a document."""
    documents = [_document(number) for number in range(1, COUNT + 1)]
    reused, single = [], []
    for _ in range(ROUNDS):
        reused.append(COUNT / _seconds(documents, reuse=True))
        single.append(COUNT / _seconds(documents, reuse=False))
    fast, slow = statistics.median(reused), statistics.median(single)
    name = f"invoices of {LINES} lines as PDF, one core"
    return [(name, f"{fast:.1f} documents/s", f"{slow:.1f} documents/s with a new compiler each", f"{fast / slow:.2f}")]


def _seconds(documents: list[tuple[dict[str, Any], str]], *, reuse: bool) -> float:
    started = time.process_time()
    renderer = PdfRenderer()
    for document, sha256 in documents:
        renderer = renderer if reuse else PdfRenderer()
        assert renderer.render(document, sha256=sha256, issued_at=ISSUED).startswith(b"%PDF")
    return time.process_time() - started


def _document(number: int) -> tuple[dict[str, Any], str]:
    parties = InvoiceParties(
        "AI-INFRA", f"team-{number}", f"Team {number}", "CC-1", "CNY", "2026-10", "Asia/Shanghai",
        billing_month("2026-10", "Asia/Shanghai"),
    )  # fmt: skip
    charges = [
        Charge(
            LineKey("t", False, False, "2026-10", "gpu", "hq-1", f"namespace-{line}", accelerator="NVIDIA-H800",
                    sku="NVIDIA-H800", unit="GPU-Hours", price_version="2026-10"),
            Decimal(3_600_000_000 * (line + number)), Decimal("10.0000"),
        )
        for line in range(1, LINES + 1)
    ]  # fmt: skip
    draft = draft_document(parties, invoice_lines(charges))
    content = canonical_json(numbered_document(draft, number=f"AI-INFRA-2026-{number:06d}", previous_sha256=""))
    return json.loads(content), document_hash(content)
