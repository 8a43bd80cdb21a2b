"""`python -m tests.operations.month`: bring the schema to an empty database, and take, close, issue and prove October there.

Prints what came of it as JSON. A process of its own, so that the database of DATABASE_URL may be any.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
    import django
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps({"server": connection.pg_version // 10_000, **_october(Path(directory))}))


def _october(directory: Path) -> dict[str, Any]:
    """100 requests and one allocation: 0.16 + 0.00 + 0.08 and 209.62."""
    from billing.closing.services.closing import period_close
    from billing.corrections.services.proof import period_verify
    from billing.invoices.models import Invoice
    from billing.invoices.services.invoices import invoices_issue
    from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, token_record
    from tests.factories.months import OCTOBER_OVER

    apply(directory)
    ingest_allocations(allocation_record())
    first = ingest_tokens(*(token_record(number) for number in range(100))).answer()
    again = ingest_tokens(*(token_record(number) for number in range(90, 101))).answer()
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER)
    proofs = period_verify(month="2026-10")
    return {
        "accepted": [first["accepted"], again["accepted"]], "duplicates": again["duplicates"],
        "documents": [[row.number, str(row.total), row.sha256] for row in Invoice.objects.order_by("number")],
        "proven": [proof.holds for proof in proofs],
    }  # fmt: skip


if __name__ == "__main__":
    main()
