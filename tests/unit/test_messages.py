"""A message is its English sentence for programs, and the sentence of the reader's language for a page."""

import copy
import pickle

import pytest
from django.utils.translation import override

from billing.runtime.translation import translated
from metering.messages import Message, UserError
from pricing.cost_sheet import CostSheetError
from pricing.fields import Bound, FieldProblem
from pricing.tco import parse_cost_sheet


class ThingError(UserError, ValueError):
    code = "thing"


NO_TEAM = Message("team %(code)s: there is no such team", code="'x'")


def chinese(text: object) -> str:
    with override("zh-hans"):
        return translated(text)


def test_a_message_is_its_english_sentence_in_whatever_language_a_thread_works() -> None:
    with override("zh-hans"):
        made = Message("until %(day)s: choose a day from today on, within %(days)s days", day="2026-10-32", days=366)
        assert made == f"{made}" == str(ThingError(made)) == "until 2026-10-32: choose a day from today on, within 366 days"
        assert translated(ThingError(made)) == "豁免至 2026-10-32：请选择今天起 366 天内的日期"
    with override("en"):
        assert translated(made) == made


def test_a_message_within_a_message_is_translated_too_and_other_values_are_not() -> None:
    future = Message("%(field)s %(time)s lies in the future", field="time", time="2027-01-01")
    refused = Message("refused again: %(error)s", error=future)
    assert refused == "refused again: time 2027-01-01 lies in the future"
    assert chinese(refused) == "再次被拒绝：time 2027-01-01 在未来"
    assert chinese(Message("refused again: %(error)s", error="a remark of a person")) == "再次被拒绝：a remark of a person"


def test_the_message_of_an_error_is_a_value_like_any_other() -> None:
    with override("zh-hans"):
        assert translated(Message("refused again: %(error)s", error=ThingError(NO_TEAM))) == "再次被拒绝：团队 'x'：不存在"


def test_sentences_in_a_row_are_translated_one_by_one() -> None:
    row = Message.joined([NO_TEAM, Message("a waiver needs a reason"), "nlp: KeyError"])
    assert row == "team 'x': there is no such team; a waiver needs a reason; nlp: KeyError"
    assert chinese(row) == f"{chinese(NO_TEAM)}; 豁免需要说明原因; nlp: KeyError"
    assert (Message.joined([]), chinese(Message.joined([]))) == ("", "")


def test_what_is_counted_is_one_thing_on_an_english_page_and_stays_what_it_was_for_programs() -> None:
    one = Message.counted("%(n)s charge, %(differ)s differ", "%(n)s charges, %(differ)s differ", 1, n=1, differ=0)
    assert one == "1 charges, 0 differ"
    with override("en"):
        assert translated(one) == "1 charge, 0 differ"
    assert chinese(one) == "1 笔费用，相差 0 笔"


@pytest.mark.parametrize("again", [copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message)),
                                   lambda message: Message.from_json(message.as_json())])  # fmt: skip
def test_a_message_that_was_kept_is_the_same_message(again: object) -> None:
    kept = Message.joined([
        Message.counted("%(n)s document, %(total)s", "%(n)s documents, %(total)s", 1, n=1, total="9.00"), NO_TEAM, "100 %",
    ])  # fmt: skip
    found = again(kept)  # type: ignore[operator]
    assert (found, chinese(found)) == ("1 documents, 9.00; team 'x': there is no such team; 100 %", chinese(kept))
    assert chinese(found).startswith("1 张单据，合计 9.00; ")


def test_a_text_that_is_no_message_stays_as_it_is() -> None:
    for text in ("100%(n)s of <b>nothing</b>", "5 %", ""):
        assert Message.of(text) == translated(text) == chinese(text) == text == Message.from_json(text)
    assert chinese(Message("a sentence that no catalogue has %(n)s", n=1)) == "a sentence that no catalogue has 1"


@pytest.mark.parametrize(
    ("bound", "english", "expected"),
    [
        (Bound("0", "20", "kW of one GPU", "700 W is 0.7"),
         "must be a number from 0 to 20 (kW of one GPU): 700 W is 0.7",
         "应为不小于 0、不大于 20 的数（单张 GPU 的 kW）：700 W = 0.7"),
        (Bound("0", "20", "years", "60 months are 5", above_low=True),
         "must be a number above 0 up to 20 (years): 60 months are 5", "应为大于 0、不大于 20 的数（年）：60 个月为 5"),
        (Bound("0", "1", "ratio", "8 % is 0.08", below_high=True),
         "must be a number from 0 to below 1 (ratio): 8 % is 0.08", "应为不小于 0、小于 1 的数（比率）：8 % = 0.08"),
        (Bound("1", "1024", "GPUs", whole=True),
         "must be a whole number from 1 to 1024 (GPUs)", "应为不小于 1、不大于 1024 的整数（张 GPU）"),
    ],
)  # fmt: skip
def test_a_range_is_translated_with_its_unit_and_its_example(bound: Bound, english: str, expected: str) -> None:
    assert (bound.expected, chinese(bound.expected)) == (english, expected)


def test_every_refusal_of_a_sheet_names_its_field_and_says_in_chinese_what_is_wrong() -> None:
    with pytest.raises(CostSheetError) as refused:
        parse_cost_sheet({"accelerator": "H800", "currency": "cny", "gpu_power_kw": "700", "gpu_prize": "1"})
    wrong = dict(message.split(": ", 1) for message in refused.value.messages)
    assert wrong["gpu_power_kw"] == "'700' must be a number from 0 to 20 (kW of one GPU): 700 W is 0.7"
    reported = dict(chinese(message).split("：", 1) for message in refused.value.messages)
    assert reported["gpu_power_kw"] == "'700' 应为不小于 0、不大于 20 的数（单张 GPU 的 kW）：700 W = 0.7"
    assert reported["gpu_prize"] == "不是成本表的字段，是否应为 gpu_price？"
    assert reported["currency"] == "'cny' 应为三个大写字母，如 CNY"
    assert reported["pue"] == "缺失，应为不小于 1、不大于 5 的数（比率）：机房能耗不会低于其设备能耗"
    assert str(refused.value).split("; ")[0] == str(refused.value.messages[0])


def test_a_problem_of_a_field_is_one_message() -> None:
    problem = FieldProblem(("runs", 2, "gpus"), Message("is missing, must be a list"))
    assert str(problem) == "runs[2].gpus: is missing, must be a list"
    assert chinese(problem.message) == "runs[2].gpus：缺失，应为列表"
