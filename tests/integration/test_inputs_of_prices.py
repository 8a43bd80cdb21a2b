"""Inputs of prices: three bad ones get three messages at every door, and those behind a published price never change."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.rates.models import CostSheet, PriceVersion, TokenCostSheet
from billing.rates.services import price_draft_approve, price_draft_submit, price_draft_write
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry
from pricing.__main__ import main
from tests import factories
from tests.factories.api import problem
from tests.factories.commands import since_2024
from tests.factories.price_api import BODY, signed_in
from tests.factories.prices import SHEET, TOKEN_SHEET

pytestmark = pytest.mark.django_db
BAD: dict[str, Any] = {
    **{name: value for name, value in SHEET.items() if name != "gpu_price"},
    "installed_gpus": "32", "spare_gpus": "40", "gpu_power_kw": "700",
}  # fmt: skip
MISSING = "gpu_price: is missing, must be a number from 0 to 1e9 (currency per GPU)"
CONTRADICTORY = "spare_gpus: 40 must be below installed_gpus 32"
ABSURD = "gpu_power_kw: '700' must be a number from 0 to 20 (kW of one GPU): 700 W is 0.7"


@pytest.fixture(scope="module")
def scenario(for_all_tests: Path) -> None:
    factories.apply(for_all_tests, **since_2024())


def test_three_messages_from_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sheet.json"
    path.write_text(json.dumps(BAD))
    assert main(["gpu-hour", str(path)]) == 2
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 3
    for wanted in (MISSING, CONTRADICTORY, ABSURD):
        assert [line for line in printed if line.endswith(wanted)], wanted


def test_reports_of_two_deployments_are_named_with_file_and_sheet(tmp_path: Path) -> None:
    other = {**TOKEN_SHEET["report"], "precision": "bf16"}
    for method in ("ratio", "least-squares"):
        sheet = {**TOKEN_SHEET, "method": method, "report": [TOKEN_SHEET["report"], other]}
        with pytest.raises(SetUpFileError) as refused:
            factories.apply(tmp_path, **since_2024(token_cost_sheets=[{"name": "llama", "sheet": sheet}]))
        assert str(refused.value) == (
            f"{tmp_path / 'set-up.yaml'} line 46: token cost sheet llama: report: the reports are not of one deployment: "
            "precision is 'fp8' and 'bf16'"
        )


def test_three_messages_from_the_api(scenario: None) -> None:
    body = {**BODY, "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "bad"}]}
    answer = signed_in("ana", "finance")("POST", "price-versions", {**body, "cost_sheets": [{"name": "bad", "sheet": BAD}]})
    errors = problem(answer, 400)["errors"]
    assert errors == {
        f"cost_sheets[0].sheet.{line.partition(': ')[0]}": [line.partition(": ")[2]]
        for line in (MISSING, CONTRADICTORY, ABSURD)
    }
    assert not CostSheet.objects.exists()


def test_a_sheet_gives_no_price_that_nobody_could_write(scenario: None) -> None:
    """10,070,000 over a life of 8.76 hours, with 3.461056... for the rest of each, x 1.2; a token in a thousand seconds."""
    slow = {**TOKEN_SHEET["report"], "runs": [{**TOKEN_SHEET["report"]["runs"][0], "output_tps": "0.001"}]}
    body = {
        **BODY, "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "dear"}],
        "tokens": [{"model": "llama-3-8b", "cost_sheet": "slow"}],
        "cost_sheets": [{"name": "dear", "sheet": {**SHEET, "gpu_price": "1e7", "life_years": "0.001"}}],
        "token_cost_sheets": [{"name": "slow", "sheet": {**TOKEN_SHEET, "report": slow}}],
    }  # fmt: skip
    errors = problem(signed_in("ana", "finance")("POST", "price-versions", body), 400)["errors"]
    says = "which must be a number from 0 to 1000000 (currency per unit, at most 4 decimals)"
    assert errors == {
        "gpu[0].cost_sheet": [f"'dear' gives 1379456.2081, {says}"],
        "tokens[0].cost_sheet": [f"'slow' gives 3333333.3333, {says}"],
    }


def test_a_sheet_gives_no_price_that_bills_at_nothing_what_costs_something(scenario: None) -> None:
    """9.66 x 1.2 x 0.000001 for a GPU-hour, and 10 x 10^6 / (3600 x 2 x 10^8) x 1.2 = 0.0000167 for 1M tokens of output."""
    fast = {**TOKEN_SHEET["report"], "runs": [{**TOKEN_SHEET["report"]["runs"][0], "output_tps": "200000000"}]}
    listed = {"currency": "USD", "list_currency": "CNY", "exchange_rate": "0.000001", "rate_date": "2026-10-01"}
    body = {
        **BODY, "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "cheap"}],
        "tokens": [{"model": "llama-3-8b", "cost_sheet": "fast"}],
        "cost_sheets": [{"name": "cheap", "sheet": {**SHEET, **listed}}],
        "token_cost_sheets": [{"name": "fast", "sheet": {**TOKEN_SHEET, "report": fast}}],
    }  # fmt: skip
    errors = problem(signed_in("ana", "finance")("POST", "price-versions", body), 400)["errors"]
    says = "which a list shows as 0.0000: write the prices yourself"
    assert errors == {
        "gpu[0].cost_sheet": [f"'cheap' gives less than 0.00005 for price_per_gpu_hour, {says}"],
        "tokens[0].cost_sheet": [f"'fast' gives less than 0.00005 for output, {says}"],
    }


def test_three_messages_from_the_workbench(scenario: None) -> None:
    client = factories.signed_in(factories.person("ana", "finance"))
    sent = {**BAD, "accelerator": "NVIDIA-H800"}
    answers: list[Any] = [client.get("/prices/workbench/", sent), client.post("/prices/workbench/draft/", sent)]
    for shown in answers:
        assert sorted(shown.context["refusals"])[-3:] == sorted([MISSING, CONTRADICTORY, ABSURD])
    effect: Any = client.get("/prices/workbench/effect/", sent)
    assert sorted(effect.context["problems"]) == sorted([MISSING, CONTRADICTORY, ABSURD])


def test_three_messages_in_chinese(scenario: None) -> None:
    client = factories.signed_in(factories.person("ana", "finance"), "zh-CN")
    for answer in (client.get("/prices/workbench/", BAD), client.post("/prices/workbench/draft/", BAD)):
        page = answer.content.decode().replace("&#x27;", "'")
        for wanted in (
            "gpu_price：缺失，应为不小于 0、不大于 1e9 的数（货币单位/每张 GPU）",
            "spare_gpus：40 应小于 installed_gpus 32",
            "gpu_power_kw：'700' 应为不小于 0、不大于 20 的数（单张 GPU 的 kW）：700 W = 0.7",
        ):
            assert f"<p>{wanted}</p>" in page


@pytest.fixture
def published(scenario: None) -> PriceVersion:
    fields = {
        "name": "2099-01", "valid_from": "2099-01-01", "reason": "new cards",
        "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "h800"}],
        "tokens": [{"model": "llama-3-8b", "cost_sheet": "llama"}],
        "cost_sheets": [{"name": "h800", "sheet": SHEET}], "token_cost_sheets": [{"name": "llama", "sheet": TOKEN_SHEET}],
    }  # fmt: skip
    now = timezone.now()
    draft = price_draft_submit(draft=price_draft_write(fields=fields, actor="ana", now=now), actor="ana", now=now)
    return price_draft_approve(draft=draft, actor="ben", now=now)


def inputs() -> list[Any]:
    return [CostSheet.objects.get().inputs, CostSheet.objects.get().result, TokenCostSheet.objects.get().inputs]


def test_an_input_behind_a_published_price_changes_through_no_endpoint(published: PriceVersion) -> None:
    before, price = inputs(), published.gpu.get().price
    api = signed_in("cem", "finance", "admin")
    for section, name, sheet in (
        ("cost_sheets", "h800", {**SHEET, "gpu_price": "1"}), ("token_cost_sheets", "llama", {**TOKEN_SHEET, "markup": "0"}),
    ):  # fmt: skip
        answer = api("POST", "price-versions", {**BODY, "name": "2099-02", section: [{"name": name, "sheet": sheet}]})
        (printed,) = problem(answer, 400)["errors"][f"{section}[0].sheet"]
        assert "is the source of published prices" in printed
    sent = {**SHEET, "gpu_price": "1", "new_sheet": "h800", "draft_name": "2099-03", "valid_from": "2099-03-01"}
    page: Any = api.client.post("/prices/workbench/draft/", sent)
    assert page.status_code == 400
    assert "is the source of published prices" in page.context["refusals"][0]
    root = factories.signed_in(factories.person("root", "admin"))
    for model, row in (("costsheet", CostSheet.objects.get()), ("tokencostsheet", TokenCostSheet.objects.get())):
        for path in ("change", "delete"):
            answer = root.post(f"/admin/rates/{model}/{row.pk}/{path}/", {"name": "other", "inputs": "{}", "post": "yes"})
            assert answer.status_code in (302, 403)
    assert (inputs(), PriceVersion.objects.get(name="2099-01").gpu.get().price) == (before, price)


def test_the_audit_log_names_the_approver_and_every_input(published: PriceVersion) -> None:
    approval = AuditEntry.objects.get(action="price_draft_approved", subject="2099-01")
    assert (approval.actor, approval.detail["makers"]) == ("ben", ["ana"])
    kept = AuditEntry.objects.get(action="cost_sheet_put", subject="h800")
    assert (kept.actor, kept.detail["inputs"]) == ("ana", CostSheet.objects.get().inputs)
    assert published.valid_from == datetime(2098, 12, 31, 16, tzinfo=UTC)
