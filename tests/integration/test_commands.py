"""Every command: its exit status, and one clear line where something is wrong. Never a traceback."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

from billing.invoices.models import BillingPeriod, Invoice
from billing.tenancy.models import ApiToken, BillingSetup, NamespaceOwnership, Team
from billing.usage.models import QuarantinedRecord
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, approves, ingest_allocations, ingest_tokens, token_record
from tests.factories.commands import THEN, Manage, file, since_2024

pytestmark = pytest.mark.django_db

@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str]) -> Manage:
    return Manage(capsys)


@pytest.fixture
def october(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set-up and one allocation of October 2024, worth 209.62; commands run as ops."""
    apply(tmp_path, **since_2024())
    ingest_allocations(allocation_record(**THEN))
    factories.operates(monkeypatch, "ops", "finance", "admin")


# Help and usage

OF_DJANGO = {"migrate"}
"""Its own command with its own options, only as another role of the database."""
COMMANDS = sorted(
    name for name, where in get_commands().items() if where.startswith("billing.") and name not in OF_DJANGO
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(manage: Manage, command: str) -> None:
    done = manage(command, "--help")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("usage: ")
    assert len(done.out.splitlines()) > 5


def test_the_commands_of_the_contract_are_there() -> None:
    assert set(COMMANDS) >= {
        "apply", "demo", "exception_waive", "export_invoices", "import_usage", "invoice_approve", "invoice_issue",
        "period_close", "period_report", "period_verify", "quarantine", "token_create", "up",
    }  # fmt: skip


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"up"}))  # `up` serves until somebody stops it
def test_every_command_that_ends_prints_json(manage: Manage, command: str) -> None:
    parts = {"credit_note": "list", "invoice": "mode", "price_version": "list", "retroactive_change": "list",
             "role": "list", "period_reopen": "list"}  # fmt: skip
    helped = manage(command, *([parts[command]] if command in parts else []), "--help")
    assert "--json" in helped.out


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_bad_usage(manage: Manage, command: str) -> None:
    assert manage(command, "--nonsense").error


@pytest.mark.parametrize(
    "command", ["apply", "exception_waive", "export_invoices", "import_usage", "invoice_approve", "invoice_issue",
                "period_close", "period_report", "period_verify", "token_create"],
)  # fmt: skip
def test_a_missing_argument_is_bad_usage(manage: Manage, command: str) -> None:
    assert "required" in manage(command).error


MONTHLY = ("period_report", "period_close", "period_verify", "invoice_issue")


@pytest.mark.parametrize("command", MONTHLY)
def test_what_is_no_month_is_bad_input(manage: Manage, october: None, command: str) -> None:
    for month in ("2024-13", "2024-1", "October", "2024-10-01", "1999-12", "2200-01", "", " 2024-10"):
        assert repr(month) in manage(command, month).error


@pytest.mark.parametrize("command", ["period_report", "period_close"])
def test_without_a_set_up_the_line_says_what_to_do(manage: Manage, command: str) -> None:
    assert "apply" in manage(command, "2024-10").error


# A month through its commands


def test_a_month_goes_from_report_to_issued_documents(manage: Manage, october: None, tmp_path: Path) -> None:
    report = manage("period_report", "2024-10", "--json")
    assert report.status == 0
    figures = json.loads(report.out)
    assert (figures["closable"], figures["gpu_seconds"]["charged"]) == (True, 75464)
    closed = json.loads(manage("period_close", "2024-10", "--by", "ops", "--json").out)
    assert (closed["status"], [item["status"] for item in closed["invoices"]]) == ("closed", ["approved"])
    issued = json.loads(manage("invoice_issue", "2024-10", "--json").out)
    assert [(item["number"], item["total"]) for item in issued["invoices"]] == [("AI-INFRA-2024-000001", "209.62")]
    assert json.loads(manage("invoice_issue", "2024-10", "--json").out) == issued
    proofs = json.loads(manage("period_verify", "2024-10", "--json").out)["proofs"]
    assert [proof["ok"] for proof in proofs] == [True]
    out = tmp_path / "documents"
    written = json.loads(manage("export_invoices", "2024-10", "--out", out, "--json").out)["documents"]
    assert sorted(path.name for path in out.iterdir()) == sorted(Path(name).name for name in written)
    assert {Path(name).suffix for name in written} == {".pdf", ".csv", ".xlsx", ".json"}


