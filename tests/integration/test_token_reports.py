"""The token workbench with reports in files: from what a tool wrote to a draft whose price rests on it, step by step."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from billing.portal.token_report import LARGEST_REPORT, kept_text
from billing.rates.models import PriceDraft, TokenCostSheet
from tests.factories import SET_UP, apply, person, signed_in
from tests.factories.load_reports import REPORT, THREE

pytestmark = pytest.mark.django_db
UPLOAD, SAVE = "/prices/workbench/tokens/report/", "/prices/workbench/tokens/draft/"
DEPLOYMENT = {"accelerator": "NVIDIA-H800", "gpus": "8", "model": "known-rate", "engine": "vllm 0.11", "precision": "fp8"}
TERMS = {
    "method": "ratio", "gpu_hour_cost": "10", "ttft_p99_ms": "200", "tpot_p99_ms": "20", "min_completed_ratio": "0.9",
    "min_duration_s": "20",
}  # fmt: skip
NAMED = {"draft_name": "2099-01", "valid_from": "2099-01-01", "reason": "measured anew", "new_sheet": "known-rate 2099"}


@pytest.fixture(scope="module")
def finance(for_all_tests: Path) -> Client:
    apply(for_all_tests, price_versions=[{**SET_UP["price_versions"][0], "valid_from": "2024-01-01"}])
    return signed_in(person("ana", "finance"))


def file(content: bytes, name: str = "report.json") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def classes(found: Any) -> list[str]:
    """What the chosen method gives for input and output."""
    return [str(found.methods[0].prices[place][0]) for place in (0, 3)]


def test_a_report_that_locust_wrote_becomes_a_draft(finance: Client) -> None:
    """115.2 input and 180 output tokens/s on 8 GPUs: 10^7 / 3600 / ((115.2 + 4 x 180) / 8) = 26.60706... in, x 4 out."""
    first: Any = finance.post(UPLOAD, {**DEPLOYMENT, "file": file(REPORT.read_bytes(), REPORT.name)})
    assert first.status_code == 200
    assert "gpu_hour_cost: is missing" in first.content.decode()
    held = first.context["report"]
    priced: Any = finance.post(UPLOAD, {"report": held, **TERMS})
    assert classes(priced.context["found"]) == ["26.6071", "106.4283"]
    assert (TokenCostSheet.objects.count(), PriceDraft.objects.count()) == (0, 0)

    assert finance.post(SAVE, {"report": held, **TERMS, **NAMED}).status_code == 302
    stored = TokenCostSheet.objects.get()
    assert (stored.name, stored.model, stored.accelerator, stored.gpus, stored.engine, stored.precision, stored.method) == (
        "known-rate 2099", "known-rate", "NVIDIA-H800", 8, "vllm 0.11", "fp8", "ratio",
    )  # fmt: skip
    assert stored.inputs["report"] == json.loads(held)
    content = PriceDraft.objects.get().content
    assert content["tokens"][-1] == {"model": "known-rate", "cost_sheet": "known-rate 2099"}
    assert [row["model"] for row in content["tokens"]] == ["llama-3-8b", "known-rate"]
    assert content["gpu"][0] == {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.0000"}


def test_a_report_that_does_not_state_its_cached_input_says_so_until_somebody_does(finance: Client) -> None:
    """Half of 115.2 input tokens/s from the cache at a tenth: 10^7 / 3600 / ((57.6 + 5.76 + 720) / 8) = 28.36782... in."""
    note = "all of it is priced as uncached"
    sent = {**DEPLOYMENT, **TERMS}
    silent: Any = finance.post(UPLOAD, {**sent, "file": file(REPORT.read_bytes(), REPORT.name)})
    assert note in silent.content.decode()
    assert note in finance.post(UPLOAD, {"report": silent.context["report"], **TERMS}).content.decode()
    half = {**sent, "cached_input_share": "0.5", "file": file(REPORT.read_bytes(), REPORT.name)}
    page_text: Any = finance.post(UPLOAD, half)
    assert note not in page_text.content.decode()
    assert classes(page_text.context["found"]) == ["28.3678", "113.4713"]
    refused = finance.post(UPLOAD, {**half, "cached_input_share": "2", "file": file(REPORT.read_bytes(), REPORT.name)})
    assert "cached_input_share: &#x27;2&#x27; must be a number from 0 to 1" in refused.content.decode()


def test_lengths_of_prompts_are_priced_and_saved_in_buckets(finance: Client) -> None:
    terms = {**TERMS, "ttft_p99_ms": "1000", "tpot_p99_ms": "50", "markup": "0.2", "context_buckets": "true"}
    found: Any = finance.post(UPLOAD, {**terms, "file": file(json.dumps(THREE).encode())})
    page = found.content.decode()
    assert "2000 → 8000 tokens: Input +60.00%, a bucket of its own" in " ".join(page.split())
    assert [(part.context, str(part.prices[0])) for part in found.context["found"].contexts] == [
        ("0-2000", "0.4386"), ("2001+", "0.6667"),
    ]  # fmt: skip
    ((_, verdicts),) = found.context["found"].runs
    assert [(figures[0], verdict.selected) for verdict, figures in verdicts] == [("6", True), ("2.8", True), ("0.5", True)]
    assert finance.post(SAVE, {"report": found.context["report"], **terms, **NAMED}).status_code == 302
    draft = PriceDraft.objects.get()
    assert "prompts of 2001+ tokens" in finance.get(f"/prices/drafts/{draft.pk}/").content.decode()
    one: Any = finance.get("/prices/workbench/tokens/", {"sheet": "known-rate 2099", "method": "ratio"})
    assert one.context["found"].contexts == []
    again: Any = finance.get("/prices/workbench/tokens/", {"sheet": "known-rate 2099"})
    assert len(again.context["found"].contexts) == 2


def test_a_stored_load_test_is_saved_under_other_terms(finance: Client) -> None:
    held: Any = finance.post(UPLOAD, {**DEPLOYMENT, "file": file(REPORT.read_bytes(), REPORT.name)}).context["report"]
    finance.post(SAVE, {"report": held, **TERMS, **NAMED})
    second = {"draft_name": "2099-02", "new_sheet": "other", "valid_from": "2099-02-01"}
    dearer = {**TERMS, **NAMED, **second, "gpu_hour_cost": "20"}
    assert finance.post(SAVE, {"sheet": "known-rate 2099", **dearer}).status_code == 302
    assert TokenCostSheet.objects.get(name="other").inputs["gpu_hour_cost"] == "20"


@pytest.mark.parametrize("missing", ["accelerator", "engine", "precision"])
def test_a_price_is_not_saved_without_what_was_tested(finance: Client, missing: str) -> None:
    own = {**THREE, missing: ""}
    answer = finance.post(SAVE, {"report": kept_text([own]), **TERMS, "ttft_p99_ms": "1000", "tpot_p99_ms": "50", **NAMED})
    assert answer.status_code == 400
    assert f"report[0].{missing}: is missing: a price is stored with what was tested" in answer.content.decode()
    assert not PriceDraft.objects.exists()


@pytest.mark.parametrize(
    ("sent", "page_text"),
    [
        ({}, "file: choose 1 to 50 reports"),
        ({"file": file(b"")}, "is empty"),
        ({"file": file(b"\x1f\x8b")}, "is a gzip archive"),
        ({"file": file(b"x" * (LARGEST_REPORT + 1))}, "at most 8388608 are read"),
        ({"file": file(b"{}"), "gpus": "many"}, "gpus: &#x27;many&#x27; must be a whole number"),
        ({"file": file(b"{}"), "error_rate": "2"}, "error_rate: &#x27;2&#x27; must be a number from 0 to 1"),
        ({"report": "{"}, "Expecting property name"),
        ({"report": "[1]"}, "is not what the page sent"),
        ({"report": "[" * 100_000}, "is not what the page sent"),
        ({"report": "x" * 300_000}, "is longer than 262144 characters"),
    ],
)
def test_what_is_no_report_is_refused_in_words(finance: Client, sent: dict[str, Any], page_text: str) -> None:
    answer = finance.post(UPLOAD, sent)
    assert answer.status_code == 400
    assert page_text in answer.content.decode()


def test_a_report_with_bad_runs_is_shown_with_what_is_wrong(finance: Client) -> None:
    own = {**THREE, "runs": [{**THREE["runs"][0], "error_rate": "2"}]}
    page = finance.post(UPLOAD, {**TERMS, "file": file(json.dumps(own).encode())}).content.decode()
    assert "report[0].runs[0].error_rate: &#x27;2&#x27; must be a number from 0 to 1" in page
