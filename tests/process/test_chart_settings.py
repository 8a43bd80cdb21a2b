"""What the chart of the platform passes to its parts, and the servers, jobs and networks around them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.http.request import split_domain_port, validate_host

from tests.charts import CASES, CHARTS, PROJECT, containers, environment, helm, named, objects, of_kind, pod_templates
from tests.documented import SCALE, blocks

COMPOSE = yaml.safe_load((PROJECT / "docker/compose.yaml").read_text(encoding="utf-8"))
SECRETS = {
    "SECRET_KEY", "DATABASE_URL", "DATABASE_OWNER_URL", "DATABASE_PASSWORD", "BROKER_URL", "BROKER_PASSWORD",
    "OIDC_CLIENT_SECRET", "MAIL_URL", "ALERT_MAIL_URL", "AUDIT_ANCHOR",
}  # fmt: skip
MADE = {
    "BROKER_URL": "redis://:$(BROKER_PASSWORD)@suanpan-broker:6379/0",
    "DATABASE_URL": "postgresql://suanpan_app:$(DATABASE_PASSWORD)@suanpan-db-rw:5432/suanpan",
}
WITHIN = "localhost,127.0.0.1,suanpan-web,$(POD_IP),[$(POD_IP)]"
every_case = pytest.mark.parametrize(("chart", "values"), CASES)


@every_case
def test_no_secret_has_a_value_in_any_object(chart: str, values: str) -> None:
    items = objects(chart, values)
    assert of_kind(items, "Secret") == []
    for _, template in pod_templates(items):
        for container in containers(template):
            given = {name: value for name, value in environment(container).items() if name in SECRETS}
            made = {name: given.pop(name) for name, value in list(given.items()) if isinstance(value, str)}
            assert made.items() <= MADE.items()
            assert all(set(value) == {"secretKeyRef"} for value in given.values())


def container_of(values: str, part: str) -> Any:
    deployment = named(objects("suanpan", values), "Deployment", f"suanpan-{part}")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container


def web_environment(values: str) -> dict[str, Any]:
    return environment(container_of(values, "web"))


def test_each_setting_reaches_the_process_as_it_was_given() -> None:
    ours = ("SECRET_KEY", "BROKER_PASSWORD", "OIDC_CLIENT_SECRET", "MAIL_URL", "ALERT_MAIL_URL", "AUDIT_ANCHOR")
    assert web_environment("everything") == {
        **{name: {"secretKeyRef": {"name": "suanpan", "key": name}} for name in ours},
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "DATABASE_PASSWORD": {"secretKeyRef": {"name": "suanpan-database", "key": "password"}},
        **MADE,
        "ALLOWED_HOSTS": f"billing.example.com,billing.internal,{WITHIN}",
        "CSRF_TRUSTED_ORIGINS": "https://billing.internal",
        "SECURE_COOKIES": "1",
        "DATABASE_DISK_BYTES": "107374182400",
        "TRUSTED_PROXIES": "2",
        "SIGN_INS_PER_MINUTE": "60",
        "INVALID_TOKENS_PER_MINUTE": "120",
        "REQUIRE_TWO_FACTOR": "1",
        "SESSION_HOURS": "4",
        "SESSION_IDLE_MINUTES": "15",
        "PORTAL_URL": "https://billing.internal",
        "DEFAULT_LANGUAGE": "zh-hans",
        "LOG_LEVEL": "INFO",
        "LOG_FORMAT": "line",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.monitoring:4318",
        "OIDC_SERVER_URL": "https://id.example.com",
        "OIDC_CLIENT_ID": "suanpan",
        "OIDC_NAME": "Company sign-in",
        "OIDC_SCOPES": "openid profile email groups",
        "OIDC_SUBJECT_CLAIM": "oid",
        "OIDC_GROUPS_CLAIM": "roles",
        "OIDC_ROLES": '{"gpu-finance": "finance"}',
        "OIDC_SECOND_FACTOR": "acr:urn:okta:loa:2fa:any,amr:mfa",
        "MAIL_FROM": "billing@example.com",
        "INGEST_MAX_BYTES": "33554432",
        "INGEST_MAX_INFLIGHT_BYTES": "134217728",
        "INGEST_MAX_CONNECTIONS": "8192",
        "FUTURE_TOLERANCE_SECONDS": "3600",
        "PRICE_NOTICE_BUSINESS_DAYS": "5",
        "FISCAL_YEAR_START": "4",
        "EVENT_NAMINGS": "{}",
        "OTLP_CONSUMERS": "user.id",
        "ESTIMATES_FROM": "litellm-hq",
        "LITELLM_CONSUMER": "team_id",
        "WEB_WORKERS": "2",
        "WEB_THREADS": "16",
        "HTTPS_PROXY": "http://proxy.example.com:3128",
    }


def test_what_is_not_set_is_left_to_the_application() -> None:
    assert web_environment("minimal") == {
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "DATABASE_URL": {"secretKeyRef": {"name": "suanpan", "key": "DATABASE_URL"}},
        "BROKER_URL": {"secretKeyRef": {"name": "suanpan", "key": "BROKER_URL"}},
        "SECRET_KEY": {"secretKeyRef": {"name": "suanpan", "key": "SECRET_KEY"}},
        "ALLOWED_HOSTS": WITHIN,
        "SECURE_COOKIES": "1",
        "WEB_WORKERS": "2",
        "WEB_THREADS": "16",
    }


SHOWN = """from importlib import import_module
import os
s = import_module(os.environ["DJANGO_SETTINGS_MODULE"])
print(s.ALLOWED_HOSTS[-2], s.CSRF_TRUSTED_ORIGINS, s.ALLAUTH_TRUSTED_PROXY_COUNT, s.REQUIRE_TWO_FACTOR,
      s.INGEST_MAX_BYTES)"""


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ("minimal", "10.1.2.3 [] 0 False 16777216"),
        ("external-database", "10.1.2.3 ['https://billing.example.com'] 1 True 33554432"),
        ("everything", "10.1.2.3 ['https://billing.internal'] 2 True 33554432"),
    ],
)
def test_the_application_starts_with_what_the_chart_gives_it(values: str, shown: str) -> None:
    own = {
        "DATABASE_URL": "postgresql://u:p@db/suanpan", "BROKER_URL": "redis://:p@broker/0", "MAIL_URL": "smtp://mail",
        "CACHE_URL": "redis://:p@cache/0", "AUDIT_ANCHOR": "syslog://logs",
    }  # fmt: skip
    given = {
        name: own.get(name, "x") if isinstance(value, dict) else value for name, value in web_environment(values).items()
    }
    process = {key: str(value).replace("$(POD_IP)", "10.1.2.3") for key, value in given.items()}
    process |= {key: os.environ[key] for key in ("PATH", "DJANGO_SETTINGS_MODULE")}
    done = subprocess.run([sys.executable, "-c", SHOWN], cwd=PROJECT, env=process, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, shown), done.stderr


@every_case
def test_what_another_variable_refers_to_comes_before_it(chart: str, values: str) -> None:
    """Kubernetes fills in $(NAME) only from variables above, and leaves it as it is otherwise."""
    for _, template in pod_templates(objects(chart, values)):
        for container in containers(template):
            names = [item["name"] for item in container.get("env", [])]
            assert len(names) == len(set(names))
            for place, item in enumerate(container.get("env", [])):
                assert set(re.findall(r"\$\((\w+)\)", item.get("value", ""))) <= set(names[:place])


@pytest.mark.parametrize(("pod", "asked"), [("10.1.2.3", "10.1.2.3:8000"), ("fd00::7", "[fd00::7]:8000")])
def test_probes_and_prometheus_ask_a_host_that_is_allowed(pod: str, asked: str) -> None:
    """Both ask the address of the pod, which only the pod knows."""
    allowed = str(web_environment("external-database")["ALLOWED_HOSTS"]).replace("$(POD_IP)", pod).split(",")
    domain, _ = split_domain_port(asked)
    assert validate_host(domain, allowed)
    assert not validate_host("attacker.example.com", allowed)


# --- migration, servers, backups -------------------------------------------------------------------------------------

HOOK = {"helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-delete-policy": "before-hook-creation"}


@pytest.mark.parametrize(
    ("values", "options", "annotations"),
    [
        ("external-database", (), HOOK),
        ("external-database", ("--is-upgrade",), HOOK),
        ("cloudnativepg", (), None),  # the database comes with this release: a hook before it would wait for ever
        ("cloudnativepg", ("--is-upgrade",), HOOK),
    ],
)
def test_the_schema_is_migrated_before_the_parts_change(
    values: str, options: tuple[str, ...], annotations: dict[str, str] | None
) -> None:
    (job,) = of_kind(objects("suanpan", values, *options), "Job")
    assert job["metadata"].get("annotations") == annotations
    assert job["metadata"]["name"] == ("suanpan-migrate" if annotations else "suanpan-migrate-first")
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("values", "owner"),
    [
        ("minimal", None),  # one role, as in 1.0.0
        ("cloudnativepg", None),
        ("everything", {"secretKeyRef": {"name": "suanpan-db-app", "key": "uri"}}),
        ("external-database", {"secretKeyRef": {"name": "ledger", "key": "owner"}}),
    ],
)
def test_the_migration_alone_has_the_address_of_the_owner(values: str, owner: dict[str, Any] | None) -> None:
    found = {
        name: environment(container)
        for name, template in pod_templates(objects("suanpan", values)) for container in containers(template)
    }  # fmt: skip
    (migration,) = (given for name, given in found.items() if name.startswith("Job/suanpan-migrate"))
    assert migration.get("DATABASE_OWNER_URL") == owner
    assert [name for name, given in found.items() if given is not migration and "DATABASE_OWNER_URL" in given] == []
    assert migration["DATABASE_URL"] == found["Deployment/suanpan-web"]["DATABASE_URL"]


def test_a_restore_is_checked_with_the_role_that_may_make_databases(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("restoreCheck: {enabled: true}\nsecrets: {DATABASE_OWNER_URL: {name: ledger, key: owner}}\n")
    done = helm("template", "suanpan", str(CHARTS / "suanpan"), "--values", str(values))
    items = [item for item in yaml.safe_load_all(done.stdout) if item]
    job = named(items, "CronJob", "suanpan-restore-check")["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = containers(job)
    assert environment(container)["DATABASE_URL"] == {"secretKeyRef": {"name": "ledger", "key": "owner"}}


def test_a_hook_needs_nothing_that_the_release_creates() -> None:
    """Before the first install there are only the Secrets that somebody made."""
    spec = named(objects("suanpan", "external-database"), "Job", "suanpan-migrate")["spec"]["template"]["spec"]
    assert "serviceAccountName" not in spec
    assert [set(volume) - {"name"} for volume in spec["volumes"]] == [{"emptyDir"}]
    references = [value for value in environment(spec["containers"][0]).values() if isinstance(value, dict)]
    assert {key for value in references for key in value} == {"fieldRef", "secretKeyRef"}
    assert "envFrom" not in spec["containers"][0]


LIVENESS = {
    "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3", "tcp_user_timeout": "20000",
}  # fmt: skip
"""With them a server ends the connection of a client that vanished; tests/operations/test_partition.py cuts one off."""


def test_a_client_that_vanished_keeps_no_lock_in_the_database_of_compose_as_the_page_says() -> None:
    program, *options = COMPOSE["services"]["postgres"]["command"]
    assert (program, set(options[::2])) == ("postgres", {"-c"})
    assert dict(option.split("=") for option in options[1::2]) == LIVENESS
    (asked,) = (block.text for block in blocks(SCALE, "") if "tcp_user_timeout" in block.text)
    assert dict(line.split(" = ") for line in asked.splitlines() if line.startswith("tcp_")) == LIVENESS


def test_the_cluster_of_the_operator_is_the_one_that_is_meant() -> None:
    """Fields as CloudNativePG documents them: https://cloudnative-pg.io/documentation/current/cloudnative-pg.v1/"""
    cluster = named(objects("suanpan", "cloudnativepg"), "Cluster", "suanpan-db")
    assert cluster["apiVersion"] == "postgresql.cnpg.io/v1"
    assert cluster["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert cluster["spec"] == {
        "instances": 3,
        "bootstrap": {"initdb": {"database": "suanpan", "owner": "suanpan", "encoding": "UTF8"}},
        "managed": {"roles": [{"name": "suanpan", "ensure": "present", "login": True, "createdb": True}]},
        "postgresql": {"parameters": {"max_connections": "300", **LIVENESS}},
        "storage": {"size": "200Gi", "storageClass": "fast"},
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "4Gi"}},
    }
    spec = named(objects("suanpan", "everything"), "Cluster", "suanpan-db")["spec"]
    assert spec["managed"]["roles"][1:] == [
        {"name": "suanpan_app", "ensure": "present", "login": True, "passwordSecret": {"name": "suanpan-database"}}
    ]
    assert spec["imageName"] == "ghcr.io/cloudnative-pg/postgresql:18"
    assert spec["backup"] == {"barmanObjectStore": {"destinationPath": "s3://backups/suanpan"}}