def test_every_command_also_speaks_to_people(manage: Manage, october: None) -> None:
    for command, words in (("period_report", "can be closed"), ("period_close", "is closed"),
                           ("invoice_issue", "AI-INFRA-2024-000001"), ("period_verify", "1 of 1")):  # fmt: skip
        done = manage(command, "2024-10")
        assert (done.status, done.err) == (0, "")
        assert words in done.out


def test_what_blocks_the_close_is_named_with_status_3(manage: Manage, october: None) -> None:
    ingest_allocations(allocation_record(2, namespace="lost", **THEN))
    ingest_tokens(token_record(1, time="2024-10-15T00:00:00Z", model="unknown"))
    ingest_tokens(token_record(2, time="2024-10-15T00:00:00Z", output_tokens=-1))
    report = manage("period_report", "2024-10", "--json")
    assert report.status == 3
    found = {(item["kind"], item["subject"]): (item["quantity"], item["unit"], item["blocks"])
             for item in json.loads(report.out)["exceptions"]}  # fmt: skip
    assert found == {
        ("unowned_namespace", "hq-1/lost"): (75464, "gpu_seconds", True),
        ("unpriced", "unknown cache_read"): (200, "tokens", True),
        ("unpriced", "unknown input"): (800, "tokens", True),
        ("unpriced", "unknown output"): (100, "tokens", True),
        ("quarantine", "tests via usage/tokens"): (1, "records", True),
    }
    refused = manage("period_close", "2024-10")
    assert (refused.status, refused.err.count("\n")) == (3, 1)
    assert refused.err.startswith("refused: ")
    assert "unowned_namespace hq-1/lost: 75,464 gpu_seconds" in refused.out
    assert manage("period_close", "2024-10", "--json").status == 3
    assert BillingPeriod.objects.get().status == "open"
    assert manage("invoice_issue", "2024-10").status == 3


