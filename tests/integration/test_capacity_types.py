"""Of which capacity type allocations are: rules of the set-up file go before what nodes state, from their instant on."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.closing.services.closing import period_close
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry
from billing.usage.capacity_types import capacity_type_changes, capacity_types_of
from billing.usage.models import CapacityTypeRule, GpuAllocation
from billing.usage.queries import gpu_time
from billing.usage.scope import EpochFilter
from metering.intervals import Interval
from tests.factories import AFTER, allocation_record, apply, ingest_allocations

pytestmark = pytest.mark.django_db
RULE = {"cluster": "hq-1", "priority_class": "spot-*", "capacity_type": "spot", "valid_from": "2026-10-01"}
OCTOBER = Interval(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))
HOUR_US = 3_600_000_000


def types(at: str = "2026-10-10T00:00:00Z") -> list[str]:
    """The type of each allocation at an instant, "" where nobody states one."""
    ids = list(GpuAllocation.objects.order_by("allocation_id").values_list("pk", flat=True))
    found = capacity_types_of(dict.fromkeys(ids, datetime.fromisoformat(at)))
    return [found.get(row, "") for row in ids]


def rules(*changed: dict[str, Any]) -> list[dict[str, Any]]:
    base = {"cluster": "hq-1", "valid_from": "2026-10-01"}
    return [base | one for one in changed]


def test_a_rule_goes_before_what_the_node_states(tmp_path: Path) -> None:
    apply(tmp_path, capacity_types=[RULE])
    ingest_allocations(
        allocation_record(1, priority_class="spot-low"),
        allocation_record(2, priority_class="spot-low", capacity_type="on-demand"),
        allocation_record(3, priority_class="prod", capacity_type="on-demand"),
        allocation_record(4, priority_class="prod"), allocation_record(5, capacity_type="SPOT"),
        allocation_record(6, priority_class="spot-low", cluster="hq-2", capacity_type="reserved"),
    )  # fmt: skip
    assert types() == ["spot", "spot", "on_demand", "", "spot", "reserved"]
    (entry,) = AuditEntry.objects.filter(action="capacity_type_rule_put")
    assert (entry.subject, entry.detail["capacity_type"]) == ("hq-1/priority_class spot-*", "spot")


@pytest.mark.parametrize(("condition", "fits"), [
    ({}, [True, True]),
    ({"namespace": "nlp-*"}, [True, True]),
    ({"namespace": "nlp"}, [False, False]),
    ({"queue": "preempt"}, [True, False]),
    ({"queue": "preem?t"}, [True, False]),
    ({"queue": "preem_t"}, [False, False]),  # no pattern of the database
    ({"queue": "100%"}, [False, True]),
    ({"label": "pool=spot-*"}, [True, False]),
    ({"label": "pool=*"}, [True, False]),
    ({"label": "cost/center=a=b"}, [False, True]),
    ({"tag": "qos=scavenger"}, [True, False]),
    ({"queue": "preempt", "label": "pool=spot-?"}, [True, False]),
    ({"queue": "preempt", "label": "pool=prod"}, [False, False]),
])  # fmt: skip
def test_an_allocation_fits_all_patterns_of_a_rule(tmp_path: Path, condition: dict[str, str], fits: list[bool]) -> None:
    tags = [{"cluster": "hq-1", "key": "qos", "from": "tags.qos"}]
    apply(tmp_path, tags=tags, capacity_types=rules({**condition, "capacity_type": "Spot"}))
    ingest_allocations(
        allocation_record(1, queue="preempt", labels={"pool": "spot-a"}, tags={"qos": "scavenger"}),
        allocation_record(2, queue="100%", labels={"cost/center": "a=b"}),
    )
    assert [found == "spot" for found in types()] == fits


def test_the_more_particular_rule_goes_before_and_then_the_priority(tmp_path: Path) -> None:
    apply(tmp_path, capacity_types=rules(
        {"namespace": "nlp-*", "capacity_type": "spot"},
        {"namespace": "nlp-*", "priority_class": "gold", "capacity_type": "reserved"},
        {"queue": "urgent", "capacity_type": "on_demand", "priority": 1},
    ))  # fmt: skip
    ingest_allocations(
        allocation_record(1), allocation_record(2, priority_class="gold"),
        allocation_record(3, priority_class="gold", queue="urgent"),
    )  # fmt: skip
    assert types() == ["spot", "reserved", "on_demand"]


def test_a_rule_holds_from_its_instant_until_the_next_of_its_conditions(tmp_path: Path) -> None:
    """One device from the 10th 00:00 to the 10th 03:00 UTC: an hour of each type."""
    apply(tmp_path, capacity_types=[
        RULE | {"valid_from": "2026-10-10T01:00:00Z"},
        RULE | {"valid_from": "2026-10-10T02:00:00Z", "capacity_type": "stated"},
    ])  # fmt: skip
    ingest_allocations(allocation_record(
        1, quantity=1, priority_class="spot-low", capacity_type="reserved", ended_at="2026-10-10T03:00:00Z",
        observed_until="2026-10-10T03:00:00Z",
    ))  # fmt: skip
    assert [types(f"2026-10-10T0{hour}:30:00Z") for hour in range(3)] == [["reserved"], ["spot"], ["reserved"]]
    cuts = capacity_type_changes(OCTOBER)
    assert sorted(at.hour for at in cuts) == [1, 2]
    found = gpu_time(list(OCTOBER.cut(cuts)), EpochFilter(before=9), ["capacity_type"])
    assert [(row.piece, row.capacity_type, row.device_us) for row in found] == [
        (0, "reserved", Decimal(HOUR_US)), (1, "spot", Decimal(HOUR_US)), (2, "reserved", Decimal(HOUR_US)),
    ]  # fmt: skip


def test_sums_by_type_add_up_to_all(tmp_path: Path) -> None:
    apply(tmp_path, capacity_types=[RULE])
    ingest_allocations(
        allocation_record(1, quantity=1, priority_class="spot-low"), allocation_record(2, quantity=2),
        allocation_record(3, quantity=4, capacity_type="reserved"),
    )  # fmt: skip
    held_us = 9_433_000_000  # 2 h 37 min 13 s
    found = {row.capacity_type: row.device_us for row in gpu_time([OCTOBER], EpochFilter(before=9), ["capacity_type"])}
    assert found == {"spot": Decimal(held_us), "": Decimal(2 * held_us), "reserved": Decimal(4 * held_us)}


def test_the_file_is_idempotent_and_never_edits_a_rule(tmp_path: Path) -> None:
    apply(tmp_path, capacity_types=[RULE])
    assert apply(tmp_path, capacity_types=[RULE]).changes == []
    with pytest.raises(SetUpFileError, match=r"capacity_types\[0\]: capacity type of hq-1/priority_class spot-\* is"):
        apply(tmp_path, capacity_types=[RULE | {"capacity_type": "reserved"}])
    assert CapacityTypeRule.objects.count() == 1


@pytest.mark.parametrize(("second", "refused"), [
    ({"queue": "q", "capacity_type": "reserved"}, True),
    ({"queue": "q", "capacity_type": "reserved", "priority": 1}, False),
    ({"queue": "q", "capacity_type": "spot"}, False),
    ({"priority_class": "*-low", "capacity_type": "reserved"}, True),
    ({"priority_class": "prod-*", "capacity_type": "reserved"}, False),
    ({"priority_class": "prod-*", "queue": "q", "capacity_type": "reserved"}, False),
    ({"priority_class": "spot-*", "queue": "q", "capacity_type": "reserved"}, False),  # the more particular one
    ({"queue": "q", "capacity_type": "reserved", "cluster": "hq-2"}, False),
])  # fmt: skip
def test_rules_that_say_two_things_of_one_allocation_are_refused(
    tmp_path: Path, second: dict[str, Any], refused: bool
) -> None:
    both = [RULE, *rules(second)]
    if refused:
        with pytest.raises(SetUpFileError, match="may be of one allocation: give one a priority"):
            apply(tmp_path, capacity_types=both)
    else:
        apply(tmp_path, capacity_types=both)
        assert CapacityTypeRule.objects.count() == 2


@pytest.mark.parametrize(("changed", "said"), [
    ({"label": "pool"}, "label: 'pool' must be NAME=PATTERN"),
    ({"label": "=x"}, "label: '=x' must be NAME=PATTERN"),
    ({"capacity_type": ""}, "capacity_type: is empty"),
    ({"cluster": ""}, "cluster: is empty"),
    ({"node": "x"}, "node: is no field here"),
    ({"priority": "high"}, "priority: 'high' must be a whole number"),
])  # fmt: skip
def test_a_rule_that_cannot_be_read_is_refused(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    with pytest.raises(SetUpFileError, match=said):
        apply(tmp_path, capacity_types=[RULE | changed])


def test_a_rule_does_not_reach_into_closed_months(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(1, priority_class="spot-low"))
    period_close(month="2026-10", actor="ops", now=AFTER)
    with pytest.raises(SetUpFileError, match=r"valid_from: .* lies in a closed month"):
        apply(tmp_path, capacity_types=[RULE])
    apply(tmp_path, capacity_types=[RULE | {"valid_from": "2026-11-01"}])
    assert types() == [""]