def test_the_broker_is_the_one_of_compose() -> None:
    container = container_of("everything", "broker")
    ours = COMPOSE["services"]["broker"]
    assert container["image"] == ours["image"]
    assert container["command"][-1].split() == ours["command"][-1].replace("$$", "$").split()


def cron(values: str, name: str, *options: str) -> Any:
    job = named(objects("suanpan", values, *options), "CronJob", f"suanpan-{name}")["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    assert job["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    return job["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]


def run_script(container: Any, folder: Path, *, status: int = 0) -> subprocess.CompletedProcess[str]:
    """The script of a container, with a folder in place of its volume and an entry point that says how it was called."""
    stub = folder.parent / "entrypoint.sh"
    stub.write_text(f'#!/bin/sh\necho "$@"\n[ "$2" = restore_check ] || touch "$4" "$4.json"\nexit {status}\n')
    stub.chmod(0o755)
    shell, options, script = container["command"]
    script = script.replace("/app/docker/entrypoint.sh", str(stub)).replace("/backups", str(folder))
    return subprocess.run([shell, options, script], capture_output=True, text=True, check=False)


def backups(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir()
    for day, age_days in (("2026-09-01", 61), ("2026-10-30", 2), ("2026-10-31", 1)):
        for suffix in ("dump", "dump.json"):
            file = folder / f"suanpan-{day}T011700Z.{suffix}"
            file.touch()
            then = file.stat().st_mtime - age_days * 86_400
            os.utime(file, (then, then))
    (folder / "notes.txt").touch()
    return folder


def test_a_backup_is_dated_and_old_ones_go_only_after_it(tmp_path: Path) -> None:
    folder = backups(tmp_path)
    done = run_script(cron("everything", "backup"), folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"manage backup --out {folder}/suanpan-\d{{4}}-\d\d-\d\dT\d{{6}}Z\.dump\n", done.stdout)
    assert not list(folder.glob("suanpan-2026-09-01*"))
    assert len(list(folder.glob("suanpan-*.dump"))) == len(list(folder.glob("suanpan-*.dump.json"))) == 3
    assert (folder / "notes.txt").exists()


def test_a_backup_that_fails_fails_the_job_and_deletes_nothing(tmp_path: Path) -> None:
    folder = backups(tmp_path)
    assert run_script(cron("everything", "backup"), folder, status=2).returncode == 2
    assert len(list(folder.glob("suanpan-2026-09-01*"))) == 2


def test_the_newest_backup_is_the_one_that_is_checked(tmp_path: Path) -> None:
    folder = backups(tmp_path)
    container = cron("everything", "restore-check", "--set", "restoreCheck.databaseUrl.name=scratch-server")
    done = run_script(container, folder, status=3)
    assert (done.returncode, done.stdout) == (3, f"manage restore_check {folder}/suanpan-2026-10-31T011700Z.dump\n")
    assert environment(container)["DATABASE_URL"] == {"secretKeyRef": {"name": "scratch-server", "key": "DATABASE_URL"}}
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "backups"]
    assert mount["readOnly"] is True


# --- network ---------------------------------------------------------------------------------------------------------


def test_every_path_goes_to_web() -> None:
    spec = named(objects("suanpan", "external-database"), "Ingress", "suanpan")["spec"]
    paths = spec["rules"][0]["http"]["paths"]
    assert [(path["path"], path["pathType"], path["backend"]["service"]["name"]) for path in paths] == [
        ("/", "Prefix", "suanpan-web"),
    ]
    assert spec["tls"] == [{"hosts": ["billing.example.com"], "secretName": "suanpan-tls"}]


def test_the_ingress_lets_reports_pass_and_has_limits_per_address() -> None:
    prefix = "nginx.ingress.kubernetes.io/"
    assert named(objects("suanpan", "everything"), "Ingress", "suanpan")["metadata"]["annotations"] == {
        f"{prefix}proxy-body-size": "16m", f"{prefix}proxy-read-timeout": "75", f"{prefix}proxy-request-buffering": "on",
        f"{prefix}limit-connections": "1000", f"{prefix}limit-rps": "10000", f"{prefix}limit-burst-multiplier": "1",
    }  # fmt: skip


def test_only_web_is_reached_and_only_by_the_named_clients() -> None:
    items = of_kind(objects("suanpan", "external-database"), "NetworkPolicy")
    policies = {item["metadata"]["name"]: item["spec"] for item in items}
    ours = {"app.kubernetes.io/name": "suanpan", "app.kubernetes.io/instance": "suanpan"}
    proxies = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}]
    assert policies["suanpan"]["podSelector"] == {"matchLabels": ours}
    assert (policies["suanpan"]["policyTypes"], "ingress" in policies["suanpan"]) == (["Ingress", "Egress"], False)
    assert policies["suanpan"]["egress"] == [
        {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
        {"to": [{"podSelector": {"matchLabels": ours}}]},
        {"ports": [{"port": 5432, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}]},
    ]
    assert {name: spec["ingress"] for name, spec in policies.items() if name != "suanpan"} == {
        "suanpan-web": [{"ports": [{"port": 8000, "protocol": "TCP"}], "from": proxies}],
    }


def test_where_egress_is_limited_the_database_of_the_release_is_still_reached() -> None:
    """Pods of a Cluster carry its name: https://cloudnative-pg.io/documentation/current/labels_annotations/"""
    policy = named(objects("suanpan", "everything"), "NetworkPolicy", "suanpan")["spec"]
    assert policy["egress"][2:] == [
        {
            "to": [{"podSelector": {"matchLabels": {"cnpg.io/cluster": "suanpan-db"}}}],
            "ports": [{"port": 5432, "protocol": "TCP"}],
        },
        {"ports": [{"port": 443, "protocol": "TCP"}]},
    ]