def test_four_eyes_means_somebody_else(manage: Manage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(tmp_path, **since_2024(billing={**SET_UP["billing"], "review": "four-eyes"}))
    ingest_allocations(allocation_record(**THEN))
    approves(monkeypatch, "boss", "approver")
    factories.operates(monkeypatch, "ops", "finance", "approver")
    assert "not closed" in manage("invoice_approve", "2024-10", "--by", "boss").error
    assert manage("period_close", "2024-10").status == 0
    waiting = manage("invoice_issue", "2024-10")
    assert (waiting.status, Invoice.objects.exclude(number=None).count()) == (3, 0)
    approves(monkeypatch, "ops", "approver")
    assert "ops closed 2024-10" in manage("invoice_approve", "2024-10", "--by", "ops").error
    approves(monkeypatch, "boss")
    assert "'nobody'" in manage("invoice_approve", "2024-10", "--by", "boss", "--team", "nobody").error
    answer = json.loads(manage("invoice_approve", "2024-10", "--by", "boss", "--team", "nlp", "--json").out)
    assert answer == {"period": "2024-10", "approved": ["nlp"], "by": "boss"}
    assert "0 drafts approved" in manage("invoice_approve", "2024-10", "--by", "boss", "--team", "nlp").out
    assert manage("invoice_issue", "2024-10").status == 0
    assert "AI-INFRA-2024-000001" in manage("invoice_issue", "2024-10").out


def test_a_month_not_closed_has_nothing_to_issue_verify_or_export(manage: Manage, october: None, tmp_path: Path) -> None:
    assert "2024-10" in manage("invoice_issue", "2024-10").error
    assert "2024-10" in manage("period_verify", "2024-10").error
    assert "2024-10" in manage("export_invoices", "2024-10", "--out", tmp_path).error
    manage("period_close", "2024-10")
    assert "invoice_issue" in manage("export_invoices", "2024-10", "--out", tmp_path).error


def test_documents_are_not_written_over_a_file_or_below_one(manage: Manage, october: None, tmp_path: Path) -> None:
    manage("period_close", "2024-10")
    manage("invoice_issue", "2024-10")
    file = tmp_path / "file"
    file.write_text("mine")
    assert str(file) in manage("export_invoices", "2024-10", "--out", file).error
    assert str(file) in manage("export_invoices", "2024-10", "--out", file / "below").error
    assert file.read_text() == "mine"


def test_only_what_may_be_waived_is(manage: Manage, october: None) -> None:
    ingest_tokens(token_record(1, time="2024-10-15T00:00:00Z", output_tokens=-1))
    waive = ("exception_waive", "2024-10")
    factories.person("boss", "finance")
    assert "unowned_namespace cannot be waived" in manage(*waive, "unowned_namespace", "x", "--reason", "r").error
    assert "reason" in manage(*waive, "quarantine", "tests via usage/tokens", "--reason", " ").error
    assert manage("period_close", "2024-10").status == 3
    waived = manage(*waive, "quarantine", "tests via usage/tokens", "--reason", "seen", "--by", "boss", "--json")
    answer = json.loads(waived.out)
    assert (waived.status, answer["period"], answer["waived_by"], answer["reason"]) == (0, "2024-10", "boss", "seen")
    assert manage("period_close", "2024-10").status == 0


def test_programs_read_what_a_change_of_state_did(manage: Manage, october: None) -> None:
    assert manage("period_close", "2024-10").status == 0
    shown = json.loads(manage("invoice", "preview", "2024-10", "--json").out)
    assert shown == {"action": "preview", "done": []}  # approved already: the set-up asks for no review
    made = json.loads(manage("token_create", "gateway", "--scope", "usage:write", "--json").out)
    ended = {"ended": [{"name": "gateway", "prefix": made["token"][:8]}]}
    assert json.loads(manage("token_revoke", "gateway", "--json").out) == ended


def test_quarantine_lists_and_dismisses(manage: Manage, october: None) -> None:
    ingest_tokens(token_record(1, time="2024-10-15T00:00:00Z", output_tokens=-1))
    (record,) = json.loads(manage("quarantine", "--month", "2024-10", "--json").out)["records"]
    assert (record["reason"], record["key"]) == ("invalid", "litellm-hq/req-1")
    assert json.loads(manage("quarantine", "--month", "2024-09", "--json").out)["records"] == []
    assert "reason" in manage("quarantine", "--dismiss", record["id"]).error
    assert "--dismiss 10000000" in manage("quarantine", "--dismiss", 10_000_000, "--reason", "x").error
    assert "--dismiss" in manage("quarantine", "--dismiss", 10**30, "--reason", "x").error
    assert manage("quarantine", "--dismiss", record["id"], "--reason", "a test").status == 0
    assert QuarantinedRecord.objects.get().status == "dismissed"
    assert "'x'" in manage("quarantine", "--month", "x").error


def test_a_token_is_made_once_and_shown_once(manage: Manage, october: None) -> None:
    made = json.loads(manage("token_create", "gateway", "--scope", "usage:write", "--days", "30", "--json").out)
    assert made["token"].startswith("spn_")
    assert ApiToken.objects.get().expires_at is not None


@pytest.mark.parametrize(
    "wrong",
    [["x", "--scope", "everything"], ["x", "--scope", "usage:write", "--team", "nobody"],
     ["x", "--scope", "usage:write", "--days", "0"], ["x", "--scope", "usage:write", "--days", "ten"],
     ["x", "--scope", "usage:write", "--days", "1000000000"]],
    ids=["scope", "team", "days", "days that are no number", "too many days"],
)  # fmt: skip
def test_a_wrong_token_is_not_made(manage: Manage, october: None, wrong: list[str]) -> None:
    assert manage("token_create", *wrong).error
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("who", ["x" * 300, "\udcff", "a\nb"], ids=["long", "no utf-8", "two lines"])
def test_a_name_of_who_acts_that_cannot_be_kept_is_refused(manage: Manage, october: None, who: str) -> None:
    assert "by" in manage("period_close", "2024-10", "--by", who).error
    assert BillingPeriod.objects.filter(status="closed").count() == 0


@pytest.mark.parametrize(
    "command",
    [["exception_waive", "2024-10", "quarantine", "s" * 3000, "--reason", "r"],
     ["exception_waive", "2024-10", "quarantine", "s", "--reason", "\udcff"],
     ["exception_waive", "2024-10", "quarantine", "\udcff", "--reason", "r"],
     ["quarantine", "--month", "\udcff"],
     ["token_create", "n" * 300, "--scope", "usage:write"],
     ["token_create", "x", "--scope", "usage:write", "--source", "s" * 600],
     ["period_report", "\udcff"],
     ["invoice_issue", "\udcff"],
     ["invoice_approve", "2024-10", "--by", "\udcff"],
     ["apply", "\udcff"],
     ["import_usage", "gpu", "\udcff"]],
    ids=lambda command: f"{command[0]} {command[-1][:6]!a}",
)  # fmt: skip
def test_text_that_cannot_be_kept_is_one_line(manage: Manage, october: None, command: list[str]) -> None:
    manage("period_close", "2024-10", "--by", "ops")
    assert manage(*command).error


# Set-up files


def set_up(directory: Path, content: str | dict[str, Any]) -> Path:
    return file(directory, content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False), "s.yaml")


