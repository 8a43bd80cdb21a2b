"""What an exception is about, in words: names and codes stay, the words between them are the reader's."""

import pytest
from django.utils.translation import override

from billing.closing.labels import SUBJECTS, subject_words

SUBJECT = [
    ("metering_gap", "hq-1/agent gpu-agent", "hq-1/采集代理 gpu-agent"),
    ("metering_gap", "agent gpu-agent", "采集代理 gpu-agent"),
    ("metering_gap", "hq-1/nlp-train", "hq-1/nlp-train"),
    ("quarantine", "litellm via usage/tokens", "litellm，经 usage/tokens"),
    ("conflict", "bj-2 via usage/gpu-allocations", "bj-2，经 usage/gpu-allocations"),
    ("paid_by_call", "token:reader via usage/tokens", "token:reader，经 usage/tokens"),
    ("estimated_end", "hq-1/others", "hq-1/其他"),
    ("estimated_end", "hq-1/train-1", "hq-1/train-1"),
    ("unknown_share", "hq-1/nlp/nvidia.com/gpu on NVIDIA-H800", "hq-1/nlp/nvidia.com/gpu（NVIDIA-H800）"),
    ("engine_difference", "llama (reported, not counted)", "llama（已上报，未计数）"),
    ("energy_difference", "hq-1 (charged, not metered)", "hq-1（已计费，未计量）"),
    ("upheld_uncredited", "dispute 3 of AI-INFRA-2026-000001", "AI-INFRA-2026-000001 的异议 3"),
    ("unowned_namespace", "hq-1/agent x", "hq-1/agent x"),
]


@pytest.mark.parametrize(("kind", "stored", "chinese"), SUBJECT)
def test_a_subject_reads_as_it_is_stored_in_english_and_in_chinese_has_no_english_word(
    kind: str, stored: str, chinese: str
) -> None:
    with override("en"):
        assert subject_words(kind, stored) == stored
    with override("zh-hans"):
        assert subject_words(kind, stored) == chinese


def test_every_kind_with_words_has_its_example() -> None:
    assert set(SUBJECTS) == {kind for kind, stored, chinese in SUBJECT if stored != chinese}
