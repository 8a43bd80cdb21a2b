"""October is billed, sealed and dropped while a dispute about it waits: everything that was promised of it still holds."""

import re
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from billing.closing.management.commands import usage_drop
from billing.corrections.models import Dispute
from billing.corrections.services.disputes import dispute_uphold
from billing.corrections.services.proof import period_verify
from billing.usage.archive.sealed import seals
from billing.usage.models import QuarantinedRecord
from billing.usage.services import quarantine_dismiss
from tests.factories import ingest_tokens, signed_in, token_record
from tests.scenarios.company import Company, day
from tests.stored_rows import postgresql_keeps, query

pytestmark = pytest.mark.django_db(transaction=True)

INVOICE = "AI-INFRA-2026-000001"
WAY = (r"/invoices/\d+/", r"/teams/nlp/lines/[0-9a-f]+/\?[^\"]*", r"/teams/nlp/lines/[^\"]*day=2026-10-16",
       r"/teams/nlp/lines/[^\"]*hour=[^\"]*")  # fmt: skip
"""From a dispute to its invoice, the disputed line, a day and an hour of it."""


@pytest.fixture
def left(company: Company, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Company:
    """October: 1M and 2M tokens, 24.00. Tom disputes 8.00 of it on 6 November. On 1 December its records leave."""
    with postgresql_keeps():
        company.writes(output=1, on="2026-10-15")
        company.writes(output=2, on="2026-10-16 12:30")
    company.bills("2026-10")
    company.disputes(INVOICE, 1, amount="8.00")
    call_command("usage_seal", "2026-10", "--out", str(company.directory / "archive"), "--by", "sam")
    settings.TOKEN_RETENTION_MONTHS = 1
    monkeypatch.setattr(usage_drop.timezone, "now", lambda: datetime(2026, 11, 30, 16, 1, tzinfo=UTC))
    call_command("usage_drop", "2026-10", "--by", "sam")
    assert query("SELECT count(*) FROM token_entry") == [(0,)]
    assert company.invoice("nlp", "2026-10") == ["3 1M Tokens of output of llama-3-8b at 8.0000: 24.00", "total 24.00"]
    return company


def followed(client: Client) -> str:
    """The last page of the way from the dispute to the requests of an hour."""
    page = client.get(f"/disputes/{Dispute.objects.get().pk}/").content.decode()
    for pattern in WAY:
        found = re.search(rf'href="({pattern})"', page)
        assert found, pattern
        page = client.get(unescape(found[1])).content.decode()
    return page


def test_an_old_id_is_refused_and_a_late_record_becomes_a_correction(left: Company) -> None:
    old = token_record(1, time=day("2026-10-15").isoformat(), input_tokens=0, cache_read_input_tokens=0,
                       reasoning_output_tokens=0, output_tokens=1_000_000)  # fmt: skip
    again = ingest_tokens(old)
    assert (again.accepted, again.duplicates, again.conflicts) == (0, 1, 0)
    other = ingest_tokens(old | {"output_tokens": 2_000_000})
    assert (other.accepted, other.duplicates, other.conflicts) == (0, 0, 1)
    quarantine_dismiss(record_id=QuarantinedRecord.objects.get().pk, actor="sam", resolution="the first one is right")
    left.writes(output=5, on="2026-10-20")
    left.bills("2026-11")
    assert left.invoice("nlp", "2026-11") == [
        "5 1M Tokens of output of llama-3-8b at 8.0000: 40.00 (used in 2026-10)", "total 40.00",
    ]  # fmt: skip
    assert left.invoice("nlp", "2026-10")[-1] == "total 24.00"
    assert left.proven("2026-10", "2026-11")


def test_a_dispute_leads_to_the_records_and_is_decided(left: Company) -> None:
    for name in ("sam", "tom"):
        page = followed(signed_in(name))
        assert "req-2" in page
        assert "2,000,000" in page
        assert "req-1" not in page
    upheld = dispute_uphold(dispute_id=Dispute.objects.get().pk, actor="sam", now=day("2026-12-01"), text="seen")
    assert left.approves(upheld.correction, by="fin", on="2026-12-01") == [
        "AI-INFRA-CN-2026-000001, 2026-12", "allowance: -8.00",
    ]  # fmt: skip
    assert left.proven("2026-10")


def test_a_flipped_byte_is_found_and_no_record_is_shown_from_it(
    left: Company, capsys: pytest.CaptureFixture[str]
) -> None:
    (seal,) = seals("2026-10")
    flip(left.directory / "archive" / seal.folder / "tokens-00000.parquet")
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        call_command("usage_seal", "--verify")
    assert (ended.value.code, "tokens-00000.parquet: has SHA-256" in capsys.readouterr().out) == (3, True)
    faults = [proof.recomputed for proof in period_verify(month="2026-10", usage=True) if not proof.holds]
    assert ["tokens-00000.parquet: has SHA-256" in fault for fault in faults] == [True]
    with pytest.raises(SystemExit) as ended:
        call_command("period_recount", "2026-10", "--sealed", str(left.directory / "archive"))
    assert (ended.value.code, capsys.readouterr().out) == (2, "")
    page = followed(signed_in("sam"))
    assert "the usage records of 2026-10 are in the archive only" in page
    assert "req-2" not in page
    assert left.invoice("nlp", "2026-10")[-1] == "total 24.00"


def flip(path: Path) -> None:
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(octets)
