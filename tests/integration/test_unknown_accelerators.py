"""A rule about an accelerator that nobody knows is refused with the nearest name; one that bills no pool blocks a close."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.report import Report, build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.waivers import exception_waive
from billing.invoices.services.periods import period_open
from billing.rates.models import AllocationPolicy, Commitment, PriceVersion
from billing.rates.services import CommitmentTerms, RateError
from billing.rates.services.drafts import PriceDraftError, price_draft_create
from billing.rating.services import commitment_terms
from billing.rating.services.commitment_terms import terms_approve, terms_propose
from billing.setup.file import SetUpFileError
from billing.tenancy.models import Team
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_capacity, person
from tests.factories.corrections import bill as close
from tests.factories.months import OCTOBER_OVER
from tests.factories.usage import capacity

pytestmark = pytest.mark.django_db

TYPED = "NVIDIA-H80O"
UNKNOWN = f"'{TYPED}' is named by no price list, capacity or usage, did you mean NVIDIA-H800?"
COMMITMENT = {"name": "nlp-2026", "team": "nlp", "gpu_hours_per_month": "1000", "price_per_gpu_hour": "8.0000",
              "valid_from": "2026-10-01"}  # fmt: skip
IDLE = {"cluster": "hq-1", "price_per_gpu_hour": "6.0000", "method": "proportional"}


def idle(**pool: str) -> list[dict[str, Any]]:
    return [{"name": "idle", "valid_from": "2026-10-01", "idle": [{**IDLE, **pool}]}]


def test_a_commitment_to_what_nobody_knows_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(SetUpFileError) as refused:
        apply(tmp_path, commitments=[{**COMMITMENT, "accelerator": TYPED}])
    assert str(refused.value).endswith(f"commitments[0].accelerator: {UNKNOWN}")
    assert (Commitment.objects.count(), PriceVersion.objects.count()) == (0, 0)


def test_an_idle_policy_of_what_nobody_knows_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(SetUpFileError) as refused:
        apply(tmp_path, allocation_policies=idle(accelerator="nvidia-h800"))
    assert "allocation_policies[0].idle[0].accelerator: 'nvidia-h800' is named by no price list" in str(refused.value)
    assert str(refused.value).endswith("did you mean NVIDIA-H800?")
    assert not AllocationPolicy.objects.exists()


@pytest.mark.parametrize("known_by", ["the same file", "a pool", "usage"])
def test_what_anybody_names_is_known(tmp_path: Path, known_by: str) -> None:
    prices = SET_UP["price_versions"][0]
    if known_by == "the same file":
        prices = {**prices, "gpu": [{"accelerator": "MI300X", "price_per_gpu_hour": "9.0000"}]}
    elif known_by == "a pool":
        ingest_capacity(cluster="hq-1", node="n1", accelerator="MI300X", resource="amd.com/gpu", quantity=8,
                        **{"from": "2026-10-10T00:00:00Z", "until": "2026-10-11T00:00:00Z"})  # fmt: skip
    else:
        ingest_allocations(allocation_record(accelerator="MI300X"))
    apply(
        tmp_path, price_versions=[prices], commitments=[{**COMMITMENT, "accelerator": "MI300X"}],
        allocation_policies=idle(accelerator="MI300X"),
    )  # fmt: skip
    assert Commitment.objects.get().accelerator == "MI300X"


def test_a_name_that_nothing_is_like_is_refused_without_a_guess(tmp_path: Path) -> None:
    with pytest.raises(SetUpFileError, match=r"'TPU-v5' is named by no price list, capacity or usage$"):
        apply(tmp_path, commitments=[{**COMMITMENT, "accelerator": "TPU-v5"}])


def test_what_is_stored_already_may_be_declared_again(tmp_path: Path) -> None:
    apply(tmp_path)
    nlp, start = Team.objects.get(code="nlp"), datetime(2026, 9, 30, 16, tzinfo=UTC)
    Commitment.objects.create(name="nlp-2026", team=nlp, accelerator=TYPED, gpu_hours=1000, price=8, valid_from=start,
                              created_by="before")  # fmt: skip
    assert apply(tmp_path, commitments=[{**COMMITMENT, "accelerator": TYPED}]).changes == []


def test_proposed_terms_are_refused_and_again_when_they_are_approved(tmp_path: Path) -> None:
    apply(tmp_path)
    start = datetime(2026, 9, 30, 16, tzinfo=UTC)
    terms = CommitmentTerms("nlp-2026", Team.objects.get(code="nlp"), TYPED, Decimal(1000), Decimal(8), start)
    with pytest.raises(RateError) as refused:
        terms_propose(terms=terms, actor="fang", now=OCTOBER_OVER, reason="as agreed")
    assert str(refused.value) == f"accelerator {UNKNOWN}"
    with pytest.MonkeyPatch.context() as before:  # as they were proposed before there was this rule
        before.setattr(commitment_terms, "unknown_accelerator", lambda name: None)
        draft = terms_propose(terms=terms, actor="fang", now=OCTOBER_OVER, reason="as agreed")
    with pytest.raises(RateError, match=TYPED):
        terms_approve(draft_id=draft.pk, actor="li", now=OCTOBER_OVER)


def slices(name: str) -> list[dict[str, Any]]:
    listed = [{"accelerator": name, "price_per_gpu_hour": "1.8000"}]
    return [{"name": "slices", "valid_from": "2026-10-01T00:00:00+08:00", "gpu": listed}]


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "huawei.com/Ascend910-8c",
                                  "dra/gpu.nvidia.com/mig-1g.10gb"])  # fmt: skip
def test_a_slice_that_is_listed_as_an_accelerator_is_refused(tmp_path: Path, name: str) -> None:
    """A commitment on its card would pay for it."""
    with pytest.raises(SetUpFileError, match=r"gpu.0..accelerator: .* is a part of a device: list it as resource"):
        apply(tmp_path, price_versions=slices(name))
    apply(tmp_path)
    with pytest.raises(PriceDraftError) as refused:
        price_draft_create(
            name="slices", valid_from=datetime(2026, 11, 1, tzinfo=UTC), actor="fang", now=OCTOBER_OVER,
            content={"gpu": [{"accelerator": name, "price_per_gpu_hour": "1.8000"}]},
        )  # fmt: skip
    assert list(refused.value.by_field) == ["gpu[0].accelerator"]


def test_an_idle_policy_of_a_pool_without_capacity_blocks_the_close_until_somebody_answers_for_it(tmp_path: Path) -> None:
    apply(tmp_path, allocation_policies=idle(cluster="hq-l", accelerator="NVIDIA-H800"))
    capacity()
    ingest_allocations(allocation_record())
    found = [(item.kind, item.subject, item.blocks) for item in october().exceptions]
    assert found == [("idle_capacity_unknown", "hq-l/NVIDIA-H800", True)]
    with pytest.raises(CloseRefusedError):
        period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    person("li", "finance")
    exception_waive(period=period_open(month="2026-10"), kind="idle_capacity_unknown", subject="hq-l/NVIDIA-H800",
                    reason="sold in September", actor="li", now=OCTOBER_OVER)  # fmt: skip
    close()
    assert october().status == "closed"


def test_a_pool_of_which_capacity_is_unknown_blocks_nothing_where_no_policy_bills_it(tmp_path: Path) -> None:
    apply(tmp_path, allocation_policies=idle(accelerator="NVIDIA-H800"))
    capacity()
    ingest_allocations(allocation_record(cluster="hq-1"))
    assert october().exceptions == []


def october() -> Report:
    return build_report(period_open(month="2026-10"), now=OCTOBER_OVER)
