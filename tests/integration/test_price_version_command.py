"""`manage.py price_version`: a list goes out as YAML, comes in as a draft, is compared, previewed, submitted, approved."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.services import cost_sheet_put
from billing.tenancy.models import AuditEntry
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests.factories import allocation_record, apply, approves, ingest_allocations, operates, person
from tests.factories.commands import THEN, Manage, since_2024
from tests.factories.prices import SHEET, TOKEN_SHEET

pytestmark = pytest.mark.django_db

FILE = """\
cost_sheets:
- name: h800-hq
  sheet:
{sheet}
token_cost_sheets:
- name: llama-on-h800
  sheet:
{token_sheet}
price_versions:
- name: 2099-01
  valid_from: '2099-01-01T00:00:00+08:00'
  gpu:
  - accelerator: NVIDIA-H800
    cost_sheet: h800-hq
  - accelerator: NVIDIA-A800
    resource: nvidia.com/mig-3g.20gb
    price_per_gpu_hour: '6.0000'
  - resource: nvidia.com/mig-1g.10gb
    price_per_slice_hour: '2.0000'
  tokens:
  - model: llama-3-8b
    cost_sheet: llama-on-h800
  - model: qwen
    input: '1.0000'
    output: '4.0000'
"""


def indented(value: Any) -> str:
    return "".join(f"    {line}\n" for line in yaml.safe_dump(value, sort_keys=False).splitlines()).rstrip("\n")


def as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_text(item) for name, item in value.items()}
    return [as_text(item) for item in value] if isinstance(value, list) else str(value)


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    apply(for_all_tests, **since_2024())
    ingest_allocations(allocation_record(**THEN))
    person("cem", "finance")
    person("ben", "approver")


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str], october: None, monkeypatch: pytest.MonkeyPatch) -> Manage:
    operates(monkeypatch, "ana", "finance", "approver", "admin")
    return Manage(capsys)


@pytest.fixture
def price_file(tmp_path: Path, october: None) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(FILE.format(sheet=indented(as_text(SHEET)), token_sheet=indented(as_text(TOKEN_SHEET))))
    return path


def test_the_export_of_an_import_is_the_same_file_as_draft_and_as_version(
    manage: Manage, price_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert manage("price_version", "import", price_file, "--by", "ana").out == "draft 2099-01, revision 1: made\n"
    assert not PriceVersion.objects.filter(name="2099-01").exists()
    first = manage("price_version", "export", "2099-01").out
    assert yaml.safe_load(first) == yaml.safe_load(price_file.read_text())
    price_file.write_text(first)
    assert manage("price_version", "import", price_file, "--by", "ana").out == "draft 2099-01, revision 1: unchanged\n"
    assert manage("price_version", "export", "2099-01").out == first
    manage("price_version", "submit", "2099-01", "--by", "ana", "--reason", "new cards")
    ben = approves(monkeypatch, "ben", "approver")
    assert manage("price_version", "approve", "2099-01", "--by", ben).out == "2099-01 is published by ben\n"
    out = tmp_path / "out.yaml"
    manage("price_version", "export", "2099-01", "--out", out)
    assert out.read_text() == first
    assert manage("apply", out).status == 0  # declared as it is published: nothing to change
    assert PriceVersion.objects.filter(name="2099-01").count() == 1


def test_an_import_changes_the_draft_and_says_so(manage: Manage, price_file: Path) -> None:
    manage("price_version", "import", price_file, "--by", "ana")
    price_file.write_text(price_file.read_text().replace("'6.0000'", "'6.5000'"))
    done = manage("price_version", "import", price_file, "--by", "cem", "--reason", "dearer slices")
    assert done.out == "draft 2099-01, revision 2: changed\n"
    draft = PriceDraft.objects.get()
    assert (draft.makers, draft.reason) == (["ana", "cem"], "dearer slices")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("'6.0000'", "'six'", ["line 56: price_versions[0].gpu[1].price_per_gpu_hour", "'six'"]),
        ("cost_sheet: h800-hq", "cost_sheet: absent", ["price_versions[0].gpu[0].cost_sheet", "'absent'"]),
        ("pue: '1.3'", "pue: '0.3'", ["cost sheet h800-hq", "pue", "0.3"]),
        ("duration_s: '600'", "duration_s: '60'", ["token cost sheet llama-on-h800", "report"]),
        ("method: output-only", "method: guess", ["token cost sheet llama-on-h800", "method", "'guess'"]),
        ("price_versions:", "prices:", ["prices"]),
        ("name: 2099-01", "name: 2026-10", ["2026-10", "is published and never changes"]),
        ("'2099-01-01T00:00:00+08:00'", "soon", ["price_versions[0].valid_from", "'soon'"]),
    ],
)
def test_a_bad_file_is_one_line_and_nothing_is_kept(
    manage: Manage, price_file: Path, old: str, new: str, words: list[str]
) -> None:
    text = price_file.read_text()
    assert text.splitlines()[55] == "    price_per_gpu_hour: '6.0000'"
    price_file.write_text(text.replace(old, new, 1))
    done = manage("price_version", "import", price_file)
    assert [word for word in [str(price_file), *words] if word not in done.error] == [], done.error
    assert not PriceDraft.objects.exists()
    assert not AuditEntry.objects.filter(action="cost_sheet_put").exists()


def test_two_lists_are_compared_price_by_price(manage: Manage, price_file: Path) -> None:
    manage("price_version", "import", price_file)
    assert manage("price_version", "diff", "2099-01").out.splitlines() == [
        "2026-10 -> 2099-01",
        # (6.164383561644 + 1.326 + 1.198630136986 + 0.936429794521) x 1.2 = 11.550532
        "  raised   NVIDIA-H800: 10.0000 -> 11.5505 per GPU-Hours (+15.51 %)",
        "  raised   nvidia.com/mig-1g.10gb: 1.7143 -> 2.0000 per Slice-Hours (+16.67 %)",
        "  added    nvidia.com/mig-3g.20gb on NVIDIA-A800: none -> 6.0000 per GPU-Hours",
        "  lowered  llama-3-8b cache_creation: 2.0000 -> 0.0000 per 1M Tokens (-100.00 %)",
        "  lowered  llama-3-8b cache_read: 0.2000 -> 0.0000 per 1M Tokens (-100.00 %)",
        "  lowered  llama-3-8b input: 2.0000 -> 0.0000 per 1M Tokens (-100.00 %)",
        "  lowered  llama-3-8b output: 8.0000 -> 6.6667 per 1M Tokens (-16.67 %)",
        "  added    qwen input: none -> 1.0000 per 1M Tokens",
        "  added    qwen output: none -> 4.0000 per 1M Tokens",
        "  0 prices are the same",
    ]
    answer = json.loads(manage("price_version", "diff", "2026-10", "--against", "2099-01", "--json").out)
    assert (answer["old"], answer["new"]) == ("2099-01", "2026-10")
    assert answer["prices"][0] == {
        "kind": "gpu", "sku": "NVIDIA-H800", "accelerator": None, "token_class": None, "unit": "GPU-Hours",
        "old": "11.5505", "new": "10.0000", "change": "lowered", "percent": "-13.42",
    }  # fmt: skip


def test_a_preview_reports_every_team_and_what_has_no_price(manage: Manage, price_file: Path) -> None:
    manage("price_version", "import", price_file)
    done = manage("price_version", "preview", "2099-01", "--month", "2024-10", "--json")
    assert done.status == 0
    answer = json.loads(done.out)
    # 8 x 9433 s = 20.962222... GPU-hours x 11.5505 = 242.124...
    assert answer["teams"] == [
        {"team": "nlp", "before": "209.62", "after": "242.12", "difference": "32.50", "percent": "15.50"}
    ]
    assert (answer["month"], answer["currency"], answer["unpriced_after"]) == ("2024-10", "CNY", [])
    people = manage("price_version", "preview", "2099-01", "--month", "2024-10").out
    assert "all teams" in people
    assert "+32.50" in people
    price_file.write_text(price_file.read_text().replace("- accelerator: NVIDIA-H800", "- accelerator: NVIDIA-B200", 1))
    manage("price_version", "import", price_file)
    forgotten = manage("price_version", "preview", "2099-01", "--month", "2024-10")
    assert forgotten.status == 3
    assert "WITHOUT A PRICE: NVIDIA-H800" in forgotten.out


def test_the_maker_cannot_approve_and_a_rejection_needs_a_reason(
    manage: Manage, price_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manage("price_version", "import", price_file, "--by", "ana")
    assert "reason" in manage("price_version", "submit", "2099-01", "--by", "ana").error
    manage("price_version", "submit", "2099-01", "--by", "ana", "--reason", "new cards")
    ana = approves(monkeypatch, "ana", "approver")
    assert "a second person" in manage("price_version", "approve", "2099-01", "--by", ana).error
    assert "reason" in manage("price_version", "reject", "2099-01", "--by", "ben").error
    rejected = manage("price_version", "reject", "2099-01", "--by", "ben", "--reason", "no")
    assert rejected.out == "2099-01 is rejected by ben\n"
    assert manage("price_version", "withdraw", "2099-01", "--by", "ana").out == "2099-01 is withdrawn by ana\n"


def test_the_list_names_states_makers_and_approvers(manage: Manage, price_file: Path) -> None:
    manage("price_version", "import", price_file, "--by", "ana")
    rows = json.loads(manage("price_version", "list", "--json").out)["price_versions"]
    assert [(row["name"], row["state"], row["makers"], row["approved_by"]) for row in rows] == [
        ("2026-10", "published", ["tests"], "tests"), ("2099-01", "draft", ["ana"], None)
    ]  # fmt: skip
    assert manage("price_version", "list").out.splitlines()[1].endswith("made by ana")


@pytest.mark.parametrize("action", ["export", "diff", "preview", "submit", "approve", "reject", "withdraw"])
def test_a_name_that_is_none_is_one_line(
    manage: Manage, october: None, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    approves(monkeypatch, "ana")
    assert "'absent': there is no" in manage("price_version", action, "absent").error


def test_a_sheet_stored_with_numbers_comes_back_from_its_file_as_the_same_sheet(manage: Manage, price_file: Path) -> None:
    cost_sheet_put(name="h800-hq", inputs=SHEET, result=cost_of_gpu_hour(parse_cost_sheet(SHEET)).as_dict(), actor="ana")
    manage("price_version", "import", price_file)
    assert AuditEntry.objects.filter(action="cost_sheet_put").count() == 1
