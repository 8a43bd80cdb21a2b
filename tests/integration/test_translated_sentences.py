"""What services say is in the language of the page's reader, and in English for every program."""

import json
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils.translation import override

from billing.closing.report import build_report
from billing.closing.services.operations import operation_request, operation_run
from billing.invoices.models import Operation
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.runtime.translation import translated
from billing.usage.models import AgentDiagnostic, QuarantinedRecord
from billing.usage.services import watch_notes_add
from metering.intervals import Interval
from tests.factories import apply, ingest_tokens, person, signed_in, token_record
from tests.full_scenario import Scenario, build_scenario, pleasant

pytestmark = pytest.mark.django_db
NOVEMBER = datetime(2026, 11, 2, tzinfo=UTC)
UNKNOWN = "未知的扩展资源：如果是设备，用 --resource 配置采集程序；如果不是，用 `manage.py gpu_share` 声明"


@pytest.fixture
def reader(tmp_path: Path) -> Client:
    """An administrator with the right to close, whose browser asks for Chinese."""
    apply(tmp_path)
    return signed_in(person("li", "admin"), "zh-CN")


def page(client: Client, address: str) -> str:
    """A page as its reader sees it, without the tags around code."""
    return shown(client.get(address).content)


def shown(content: bytes) -> str:
    return unescape(content.decode()).replace("<code>", "`").replace("</code>", "`")


def test_the_advice_for_an_unknown_resource_is_chinese_on_the_page_and_english_in_the_report(reader: Client) -> None:
    AgentDiagnostic.objects.create(
        kind="unknown", agent="a", cluster="hq-1", subject="example.com/fpga", text="4", at=NOVEMBER
    )
    assert UNKNOWN in page(signed_in(person("fang", "finance"), "zh-CN"), "/close/?month=2026-11")
    found = build_report(period_of("2026-11"), now=datetime(2026, 12, 2, tzinfo=UTC)).as_dict()
    (action,) = [item["action"] for item in found["exceptions"] if item["kind"] == "unknown_resource"]
    assert type(action) is str
    assert action == (
        "this extended resource is unknown: if it is a device, configure the agent with --resource; if it is none, declare "
        "it with `manage.py gpu_share`"
    )


def test_what_an_exception_is_about_is_chinese_on_pages_and_english_where_it_is_stored(reader: Client) -> None:
    lost = Interval(datetime(2026, 10, 20, tzinfo=UTC), datetime(2026, 10, 20, 4, tzinfo=UTC))
    watch_notes_add(agent="gpu-agent", cluster="hq-1", kind="unwatched", stretches=[lost])
    report = build_report(period_of("2026-10"), now=NOVEMBER)
    assert [item.subject for item in report.exceptions if item.kind == "metering_gap"] == ["hq-1/agent gpu-agent"]
    assert "hq-1/采集代理 gpu-agent" in page(reader, "/close/?month=2026-10")
    assert "采集代理 gpu-agent" in page(reader, "/sources/?month=2026-10")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"action": "dismiss", "reason": " "}, "原因：未填写"),
        ({"action": "replay", "reason": " "}, "原因：未填写"),
        ({"action": "replay", "reason": "again"},
         "再次被拒绝：来源 'litellm-hq' 的 id 'req-1' 此前已上报且内容不同；以首次上报为准"),
        ({"action": "replay", "reason": "typo", "record": json.dumps(token_record(cache_read_input_tokens=2000))},
         "记录无效：input_tokens 1000 小于其中包含的 cache_read_input_tokens 2000 + cache_creation_input_tokens 0"),
    ],
)  # fmt: skip
def test_what_quarantine_refuses_is_said_in_the_readers_language(
    reader: Client, sent: dict[str, str], expected: str
) -> None:
    ingest_tokens(token_record(), token_record(output_tokens=7, reasoning_output_tokens=0))
    entry = QuarantinedRecord.objects.get()
    answer = reader.post(f"/quarantine/{entry.pk}/", sent)
    assert answer.status_code == 409
    assert expected in shown(answer.content)


def test_why_a_record_is_in_quarantine_is_chinese_on_the_page_and_stored_in_english(reader: Client) -> None:
    ingest_tokens(
        token_record(), token_record(input_tokens=1001),
        token_record(2, cache_read_input_tokens=2000), token_record(3, model="llama "),
        token_record(4, output_tokens=-1, reasoning_output_tokens=0),
    )  # fmt: skip
    found = page(reader, "/quarantine/")
    assert "来源 'litellm-hq' 的 id 'req-1' 此前已上报且内容不同；以首次上报为准" in found
    assert "input_tokens 1000 小于其中包含的 cache_read_input_tokens 2000 + cache_creation_input_tokens 0" in found
    assert "model：开头或结尾有空格" in found
    assert "output_tokens -1：expected `int` >= 0" in found  # the decoder's own words
    assert set(QuarantinedRecord.objects.values_list("error", flat=True)) == {
        "id 'req-1' of source 'litellm-hq' was reported before with other content; the first one stays",
        "input_tokens 1000 is less than cache_read_input_tokens 2000 + cache_creation_input_tokens 0, which it contains",
        "model: begins or ends with a blank", "output_tokens -1: expected `int` >= 0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("2026-10-32", "止 '2026-10-32'：须为 2000 至 2199 年间的日期，例如 2026-11-30"),
        ("2020-01-01", "豁免至 2020-01-01：请选择今天起 366 天内的日期"),
    ],
)
def test_a_waiver_that_is_refused_says_why_in_the_readers_language(tmp_path: Path, until: str, expected: str) -> None:
    apply(tmp_path)
    client = signed_in(person("fang", "finance"), "zh-CN")
    period_open(month="2026-11")
    sent = {"kind": "metering_gap", "subject": "hq-1", "quantity": "1", "reason": "test", "until": until}
    assert expected in shown(client.post("/close/2026-11/waivers/", sent).content)


def test_the_outcome_of_an_operation_is_kept_in_english_and_shown_in_the_readers_language(tmp_path: Path) -> None:
    apply(tmp_path)
    with override("zh-hans"):
        operation = operation_request(kind="close", month="2099-01", actor="fang")
        done = operation_run(operation_id=operation.pk)
    assert done.message == "period 2099-01 cannot be closed: 1 exception blocks it"
    again = Operation.objects.get(pk=done.pk)
    with override("zh-hans"):
        assert translated(again.outcome) == "账期 2099-01 无法关账：有 1 项待处理问题阻碍"
    Operation.objects.filter(pk=done.pk).update(parameters={}, message="a text from before")
    assert translated(Operation.objects.get(pk=done.pk).outcome) == "a text from before"


def test_every_sentence_of_the_report_of_a_full_month_has_its_chinese(tmp_path: Path) -> None:
    scenario: Scenario = build_scenario(tmp_path, pleasant)
    said: list[Any] = []
    for period in (period_of("2026-11"), scenario.invoice.period):
        report = build_report(period, now=datetime(2026, 11, 30, tzinfo=UTC))
        said += [item.action for item in report.exceptions]
        said += [text for check in report.checks for text in (check.name, check.detail)]
    assert len(set(said)) > 12
    with override("zh-hans"):
        assert [text for text in said if translated(text) == text] == []


def test_programs_read_english_whatever_language_is_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(consumer="stranger"))
    with override("zh-hans"), pytest.raises(SystemExit):
        call_command("period_report", "2026-10", json=True)
    answer = json.loads(capsys.readouterr().out)
    assert "add it under `consumers:`" in [item["action"] for item in answer["exceptions"]]
    assert "tokens = charged + unowned + unpriced" in [check["name"] for check in answer["checks"]]