def test_a_set_up_is_applied_once_and_shown_before(manage: Manage, tmp_path: Path) -> None:
    path = set_up(tmp_path, since_2024())
    planned = json.loads(manage("apply", path, "--dry-run", "--json").out)
    assert (planned["dry_run"], planned["unchanged"]) == (True, 0)
    assert not BillingSetup.objects.exists()
    done = json.loads(manage("apply", path, "--json").out)
    assert done["changes"] == planned["changes"]
    assert json.loads(manage("apply", path, "--json").out)["changes"] == []
    assert "0 changes" in manage("apply", path).out


PRICE = since_2024()["price_versions"][0]
POLICY = {"name": "b", "valid_from": "2024-10-01", "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50",
          "reward": "0.10", "min_minutes": 30, "min_coverage": "0.95"}  # fmt: skip


def changed(section: str, index: int | None = None, **fields: Any) -> dict[str, Any]:
    whole = since_2024(efficiency_policies=[POLICY], budgets=[{"team": "nlp", "period": "month", "amount": "1.00"}])
    whole = json.loads(json.dumps(whole))
    entry = whole[section] if index is None else whole[section][index]
    entry.update(fields)
    for name in [name for name, value in fields.items() if value is None]:
        del entry[name]
    return whole


WRONG: dict[str, tuple[str | dict[str, Any], Sequence[str]]] = {
    "nothing": ("", ["mapping"]),
    "a list": ("- a\n", ["mapping"]),
    "bad YAML": ("billing: {currency: CNY\nteams: [\n", ["line"]),
    "a tab": ("billing:\n\tcurrency: CNY\n", ["line 2"]),
    "a key twice": ("billing: {currency: CNY}\nteams: []\nbilling: {}\n", ["line 3", "billing"]),
    "a field twice": ("billing:\n  currency: CNY\n  currency: USD\n", ["line 3", "currency"]),
    "a control character": ("billing: {currency: \x01}\n", []),
    "two documents": ("a: 1\n---\nb: 2\n", []),
    "an alias to nothing": ("billing: *x\n", ["line 1"]),
    "a loop": ("billing: &a [*a]\n", []),
    "a python object": ("billing: !!python/object/apply:os.system [ls]\n", ["billing"]),
    "a mapping for a key": ("{a: 1}: b\n", []),
    "a very deep list": ("billing: " + "[" * 5000, []),
    "an unknown section": ({**since_2024(), "prices": []}, ["prices"]),
    "an unknown field": (changed("teams", 0, colour="red"), ["teams[0]", "colour"]),
    "billing that is a list": ({**since_2024(), "billing": []}, ["billing"]),
    "teams that are text": ({**since_2024(), "teams": "nlp"}, ["teams"]),
    "no currency": (changed("billing", currency=None), ["billing.currency"]),
    "a wrong currency": (changed("billing", currency="yuan"), ["billing.currency", "yuan"]),
    "a wrong zone": (changed("billing", zone="Asia/Shangri-La"), ["billing.zone", "Shangri-La"]),
    "a zone that is a folder": (changed("billing", zone="Asia"), ["billing.zone"]),
    "a zone out of the tree": (changed("billing", zone="../../../etc/passwd"), ["billing.zone"]),
    "a wrong review": (changed("billing", review="maybe"), ["billing.review", "maybe"]),
    "a long issuer": (changed("billing", issuer="x" * 100), ["billing.issuer"]),
    "an issuer that is no file name": (changed("billing", issuer="A/B"), ["billing.issuer", "A/B"]),
    "no team code": (changed("teams", 0, code=None), ["teams[0].code"]),
    "a team twice": (changed("teams", 0, code="cv"), ["code", "cv"]),
    "a team that is its own parent": (changed("teams", 0, parent="nlp"), ["parent", "nlp"]),
    "an unknown owner": (changed("ownership", 0, team="nobody"), ["ownership[0].team", "nobody"]),
    "a naive instant": (changed("ownership", 0, valid_from="2024-01-01T00:00:00"), ["ownership[0].valid_from"]),
    "no date": (changed("ownership", 0, valid_from="soon"), ["ownership[0].valid_from", "soon"]),
    "an end before its start": (changed("ownership", 0, valid_until="2023-01-01"), ["ownership[0].valid_until"]),
    "an unknown payer": (changed("consumers", 0, team="nobody"), ["consumers[0].team", "nobody"]),
    "a consumer without source": (changed("consumers", 0, source=None), ["consumers[0].source"]),
    "no instant of a price": (changed("price_versions", 0, valid_from=None), ["price_versions[0].valid_from"]),
    "a price and a sheet": (
        changed("price_versions", 0, gpu=[{"accelerator": "A", "price_per_gpu_hour": "1", "cost_sheet": "x"}]),
        ["price_versions[0].gpu[0]", "cost_sheet"],
    ),
    "no price": (changed("price_versions", 0, gpu=[{"accelerator": "A"}]), ["price_versions[0].gpu[0]"]),
    "a price of nothing": (changed("price_versions", 0, gpu=[{"price_per_gpu_hour": "1"}]), ["gpu[0].accelerator"]),
    "two prices of one accelerator": (
        changed("price_versions", 0, gpu=[{"accelerator": "A", "price_per_gpu_hour": price} for price in "12"]),
        ["price_versions[0]", "two prices", "A"],
    ),
    "two prices of one model": (
        changed("price_versions", 0, tokens=[{"model": "m", "input": "1"}, {"model": "m", "input": "2"}]),
        ["tokens[1]", "'m'", "two"],
    ),
    "a model without a price": (changed("price_versions", 0, tokens=[{"model": "m"}]), ["tokens[0]"]),
    "an unknown sheet": (
        changed("price_versions", 0, gpu=[{"accelerator": "A", "cost_sheet": "none"}]), ["cost_sheet", "none"],
    ),
    **{
        f"a price of {price}": (
            changed("price_versions", 0, gpu=[{"accelerator": "A", "price_per_gpu_hour": price}]),
            ["price_versions[0].gpu[0].price_per_gpu_hour", price[:20]],
        )
        for price in ("-1", "NaN", "Infinity", "1.00001", "ten", "1e7", "1e999999999", "1e-999999999", "0x10")
    },
    "a penalty that is no number": (changed("efficiency_policies", 0, penalty="x"), ["efficiency_policies[0].penalty"]),
    "a ratio above one": (changed("efficiency_policies", 0, hfu_below="1.1"), ["efficiency_policies[0].hfu_below"]),
    "minutes below none": (changed("efficiency_policies", 0, min_minutes="-1"), ["efficiency_policies[0].min_minutes"]),
    "minutes without end": (
        changed("efficiency_policies", 0, min_minutes="9" * 30), ["efficiency_policies[0].min_minutes"],
    ),
    "a budget of nobody": (changed("budgets", 0, team="nobody"), ["budgets[0].team"]),
    "a budget of nothing": (changed("budgets", 0, amount="0"), ["budgets[0].amount"]),
    "a budget without end": (changed("budgets", 0, amount="1e30"), ["budgets[0].amount"]),
    "a threshold in words": (changed("budgets", 0, thresholds=["half"]), ["budgets[0].thresholds"]),
    "a threshold in superscript": (changed("budgets", 0, thresholds=["²"]), ["budgets[0].thresholds"]),
    "a threshold without end": (changed("budgets", 0, thresholds=["9" * 30]), ["budgets[0].thresholds"]),
    "a sheet that is not there": (
        {**since_2024(), "cost_sheets": [{"name": "h800", "file": "absent.yaml"}]}, ["absent.yaml", "No such file"],
    ),
    "a sheet out of nothing": ({**since_2024(), "cost_sheets": [{"name": "h800"}]}, ["h800"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_set_up_is_one_line_that_names_file_and_field(manage: Manage, tmp_path: Path, name: str) -> None:
    content, words = WRONG[name]
    path = set_up(tmp_path, content)
    error = manage("apply", path).error
    assert str(path) in error or "absent.yaml" in error, error
    assert [word for word in words if word not in error] == [], error
    assert not BillingSetup.objects.exists()
    assert not Team.objects.exists()


def test_a_set_up_that_cannot_be_read_is_one_line(manage: Manage, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.yaml", file(tmp_path, b"\xff\xfe\x00", "bytes.yaml")):
        assert str(path) in manage("apply", path).error


def test_an_owner_that_overlaps_another_is_refused(manage: Manage, tmp_path: Path) -> None:
    rows = [{"cluster": "hq-1", "namespace": "a", "team": team, "valid_from": start, "valid_until": end}
            for team, start, end in (("nlp", "2024-01-01", "2024-06-01"), ("cv", "2024-05-01", "2024-07-01"))]  # fmt: skip
    assert "hq-1/a" in manage("apply", set_up(tmp_path, since_2024(ownership=rows))).error
    assert not NamespaceOwnership.objects.exists()


def test_a_published_price_under_its_old_name_is_refused(manage: Manage, october: None, tmp_path: Path) -> None:
    dearer = {**PRICE, "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "11"}]}
    error = manage("apply", set_up(tmp_path, since_2024(price_versions=[dearer]))).error
    assert "2026-10" in error
    assert "new name" in error


def test_zone_and_currency_stay_once_a_month_is_known(manage: Manage, october: None, tmp_path: Path) -> None:
    manage("period_close", "2024-10")
    for field, value in (("zone", "Europe/Berlin"), ("currency", "EUR")):
        billing = {**SET_UP["billing"], field: value}
        assert field in manage("apply", set_up(tmp_path, since_2024(billing=billing, price_versions=None))).error


def test_a_back_dated_change_of_a_closed_month_is_refused(manage: Manage, october: None, tmp_path: Path) -> None:
    manage("period_close", "2024-10")
    stolen = {"cluster": "hq-1", "namespace": "nlp-train", "team": "cv", "valid_from": "2024-10-01"}
    ownership = [*since_2024()["ownership"], stolen]
    assert "2024-10" in manage("apply", set_up(tmp_path, since_2024(ownership=ownership))).error
    assert "closed" in manage("apply", set_up(tmp_path, since_2024(ownership=ownership)), "--dry-run").error
