"""What services say stands on a page in the language of its reader, with its values as they are."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.translation import override

from billing.closing.report import build_report
from billing.invoices.models import BillingPeriod
from billing.portal.sentences import in_language
from tests.full_scenario import Scenario, build_scenario, pleasant
from tests.site_walk import SENTENCE


def chinese(text: str) -> str:
    with override("zh-hans"):
        return in_language(text)


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        ("158,400 GPU-seconds held, 158,400 accounted for", "占用 158,400 GPU 秒，已核对 158,400"),
        (
            "3 open allocations were not seen after that: report until the end of the period, fill it with "
            "`python -m metering backfill`, or waive with a reason",
            "此后有 3 个未结束的占用未再被观测到：上报至账期结束，或用 `python -m metering backfill` 补齐，或说明原因后豁免",
        ),
        (
            "qwen: 5 of 100 tokens differ, 3 of 4 days compared; llama: 0 of 9 tokens differ, 1 of 1 days compared",
            "qwen：100 个 Token 中相差 5，4 天中比对 3 天; llama：9 个 Token 中相差 0，1 天中比对 1 天",
        ),
        (
            "AI-INFRA-2026-000002 could be disputed until 2026-11-18T00:00:00+08:00: ask finance for a correction",
            "AI-INFRA-2026-000002 的异议期已于 2026-11-18T00:00:00+08:00 截止：请联系财务更正",
        ),
        (
            "input_tokens 5 is less than cache_read_input_tokens 200 + cache_creation_input_tokens 0, which it contains",
            "input_tokens 5 小于其中包含的 cache_read_input_tokens 200 + cache_creation_input_tokens 0",
        ),
        (
            "ended_at 2026-11-21T04:00:00+00:00 is before started_at 2026-11-21T05:00:00+00:00",
            "ended_at 2026-11-21T04:00:00+00:00 早于 started_at 2026-11-21T05:00:00+00:00",
        ),
        (
            "id 'req-1' of source 'litellm-hq' was reported before with other content; the first one stays",
            "来源 'litellm-hq' 的 id 'req-1' 此前已上报且内容不同；以首次上报为准",
        ),
        ("a sentence that nobody listed", "a sentence that nobody listed"),
        ("100%(n)s of <b>nothing</b>", "100%(n)s of <b>nothing</b>"),
    ],
)
def test_a_sentence_is_found_by_its_form_and_said_with_its_values(english: str, expected: str) -> None:
    assert chinese(english) == expected
    with override("en"):
        assert in_language(english) == english


@pytest.mark.parametrize(
    ("english", "better", "expected"),
    [
        (
            "1 open allocations were not seen after that: close after the month has ended",
            "1 open allocation was not seen after that: close after the month has ended",
            "此后有 1 个未结束的占用未再被观测到：请在该月结束后再关账",
        ),
        ("1 documents, 1,204.00", "1 document, 1,204.00", "1 张单据，合计 1,204.00"),
        ("1,204 documents, 9.00", "1,204 documents, 9.00", "1,204 张单据，合计 9.00"),
        ("1 invoice drafted", "1 invoice drafted", "已生成 1 份账单草稿"),
        ("1 charges, 0 differ", "1 charge, 0 differ", "1 笔费用，相差 0 笔"),
        ("70987 lines and verdicts assessed", "70987 lines and verdicts assessed", "已评估 70987 行费用与判定"),
        (
            "period 2026-10 cannot be closed: 1 exception holds it", "period 2026-10 cannot be closed: 1 exception holds it",
            "账期 2026-10 无法关账：有 1 项例外阻碍",
        ),
        ("load: has 1 hours, hourly has 24: give one load for each price",
         "load: has 1 hour, hourly has 24: give one load for each price",
         "load：有 1 个小时，而 hourly 有 24 个：每个价格须对应一个负荷"),
        ("some open allocations were not seen after that: wait", "some open allocations were not seen after that: wait",
         "此后有 some 个未结束的占用未再被观测到：wait"),
    ],
)  # fmt: skip
def test_what_a_sentence_counts_is_said_for_one_and_for_many(english: str, better: str, expected: str) -> None:
    assert chinese(english) == expected
    with override("en"):
        assert in_language(english) == better


def test_a_text_that_looks_like_many_sentences_takes_no_long_time() -> None:
    """What people write reaches the expressions too; all words of a sentence, a hundred times over, are answered at once."""
    text = " of days compared tokens differ, : " * 17
    assert chinese(text) == text


@pytest.mark.django_db
def test_no_english_sentence_is_left_on_the_close_page(tmp_path: Path) -> None:
    build_scenario(tmp_path, pleasant)
    client = Client(headers={"accept-language": "zh-CN"})
    client.force_login(User.objects.get(username="finance"))
    for month in ("2026-10", "2026-11"):
        page = client.get(f"/close/?month={month}").content.decode()
        text = re.sub(r"<[^>]+>", " ", page)
        assert SENTENCE.findall(text) == [], month


@pytest.mark.django_db
def test_every_sentence_of_the_report_of_a_house_has_its_chinese(tmp_path: Path) -> None:
    house: Scenario = build_scenario(tmp_path, pleasant)
    now = datetime(2026, 11, 30, tzinfo=UTC)
    period = BillingPeriod(month="2026-11", zone="Asia/Shanghai", start=datetime(2026, 10, 31, 16, tzinfo=UTC),
                           end=datetime(2026, 11, 30, 16, tzinfo=UTC))  # fmt: skip
    told = []
    for report in (build_report(period, now=now), build_report(house.invoice.period, now=now)):
        told += [item.action for item in report.exceptions]
        told += [text for check in report.checks for text in (check.name, check.detail)]
    assert len(set(told)) > 12
    assert [text for text in told if chinese(text) == text] == []
