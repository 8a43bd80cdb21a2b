"""A Prometheus that could not ask all of its stores answers with what it has: a part is never taken for the whole."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from metering.intervals import Interval
from metering.prometheus import Prometheus, PrometheusError

HOUR = Interval(datetime(2026, 10, 10, tzinfo=UTC), datetime(2026, 10, 10, 1, tzinfo=UTC))
AT = (HOUR.start + timedelta(minutes=1)).timestamp()
POD = {"metric": {"__name__": "kube_pod_info", "uid": "u1"}, "values": [[AT, "1"]]}


def prometheus(**more: Any) -> Prometheus:
    """One that answers with one pod."""
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [POD]}, **more}
    client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=answer)))
    return Prometheus("http://prometheus", client=client)


@pytest.mark.parametrize(("more", "said"), [
    ({"warnings": ["fetch series for {replica=\"b\"}: connection refused"]}, "fetch series for {replica=\"b\"}"),  # Thanos
    ({"isPartial": True}, "a part of its stores did not answer"),  # VictoriaMetrics
])  # fmt: skip
def test_an_answer_of_which_a_part_may_be_missing_is_none(more: dict[str, Any], said: str) -> None:
    with pytest.raises(PrometheusError, match=said):
        prometheus(**more).series(["kube_pod_info"], HOUR)


@pytest.mark.parametrize("more", [{}, {"warnings": []}, {"isPartial": False}, {"infos": ["might not be a counter"]}])
def test_a_whole_answer_is_read(more: dict[str, Any]) -> None:
    (series,) = prometheus(**more).series(["kube_pod_info"], HOUR)
    assert [at for at, _ in series.samples] == [HOUR.start + timedelta(minutes=1)]
