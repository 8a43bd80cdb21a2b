"""The charts' alert rules, as promtool reads them: they parse, and fire when and only when they should."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.charts import named, objects

HERE = Path(__file__).parent
CASES = {"suanpan": "platform_rules.yaml", "suanpan-agents": "agent_rules.yaml"}
CHARTS = {"suanpan": "suanpan", "suanpan-agents": "suanpan-agent"}


@pytest.fixture(params=sorted(CASES))
def rules(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The groups of a chart's PrometheusRule, in a file as Prometheus reads it."""
    name: str = request.param
    spec = named(objects(CHARTS[name], "everything"), "PrometheusRule", name)["spec"]
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return file


def promtool(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules(rules: Path) -> None:
    count = {"suanpan": 24, "suanpan-agents": 11}[rules.stem]
    assert f"SUCCESS: {count} rules found" in promtool("check", "rules", rules.name, cwd=rules.parent)


def test_alerts_fire_when_they_should_and_are_silent_else(rules: Path) -> None:
    case = HERE / CASES[rules.stem]
    shutil.copy(case, rules.parent)
    assert "SUCCESS" in promtool("test", "rules", case.name, cwd=rules.parent)


def test_every_alert_is_seen_to_fire(rules: Path) -> None:
    text = "".join((HERE / file).read_text(encoding="utf-8") for file in (CASES[rules.stem], "test_alerts_resolve.py"))
    alerts = re.findall(r"(?m)alert: (\w+)$", rules.read_text(encoding="utf-8"))
    assert alerts
    assert [alert for alert in alerts if alert not in text] == []
