"""What is closed, issued or published stays: the database and the services refuse whatever would change it."""

from pathlib import Path

import pytest
from django.db import DatabaseError

from billing.invoices.models import InvoiceLine
from billing.setup.file import SetUpFileError
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_sample, ingest_tokens, token_record
from tests.factories.closing import close, issue, lines, proofs_hold, sql
from tests.factories.usage import POLICY

pytestmark = pytest.mark.django_db


def test_the_database_refuses_to_change_what_is_closed_issued_or_published(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    ingest_tokens(token_record())
    close()
    issue()
    for statement in (
        "UPDATE invoices_billingperiod SET status = 'open', close_seq = NULL",
        "UPDATE invoices_billingperiod SET closed_by = 'x'",
        "DELETE FROM invoices_billingperiod",
        "UPDATE invoices_invoice SET total = 0",
        "UPDATE invoices_invoice SET document = '{}'",
        "UPDATE invoices_invoice SET status = 'approved'",
        "DELETE FROM invoices_invoice",
        "UPDATE invoices_invoiceline SET amount = 0",
        "DELETE FROM invoices_invoiceline",
        "INSERT INTO invoices_invoiceline SELECT * FROM invoices_invoiceline",
        "UPDATE rating_charge SET usage_quantity = 1",
        "UPDATE rating_charge SET team = 'cv'",
        "DELETE FROM rating_charge",
    ):
        with pytest.raises(DatabaseError):
            sql(statement)
    assert proofs_hold("2026-10")


def test_neither_an_issued_invoice_nor_a_draft_gets_a_further_line(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv"))
    close()
    rest = ", ".join(
        field.column for field in InvoiceLine._meta.concrete_fields if field.column not in ("id", "position")
    )
    table = "invoices_invoiceline"
    one_more = f"INSERT INTO {table} (position, {rest}) SELECT position + %s, {rest} FROM {table}"
    for place in (1000, 2000):
        with pytest.raises(DatabaseError, match="the lines of an invoice are written once"):
            sql(one_more % place)
        issue()


def test_a_back_dated_owner_that_would_change_a_closed_month_is_refused(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    close()
    stolen = {"cluster": "hq-1", "namespace": "nlp-train", "team": "cv", "valid_from": "2026-10-10T01:00:00Z"}
    with pytest.raises(SetUpFileError, match="2026-10"):
        apply(tmp_path, ownership=[*SET_UP["ownership"], stolen])
    assert proofs_hold("2026-10")
    from_november = {**stolen, "valid_from": "2026-11-01"}
    assert apply(tmp_path, ownership=[*SET_UP["ownership"], from_november]).changes
    assert proofs_hold("2026-10")


def test_another_currency_does_not_reinterpret_published_prices(tmp_path: Path) -> None:
    apply(tmp_path)
    with pytest.raises(SetUpFileError, match="currency"):
        apply(tmp_path, billing={**SET_UP["billing"], "currency": "USD"}, price_versions=None)


def test_an_allocation_that_comes_later_does_not_change_the_verdicts_of_a_closed_month(tmp_path: Path) -> None:
    """A sample of workload `llm` stays with the job that it was rated with, whoever names a workload `llm` next month."""
    apply(tmp_path, efficiency_policies=[POLICY])
    workload = {"kind": "PyTorchJob", "name": "llm"}
    ingest_allocations(
        allocation_record(started_at="2026-10-10T00:00:00Z", ended_at="2026-10-10T01:00:00Z",
                          observed_until="2026-10-10T01:00:00Z", workload=workload)
    )  # fmt: skip
    ingest_sample(
        workload="llm", start="2026-10-10T00:00:00Z", end="2026-10-10T01:00:00Z", gpu_seconds="28800", mfu="0.10", hfu="0.10"
    )
    close()
    assert [(line["kind"], line["reason"], line["amount"]) for line in lines("nlp")] == [
        ("gpu", None, "80.00"),
        ("efficiency", "penalty", "16.00"),
    ]
    assert proofs_hold("2026-10")
    ingest_allocations(
        allocation_record(2, namespace="cv", started_at="2026-11-10T00:00:00Z", ended_at="2026-11-10T01:00:00Z",
                          observed_until="2026-11-10T01:00:00Z", workload=workload)
    )  # fmt: skip
    assert proofs_hold("2026-10")


def test_a_workload_that_is_known_after_the_close_does_not_change_the_verdicts_of_a_closed_month(tmp_path: Path) -> None:
    """Two reconstructed pods of 20 minutes are too short to be judged; billed, they do not become a job of 40 minutes."""
    apply(tmp_path, efficiency_policies=[POLICY])
    times = [("2026-10-10T00:00:00Z", "2026-10-10T00:20:00Z"), ("2026-10-10T00:20:00Z", "2026-10-10T00:40:00Z")]
    pods = [
        allocation_record(number, quantity=6, started_at=start, ended_at=end, observed_until=None)
        for number, (start, end) in enumerate(times, start=1)
    ]
    ingest_allocations(*({**pod, "workload": None, "reconstructed_from": "prometheus"} for pod in pods))
    for number, (start, end) in enumerate(times, start=1):
        ingest_sample(pod_uid=f"uid-{number}", start=start, end=end, gpu_seconds="7200", mfu="0.60", hfu="0.70")
    close()
    assert [(line["kind"], line["amount"]) for line in lines("nlp")] == [("gpu", "40.00")]
    assert not ingest_allocations(*({**pod, "workload": {"kind": "Job", "name": "train"}} for pod in pods)).refusals
    assert proofs_hold("2026-10")
