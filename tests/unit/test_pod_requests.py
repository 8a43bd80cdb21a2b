"""What a pod as a whole requests: worked cases, and an independent reading of the rule over generated pods."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.k8s.objects import seen_pod
from metering.k8s.stream import PODS
from metering.requests import Container, RequestError, effective_requests, quantities_of

GPU = "nvidia.com/gpu"


def gpus(count: int, *, restartable: bool = False) -> Container:
    return Container(requests={GPU: count}, restartable=restartable)


@pytest.mark.parametrize(
    ("containers", "init", "overhead", "expected"),
    [
        ([gpus(8)], [], 0, 8),
        ([gpus(4), gpus(4)], [], 0, 8),
        ([gpus(2)], [gpus(8)], 0, 8),  # the init container needs more than the run
        ([gpus(2)], [gpus(1), gpus(1)], 0, 2),  # init containers run one after the other
        ([gpus(2)], [gpus(1, restartable=True)], 0, 3),  # a sidecar stays
        ([gpus(2)], [gpus(1, restartable=True), gpus(4)], 0, 5),  # ... also beside a later init container
        ([gpus(2)], [gpus(4), gpus(1, restartable=True)], 0, 4),  # ... not beside an earlier one
        ([], [gpus(2, restartable=True), gpus(3, restartable=True)], 0, 5),
        ([gpus(2)], [gpus(8)], 1, 9),
    ],
)
def test_the_effective_request(
    containers: list[Container], init: list[Container], overhead: int, expected: int
) -> None:
    assert effective_requests(containers, init, {GPU: overhead}) == {GPU: expected}


def test_requests_come_before_limits_and_limits_stand_in_for_missing_requests() -> None:
    assert effective_requests([Container(requests={GPU: 1}, limits={GPU: 2})]) == {GPU: 1}
    assert effective_requests([Container(limits={GPU: 2})]) == {GPU: 2}


def test_each_resource_is_taken_by_itself_and_native_ones_are_not_read() -> None:
    run = Container(requests={GPU: 1, "cpu": 8, "rdma/hca": 1})
    start = Container(requests={"nvidia.com/mig-1g.10gb": 3})
    assert effective_requests([run], [start]) == {GPU: 1, "nvidia.com/mig-1g.10gb": 3, "rdma/hca": 1}


def test_a_pod_without_devices_requests_nothing() -> None:
    assert effective_requests([Container(requests={"cpu": 8, GPU: 0})]) == {}


def test_a_pod_is_read_as_the_api_server_shows_it() -> None:
    sidecar = {
        "name": "proxy", "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "500m", GPU: "2"}, "limits": {GPU: "2", "memory": "1Gi"}},
    }  # fmt: skip
    containers = [{"name": "plain"}, {"name": "main", "resources": {"limits": {GPU: 1}}}]
    pod = {
        "metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
        "spec": {"initContainers": [sidecar], "containers": containers},
    }
    seen = seen_pod(PODS.decode(json.dumps(pod)))
    assert seen is not None
    assert seen.facts.requests == {GPU: 3}


@pytest.mark.parametrize("value", ["0.5", "500m", "-1", "", "two", True, None, "1Ti2"])
def test_a_device_quantity_that_is_no_whole_number_names_container_and_resource(value: object) -> None:
    with pytest.raises(RequestError, match=r"'train': nvidia.com/gpu"):
        quantities_of({GPU: value}, "train")


counts = st.integers(min_value=0, max_value=9)
pods = st.tuples(
    st.lists(counts, max_size=5), st.lists(st.tuples(counts, st.booleans()), max_size=6), counts
)


def by_playing_the_start(containers: list[int], init: list[tuple[int, bool]], overhead: int) -> int:
    """Independent reading: play every moment of the pod's start, and see how much is running at once."""
    moments = []
    for now in range(len(init)):
        running = [count for place, (count, sidecar) in enumerate(init) if place == now or (place < now and sidecar)]
        moments.append(sum(running))
    moments.append(sum(containers) + sum(count for count, sidecar in init if sidecar))
    return max(moments) + overhead


@given(pods)
def test_the_effective_request_is_the_most_that_runs_at_one_time(
    pod: tuple[list[int], list[tuple[int, bool]], int]
) -> None:
    containers, init, overhead = pod
    spec = [gpus(count) for count in containers], [gpus(count, restartable=sidecar) for count, sidecar in init]
    assert effective_requests(*spec, {GPU: overhead}).get(GPU, 0) == by_playing_the_start(containers, init, overhead)


@given(pods, st.data())
def test_a_restarted_or_reordered_set_of_app_containers_requests_the_same(
    pod: tuple[list[int], list[tuple[int, bool]], int], data: st.DataObject
) -> None:
    containers, init, overhead = pod
    inits = [gpus(count, restartable=sidecar) for count, sidecar in init]
    shuffled = data.draw(st.permutations(containers))
    assert effective_requests([gpus(count) for count in shuffled], inits, {GPU: overhead}) == effective_requests(
        [gpus(count) for count in containers], inits, {GPU: overhead}
    )
