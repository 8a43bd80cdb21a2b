"""Monitors, rules and dashboards of the charts: they ask for metrics that exist, and every alert has its section."""

import json
import re
from typing import Any

import pytest

from metering.k8s.health import Health
from tests.charts import PROJECT, named, objects, of_kind

RUNBOOKS = (PROJECT / "docs/alerts.md").read_text(encoding="utf-8")
ADDRESS = "https://git.example.com/suanpan/blob/main/docs/alerts.md"
METRIC = re.compile(r"\bsuanpan_[a-z_]+\b")
NAMES = {"suanpan": "suanpan", "suanpan-agent": "suanpan-agents"}


def named_in(*files: str) -> set[str]:
    """Metrics that modules make, as they are read: a counter is called _total, a histogram is read by its buckets."""
    text = "".join((PROJECT / file).read_text(encoding="utf-8") for file in files)
    counters = set(re.findall(r'Counter(?:MetricFamily)?\(\s*"(suanpan_[a-z_]+)"', text))
    histograms = set(re.findall(r'Histogram\(\s*"(suanpan_[a-z_]+)"', text))
    others = set(re.findall(r'"(suanpan_[a-z_]+)"', text)) - counters - histograms - {"suanpan_build"}
    return {*others, *(f"{name}_total" for name in counters), *(f"{name}_bucket" for name in histograms)}


def exported() -> dict[str, set[str]]:
    gpu = {f"suanpan_agent_{name}" for name in Health(lambda: True).gauges}
    return {
        "suanpan": named_in("billing/api/metrics.py", "billing/api/request_metrics.py"),
        "suanpan-agent": gpu | named_in("metering/efficiency/command.py"),
    }


def alerts(chart: str) -> list[dict[str, Any]]:
    rule = named(objects(chart, "everything"), "PrometheusRule", NAMES[chart])
    return [alert for group in rule["spec"]["groups"] for alert in group["rules"]]


def panels(chart: str) -> list[dict[str, Any]]:
    (text,) = named(objects(chart, "everything"), "ConfigMap", f"{NAMES[chart]}-dashboard")["data"].values()
    return list(json.loads(text)["panels"])


@pytest.mark.parametrize("chart", sorted(NAMES))
def test_rules_and_panels_read_metrics_that_exist(chart: str) -> None:
    known = exported()[chart]
    assert known
    for expression in [alert["expr"] for alert in alerts(chart)] + [panel["targets"][0]["expr"] for panel in panels(chart)]:
        found = set(METRIC.findall(expression))
        assert found
        assert found - known == set()


def test_every_metric_of_the_platform_has_a_panel() -> None:
    shown = {name for panel in panels("suanpan") for name in METRIC.findall(panel["targets"][0]["expr"])}
    assert shown == exported()["suanpan"]


def test_the_panels_of_costs_read_every_metric_of_costs_and_no_other() -> None:
    (text,) = named(objects("suanpan", "everything"), "ConfigMap", "suanpan-cost-dashboard")["data"].values()
    dashboard = json.loads(text)
    expressions = [panel["targets"][0]["expr"] for panel in dashboard["panels"]]
    asked = [item["query"]["query"] for item in dashboard["templating"]["list"] if item["type"] == "query"]
    known = named_in("billing/api/cost_metrics.py")
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(expressions)
    assert {name for expression in expressions for name in METRIC.findall(expression)} == known
    assert {name for query in asked for name in METRIC.findall(query)} == {"suanpan_spend"}


@pytest.mark.parametrize("chart", sorted(NAMES))
def test_every_alert_says_what_is_wrong_and_links_to_its_section(chart: str) -> None:
    sections = re.findall(r"(?m)^### (\w+)$", RUNBOOKS)
    for alert in alerts(chart):
        assert alert["alert"] in sections
        assert alert["annotations"]["runbook_url"] == f"{ADDRESS}#{alert['alert'].lower()}"
        assert {"summary", "description"} <= set(alert["annotations"])
        assert alert["labels"]["severity"] in ("warning", "critical")


def test_every_section_is_of_an_alert() -> None:
    sections = re.findall(r"(?m)^### (\w+)$", RUNBOOKS)
    assert sections == [alert["alert"] for chart in ("suanpan", "suanpan-agent") for alert in alerts(chart)]


