"""A team sees what it committed to: bought, used, unused and what is beyond, to the hour, of an open and an issued month."""

import csv
import io
import re
from decimal import Decimal
from html import unescape
from pathlib import Path

import pytest
import yaml

from billing.corrections.note_lines import NoteError
from billing.corrections.services.sla import LostWork, sla_credit_draft
from billing.invoices.models import Correction, Invoice
from billing.setup.apply import set_up_apply
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.corrections import bill, people, wanted

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
TERMS = [
    {"name": "nlp-2026", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "1000",
     "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01"},
    {"name": "cv-2026", "team": "cv", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "100",
     "price_per_gpu_hour": "9.0000", "valid_from": "2026-10-01", "valid_until": "2027-01-01"},
]  # fmt: skip
PAGE = "/commitments/?month=2026-10"


@pytest.fixture(scope="module", autouse=True)
def october(for_all_tests: Path) -> None:
    """nlp used 850 of 1,000 hours, cv 120 where it bought 100."""
    people()
    apply(for_all_tests, commitments=TERMS)
    for number, namespace, count, end in ((1, "nlp-a", 10, "2026-10-08T13"), (2, "cv", 2, "2026-10-07T12")):
        seen = {"started_at": "2026-10-05T00:00:00Z", "ended_at": f"{end}:00:00Z", "observed_until": f"{end}:00:00Z"}
        ingest_allocations(allocation_record(number, namespace=namespace, quantity=count, **seen))
    person("tom", "lead", team="nlp")


def get(who: str, address: str = PAGE, language: str = "en") -> str:
    return signed_in(who, language).get(address).content.decode()


def rows(who: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(get(who, PAGE + "&table=commitments&as=csv").removeprefix("\ufeff"))))


def figures(row: dict[str, str]) -> tuple[Decimal, ...]:
    names = ("bought_gpu_hours", "used_gpu_hours", "unused_gpu_hours", "beyond_gpu_hours", "used_amount", "unused_amount")
    return tuple(Decimal(row[name]) for name in names)


@pytest.mark.parametrize("issued", [False, True])
def test_bought_used_unused_and_beyond_of_each_commitment(issued: bool) -> None:
    if issued:
        bill()
    cv, nlp = rows("sam")
    assert (cv["commitment"], nlp["commitment"]) == ("cv-2026", "nlp-2026")
    assert figures(nlp) == (1000, 850, 150, 0, 6800, 1200)
    assert figures(cv) == (100, 100, 0, 20, 900, 0)
    assert (Decimal(nlp["used_share"]), Decimal(cv["used_share"])) == (Decimal("0.85"), 1)
    shown = get("sam")
    assert all(text in shown for text in ("85.0%", "1,200.00", "8,000.00", "20.0", "8.0000 / GPU-h"))


def test_a_lead_sees_only_the_own_commitments() -> None:
    assert [row["team"] for row in rows("tom")] == ["nlp"]
    assert "cv-2026" not in get("tom")
    assert "已用" in get("tom", language="zh-hans")
    assert "No team that you may see has a commitment in this month" in get("tom", "/commitments/?month=2026-09")


def test_the_page_shows_them_as_the_set_up_file_has_them(tmp_path: Path) -> None:
    (text,) = re.findall(r'<pre class="command"[^>]*>(.*?)</pre>', get("tom"), re.DOTALL)
    found = yaml.safe_load(unescape(text))
    assert found == {"commitments": [
        {**TERMS[0], "valid_from": "2026-10-01T00:00:00+08:00", "price_per_gpu_hour": "8"},
    ]}  # fmt: skip
    (tmp_path / "shown.yaml").write_text(unescape(text), encoding="utf-8")
    assert set_up_apply(path=tmp_path / "shown.yaml", actor="sam").changes == []


def test_work_lost_under_a_commitment_is_credited_at_its_price() -> None:
    """64 GPUs lose one hour of work at 8.0000 each: 512.00, not the 640.00 of the list price."""
    bill()
    invoice = Invoice.objects.get(team__code="nlp")
    positions = dict(invoice.lines.values_list("reason", "position"))
    lost = LostWork(64, Decimal("3.5"), Decimal("1"))
    found = sla_credit_draft(number=str(invoice.number), position=positions["used"], lost=lost, wanted=wanted("sla"))
    assert Correction.objects.get(pk=found.pk).amount == Decimal("512.00")
    with pytest.raises(NoteError, match="charges no GPU hours"):
        sla_credit_draft(number=str(invoice.number), position=positions["unused"], lost=lost, wanted=wanted("sla"))
