"""A real Prometheus with the chart's rules scrapes two real web workers: what is wrong fires, and ends when it is repaired.

Only the time that a sign has to last (`for`) is shortened.
"""

import subprocess
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from billing.invoices.models import Operation
from billing.local.process_list import free_port
from billing.usage.models import AgentWatermark
from tests.documented import PRODUCTION, blocks, commands, filled, words
from tests.factories.servers import WebProcess, broker, until
from tests.prometheus.alerts import firing, watching

REQUESTS = 24


def unauthorized(web: WebProcess) -> float:
    """How many answers of the API without a token the answering worker knows of."""
    families = text_string_to_metric_families(httpx.get(f"{web.url}/metrics", timeout=30).text)
    samples = [sample for family in families for sample in family.samples if sample.name == "suanpan_requests_total"]
    return sum(sample.value for sample in samples if sample.labels == {"endpoints": "api", "status": "4xx"})


def asked_as_the_page_says(prometheus: str) -> str:
    """The value of the first metric, by the last of the commands that lead to it."""
    command = commands(blocks(PRODUCTION)[0].text)[-1]
    own = {"http://127.0.0.1:9090": prometheus, 'namespace="suanpan"': 'namespace="billing"'}
    asked = words(filled(command[command.index("promtool ") :], own))
    said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=30).stdout
    return said.partition("=> ")[2].partition(" ")[0]


@pytest.mark.django_db(transaction=True)
def test_alerts_fire_while_something_is_wrong_and_each_worker_counts_for_all(tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(broker(port))
        web = WebProcess(2, BROKER_URL=f"redis://127.0.0.1:{port}/0")
        web.start()
        stack.callback(web.kill)
        until(lambda: len(web.workers()) == 2)
        assert {httpx.get(f"{web.url}/api/v1/teams", timeout=30).status_code for _ in range(REQUESTS)} == {401}
        assert [unauthorized(web) for _ in range(8)] == [REQUESTS] * 8

        prometheus = stack.enter_context(watching(tmp_path / "prometheus", web.url))
        until(lambda: "SuanpanBackupLate" in firing(prometheus))  # of an installation without one
        wrong = {"SuanpanBrokerDown", "SuanpanSourceSilent", "SuanpanOperationRepeated", "SuanpanOperationWaits"}
        assert firing(prometheus) & wrong == set()
        assert asked_as_the_page_says(prometheus) == "1"
        first.close()
        AgentWatermark.objects.create(agent="a", cluster="c", watermark=timezone.now() - timedelta(hours=3))
        Operation.objects.create(kind="close", month="2026-10", requested_by="ada", attempts=4)
        Operation.objects.update(requested_at=timezone.now() - timedelta(hours=2))
        until(lambda: wrong <= firing(prometheus))

        stack.enter_context(broker(port))
        AgentWatermark.objects.update(watermark=timezone.now())
        Operation.objects.update(status=Operation.Status.DONE)
        until(lambda: firing(prometheus) & wrong == set())