def test_every_sign_to_watch_has_its_metric_alert_and_panel() -> None:
    """Rows of "What to watch" in the documentation, the charts' rules and dashboards, and what is exported."""
    page = (PROJECT / "docs/operations/incidents.md").read_text(encoding="utf-8")
    table = page[page.index("## What to watch") : page.index("For operations:")]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    rules = {alert["alert"]: alert["expr"] for chart in sorted(NAMES) for alert in alerts(chart)}
    shown = {name for chart in NAMES for panel in panels(chart) for name in METRIC.findall(panel["targets"][0]["expr"])}
    watched = []
    for sign, metric, alert, what_to_do in rows:
        name, (address,) = metric.strip("`"), re.findall(r"\(\.\./(alerts\.md#\w+)\)", alert)
        (title,) = re.findall(r"\[(Suanpan\w+)\]", alert)
        assert sign
        assert what_to_do
        assert name in METRIC.findall(rules[title]), title
        assert name in shown, title
        assert address == f"alerts.md#{title.lower()}"
        watched.append(title)
    assert len(watched) == len(set(watched))
    assert {alert["alert"] for alert in alerts("suanpan")} <= set(watched)
    assert set(watched) <= set(re.findall(r"(?m)^### (\w+)$", RUNBOOKS))


def test_rules_of_backups_come_with_the_backup() -> None:
    """A proof on a server of its own is noted there alone, so nothing here would ever end an alert about it."""

    def groups(values: str, option: str) -> list[str]:
        rule = named(objects("suanpan", values, "--set", option), "PrometheusRule", "suanpan")
        return [group["name"] for group in rule["spec"]["groups"]]

    assert groups("minimal", "monitoring.prometheusRule.enabled=true") == ["suanpan"]
    assert groups("everything", "restoreCheck.databaseUrl.name=scratch-server") == ["suanpan", "suanpan-backup"]
    assert groups("everything", "restoreCheck.databaseUrl.name=") == ["suanpan", "suanpan-backup", "suanpan-restore-check"]


def test_monitors_scrape_what_serves_metrics() -> None:
    """Fields as the Prometheus operator documents them: https://prometheus-operator.dev/docs/api-reference/api/"""
    monitor = named(objects("suanpan", "everything"), "ServiceMonitor", "suanpan")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus"
    assert monitor["spec"] == {
        "selector": {
            "matchLabels": {
                "app.kubernetes.io/name": "suanpan", "app.kubernetes.io/instance": "suanpan",
                "app.kubernetes.io/component": "web",
            },
        },
        "endpoints": [{"port": "http", "path": "/metrics", "interval": "30s"}],
    }
    costs = named(objects("suanpan", "everything"), "ServiceMonitor", "suanpan-costs")
    assert costs["spec"]["selector"] == monitor["spec"]["selector"]
    assert costs["spec"]["endpoints"] == [{
        "port": "http", "path": "/api/v1/metrics", "interval": "5m", "scrapeTimeout": "30s",
        "authorization": {"credentials": {"name": "suanpan-costs", "key": "token"}},
    }]  # fmt: skip
    agents = named(objects("suanpan-agent", "everything"), "PodMonitor", "suanpan-agents")
    assert agents["metadata"]["labels"]["release"] == "kube-prometheus"
    names = [{"key": "app.kubernetes.io/name", "operator": "In", "values": ["gpu-agent", "efficiency-agent"]}]
    assert agents["spec"] == {
        "selector": {"matchExpressions": names},
        "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics", "interval": "30s"}],
    }


def test_rules_are_found_by_the_labels_that_prometheus_selects() -> None:
    for chart, name in NAMES.items():
        rule = named(objects(chart, "everything"), "PrometheusRule", name)
        assert (rule["apiVersion"], rule["metadata"]["labels"]["release"]) == ("monitoring.coreos.com/v1", "kube-prometheus")
        assert set(rule["spec"]) == {"groups"}


def test_a_chart_without_the_operators_asks_for_none_of_their_kinds() -> None:
    for chart in NAMES:
        assert of_kind(objects(chart, "minimal"), "ServiceMonitor", "PodMonitor", "PrometheusRule", "Cluster") == []


def test_rules_of_an_agent_that_does_not_run_are_left_out() -> None:
    items = objects("suanpan-agent", "minimal", "--set", "monitoring.prometheusRule.enabled=true")
    rule = named(items, "PrometheusRule", "suanpan-agents")
    assert [group["name"] for group in rule["spec"]["groups"]] == ["suanpan-gpu-agent"]
