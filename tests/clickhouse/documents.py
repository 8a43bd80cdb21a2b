"""All documents and exports of a home, as if everything had been closed and issued at one instant."""

from hashlib import sha256
from typing import Final

from tests.cli import Home

AT: Final = "2030-01-02T03:04:05Z"
"""Files say when their document was issued, so two runs differ by their clocks; nothing else of them depends on it."""
WRITTEN: Final = """
from pathlib import Path
from billing.exports.journal import Chart
from billing.exports.services.focus import focus_export
from billing.exports.services.journal import journal_export
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.services.documents import CONTENT_TYPES, document_file
from billing.tenancy.database_roles import as_owner

folder = Path({folder!r})
with as_owner() as connection, connection.cursor() as cursor:
    cursor.execute("SET session_replication_role = replica")
    for model, column in ((BillingPeriod, "closed_at"), (Invoice, "issued_at"), (Note, "issued_at")):
        cursor.execute(f"UPDATE {{model._meta.db_table}} SET {{column}} = %s WHERE {{column}} IS NOT NULL", [{at!r}])
    cursor.execute("SET session_replication_role = origin")
for stored in [*Invoice.objects.filter(issued_at__isnull=False), *Note.objects.filter(issued_at__isnull=False)]:
    for suffix in CONTENT_TYPES:
        (folder / f"{{stored.number}}.{{suffix}}").write_bytes(document_file(stored, suffix))
for month in BillingPeriod.objects.filter(status="closed").values_list("month", flat=True):
    journal_export(month=month, path=folder / f"journal-{{month}}.csv", chart=Chart())
    focus_export(month=month, directory=folder / f"focus-{{month}}")
"""


def documents_of(home: Home) -> dict[str, str]:
    """SHA-256 of each file by its name: every invoice and note in each format, journal and FOCUS of each closed month."""
    folder = home.path / "documents"
    folder.mkdir()
    home.run("shell", "-v0", "-c", WRITTEN.format(at=AT, folder=str(folder)), timeout=900)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}
