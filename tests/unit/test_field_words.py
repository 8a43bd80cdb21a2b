"""Every refusal of a field that the code can make is said in the language of the page, and in English as it was written."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils.translation import override

from billing.portal.sentences import in_language

ROOT = Path(__file__).resolve().parents[2]
WHERE = ("pricing/*.py", "pricing/loadtests/own.py", "billing/rates/price_list.py", "billing/rates/services/*.py")
CALLS = ("refuse", "_refused", "FieldProblem")
RANGE = "must be a number from 0 to 20 (kW of one GPU): 700 W is 0.7"
SAMPLES = {
    "' or '.join(options)": "true or false", "error": "no lifecycle carbon factor of 'CN' for 1999",
    "expected": RANGE, "row.get_state_display()": "published", "given": "'x'",
    "currency": "CNY", "other": "pue", "self.what": "a cost sheet", "what": "a cost sheet",
}  # fmt: skip
ENGLISH = re.compile(r"(?:[a-z]{2,}[ ,]+){3,}[a-z]{2,}")
"""Four English words in a row."""


def sample(node: ast.expr) -> str | None:
    """What a literal text looks like with values in it; None where it is a variable."""
    if isinstance(node, ast.BinOp):
        return sample(node.left)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        elif isinstance(part, ast.FormattedValue):
            name = ast.unparse(part.value)
            text += next((word for ending, word in SAMPLES.items() if name.endswith(ending)), "7")
    return text if re.search(r"[a-z]{2}", text.replace(RANGE, "")) or RANGE in text else None


def literals() -> Iterator[tuple[str, str]]:
    for path in sorted(path for pattern in WHERE for path in ROOT.glob(pattern)):
        for node in ast.walk(ast.parse(path.read_text())):
            texts = []
            if isinstance(node, ast.Call) and len(node.args) > 1:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                texts = [node.args[1]] if name in CALLS else []
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("text", "problem"):
                texts = [node.value] if path.name in ("drafts.py", "own.py") else []
            for text in texts:
                if found := sample(text):
                    yield f"{path.name}:{node.lineno}", found


REFUSALS = dict(literals())


def test_there_are_refusals_to_be_said() -> None:
    assert len(REFUSALS) > 70


@pytest.mark.parametrize("where", REFUSALS)
def test_a_refusal_is_said_in_both_languages(where: str) -> None:
    text = REFUSALS[where]
    with override("en"):
        assert in_language(f"gpus: {text}") == f"gpus: {text}"
    with override("zh-hans"):
        said = in_language(f"gpus: {text}")
    assert re.search(r"[\u4e00-\u9fff]", said), f"no Chinese for {text!r}"
    assert not ENGLISH.search(said), said


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("gpu_power_kw: '700' must be a number from 0 to 20 (kW of one GPU): 700 W is 0.7",
         "gpu_power_kw：'700' 应为不小于 0、不大于 20 的数（单张 GPU 的 kW）：700 W = 0.7"),
        ("gpu_price: is missing, must be a number from 0 to 1e9 (currency per GPU)",
         "gpu_price：缺失，应为不小于 0、不大于 1e9 的数（货币单位/每张 GPU）"),
        ("spare_gpus: 40 must be below installed_gpus 32", "spare_gpus：40 应小于 installed_gpus 32"),
        ("gpu[0].price_per_gpu_hour: 'dear' must be a number from 0 to 1000000 (currency per unit, at most 4 decimals)",
         "gpu[0].price_per_gpu_hour：'dear' 应为不小于 0、不大于 1000000 的数（货币单位，最多 4 位小数）"),
        ("life_years: '0' must be a number above 0 up to 20 (years): 60 months are 5",
         "life_years：'0' 应为大于 0、不大于 20 的数（年）：60 个月为 5"),
        ("note: this is a remark of a person", "note: this is a remark of a person"),
    ],
)  # fmt: skip
def test_the_range_and_its_unit_are_said_with_the_value_as_it_was_written(english: str, chinese: str) -> None:
    with override("zh-hans"):
        assert in_language(english) == chinese
    with override("en"):
        assert in_language(english) == english
