"""What nobody owns, or what has no price, is never billed at zero: it blocks the close until somebody has solved it."""

import pytest

from billing.closing.services.closing import CloseRefusedError
from tests.scenarios.company import Company


def test_a_namespace_without_owner_blocks_the_close_until_it_has_one(company: Company) -> None:
    company.uses("nlp-train", gpus=8, since="2026-10-10 08:00", until="2026-10-10 09:00")
    company.uses("lost", gpus=8, since="2026-10-10 08:00", until="2026-10-10 09:00")
    assert company.what_blocks("2026-10") == ["unowned_namespace: hq-1/lost, 28,800 gpu_seconds"]
    with pytest.raises(CloseRefusedError) as refused:
        company.closes("2026-10")
    assert [item.subject for item in refused.value.report.blocking] == ["hq-1/lost"]
    assert (company.documents("2026-10"), company.status("2026-10")) == (0, "open")
    company.gives("lost", "cv", "2026-10-01")
    assert company.what_blocks("2026-10") == []
    company.bills("2026-10")
    assert (company.owes("nlp"), company.owes("cv")) == ("80.00", "80.00")


def test_an_owner_that_begins_later_leaves_the_time_before_it_unowned(company: Company) -> None:
    company.gives("new", "nlp", "2026-10-10 09:00")
    company.uses("new", gpus=8, since="2026-10-10 08:00", until="2026-10-10 10:00")
    assert company.what_blocks("2026-10") == ["unowned_namespace: hq-1/new, 28,800 gpu_seconds"]


def test_an_accelerator_without_price_blocks_the_close(company: Company) -> None:
    company.uses("nlp-train", gpus=8, since="2026-10-10 08:00", until="2026-10-10 09:00", accelerator="NVIDIA-L40")
    assert company.what_blocks("2026-10") == ["unpriced: NVIDIA-L40, 28,800 gpu_seconds"]
    with pytest.raises(CloseRefusedError):
        company.closes("2026-10")
    assert company.documents("2026-10") == 0
