"""Every alert of the platform's chart is silent before its time, fires, and is silent again when its cause is gone."""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.charts import named, objects

POD = 'namespace="billing",pod="web-1"'


class Case(NamedTuple):
    """Values by steps in the notation of promtool, the steps at which the alert is silent, fires and has ended, and how many
    minutes a step takes.
    """

    series: dict[str, str]
    silent: int
    fires: int
    ended: int
    minutes: int = 1


def one(name: str, values: str, *moments: int, labels: str = "") -> Case:
    return Case({f"{name}{{{POD}{labels}}}": values}, *moments)


def of_two(part: str, values: str, whole: str, *moments: int) -> Case:
    return Case({f"{part}{{{POD}}}": values, f"{whole}{{{POD}}}": "100x60"}, *moments)


CASES = {
    "SuanpanMetricsAbsent": Case({f"suanpan_database_up{{{POD}}}": "_x10 1x20"}, 3, 8, 14),
    "SuanpanDatabaseDown": one("suanpan_database_up", "1x4 0x9 1x20", 5, 9, 16),
    "SuanpanBrokerDown": one("suanpan_broker_up", "1x4 0x9 1x20", 8, 12, 16),
    "SuanpanOperationRepeated": one("suanpan_operation_attempts", "3x9 4x19 0x20", 12, 20, 31),
    "SuanpanOperationWaits": one("suanpan_operation_age_seconds", "0+60x80 0x20", 62, 70, 82),
    "SuanpanWorkerSilent": one(
        "suanpan_heartbeat_timestamp_seconds", "0+60x9 540x30 2460+60x30", 20, 27, 43, labels=',part="worker"'
    ),
    "SuanpanSchedulerSilent": one(
        "suanpan_heartbeat_timestamp_seconds", "0+60x9 540x30 2460+60x30", 15, 22, 43, labels=',part="scheduler"'
    ),
    "SuanpanTasksWait": one("suanpan_tasks_waiting", "500x9 501x29 0x20", 20, 30, 42),
    "SuanpanDatabaseDisk": of_two("suanpan_database_bytes", "85x9 86x29 60x20", "suanpan_database_disk_bytes", 20, 30, 42),
    "SuanpanDatabaseConnections": of_two(
        "suanpan_database_connections", "85x9 86x29 10x20", "suanpan_database_connections_max", 15, 25, 42
    ),
    "SuanpanClockDiffers": one("suanpan_clock_ahead_seconds", "5x9 -300x19 0x20", 12, 20, 31),
    "SuanpanRollupsNotFolded": one("suanpan_rollup_deltas", "5+3x59 0x30", 10, 50, 62),
    "SuanpanSourceSilent": one("suanpan_sources_silent", "0x9 1x29 0x20", 15, 25, 42, labels=',kind="agent"'),
    "SuanpanUsageUnowned": one("suanpan_names_unowned", "0x9 2x89 0x20", 60, 75, 102),
    "SuanpanQuarantine": one("suanpan_quarantine_open", "0x9 12x29 0x20", 15, 25, 42, labels=',reason="invalid"'),
    "SuanpanTeamsNotBilled": one("suanpan_teams_held", "0x9 2x89 0x20", 60, 75, 102),
    "SuanpanReportsRefused": one("suanpan_ingest_refused_busy_total", "0x9 0+4x29 116x60", 20, 30, 60),
    "SuanpanAuditAnchorLate": one("suanpan_audit_anchor_failing", "0x9 1x179 0x60", 120, 140, 192),
    "SuanpanTokenEnds": one("suanpan_tokens_ending", "0x9 1x89 0x20", 60, 75, 102),
    "SuanpanDeliveriesFail": one("suanpan_deliveries_failed", "0x9 1x29 0x20", 20, 30, 42, labels=',kind="document"'),
    "SuanpanRequestsSlow": Case({
        f'suanpan_request_seconds_bucket{{{POD},endpoints="usage",le="0.1"}}': "0+60x19 1140+30x29 2010+60x60",
        f'suanpan_request_seconds_bucket{{{POD},endpoints="usage",le="10"}}': "0+60x110",
        f'suanpan_request_seconds_bucket{{{POD},endpoints="usage",le="+Inf"}}': "0+60x110",
    }, 30, 45, 75),
    "SuanpanRequestsFail": Case({
        f'suanpan_requests_total{{{POD},endpoints="usage",status="2xx"}}': "0+90x110",
        f'suanpan_requests_total{{{POD},endpoints="usage",status="5xx"}}': "0x19 0+10x29 290x60",
        f'suanpan_requests_total{{{POD},endpoints="probes",status="5xx"}}': "0+90x110",
    }, 20, 40, 65),
    "SuanpanBackupLate": one("suanpan_last_backup_timestamp_seconds", "0x153 138600x2", 146, 147, 155)._replace(minutes=15),
    "SuanpanRestoreCheckLate": one(
        "suanpan_last_restore_check_timestamp_seconds", "0x873 786600x2", 868, 869, 875
    )._replace(minutes=15),
}  # fmt: skip


def promtool_test(alert: str, case: Case) -> dict[str, Any]:
    moments = {case.silent: 0, case.fires: 1, case.ended: 0}
    return {
        "name": alert, "interval": f"{case.minutes}m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', "eval_time": f"{step * case.minutes}m",
                "exp_samples": [{"labels": "{}", "value": firing}] if firing else [],
            }
            for step, firing in moments.items()
        ],
    }  # fmt: skip


def test_every_alert_of_the_platform_fires_and_ends(tmp_path: Path) -> None:
    spec = named(objects("suanpan", "everything"), "PrometheusRule", "suanpan")["spec"]
    assert sorted(CASES) == sorted(rule["alert"] for group in spec["groups"] for rule in group["rules"])
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    for minutes in {case.minutes for case in CASES.values()}:
        tests = [promtool_test(alert, case) for alert, case in CASES.items() if case.minutes == minutes]
        file = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{minutes}m", "tests": tests}
        (tmp_path / "cases.yaml").write_text(yaml.safe_dump(file, sort_keys=False), encoding="utf-8")
        done = subprocess.run(["promtool", "test", "rules", "cases.yaml"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_worker_and_scheduler_do_not_alert_while_the_broker_is_away(tmp_path: Path) -> None:
    spec = named(objects("suanpan", "everything"), "PrometheusRule", "suanpan")["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    case = {
        "interval": "1m",
        "input_series": [
            {"series": f"suanpan_database_up{{{POD}}}", "values": "1x60"},
            {"series": f"suanpan_broker_up{{{POD}}}", "values": "0x60"},
            {"series": f'suanpan_heartbeat_timestamp_seconds{{{POD},part="worker"}}', "values": "0x60"},
            {"series": f'suanpan_heartbeat_timestamp_seconds{{{POD},part="scheduler"}}', "values": "0x60"},
        ],
        "promql_expr_test": [{
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "50m",
            "exp_samples": [{"labels": '{alertname="SuanpanBrokerDown"}', "value": 1}],
        }],
    }  # fmt: skip
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(file, sort_keys=False), encoding="utf-8")
    done = subprocess.run(["promtool", "test", "rules", "cases.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
