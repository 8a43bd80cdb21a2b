"""Compose and the chart pass every setting: one that is added without an entry there fails here.

The list is the table at the top of the settings; what the settings' code reads from the environment must be in it.
"""

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
SETTINGS = import_module(os.environ["DJANGO_SETTINGS_MODULE"])
READERS = {"_flag", "_count", "_month", "_list"}
COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT / "docker/compose.yaml").read_text(encoding="utf-8"))
EXAMPLE = (PROJECT / "docker/example.env").read_text(encoding="utf-8")
CHART = PROJECT / "docker/charts/suanpan"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
IN_THE_IMAGE = {"STATIC_ROOT"}
"""The image has collected its static files where it looks for them."""
NEVER_IN_PRODUCTION = {"SUANPAN_DEBUG"}
"""Tracebacks in the browser; extraEnv can still set it for a moment."""
SECRETS = {
    "SECRET_KEY", "DATABASE_URL", "DATABASE_OWNER_URL", "DATABASE_REPLICA_URL", "BROKER_URL", "CACHE_URL",
    "OIDC_CLIENT_SECRET", "MAIL_URL", "ALERT_MAIL_URL", "AUDIT_ANCHOR", "TOKEN_STORE",
}  # fmt: skip
OF_THE_MIGRATION = {"DATABASE_OWNER_URL"}
"""No other part gets the address of the owner."""
SIZES_OF_WEB = {"WEB_WORKERS", "WEB_THREADS"}
"""The chart has `web.workers` and `web.threads`."""
FILLED = {"SECRET_KEY": "x", "DATABASE_URL": "postgresql://u:p@db/suanpan", "BROKER_URL": "redis://:p@broker:6379/0"}
SHOWN = """from importlib import import_module
import os
s = import_module(os.environ["DJANGO_SETTINGS_MODULE"])
print(s.REQUIRE_TWO_FACTOR, [app["provider_id"] for app in s.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"]],
      s.LANGUAGE_CODE, s.PRICE_NOTICE_BUSINESS_DAYS, s.EMAIL_BACKEND.split(".")[-2], s.OIDC_ROLES)"""


def table() -> dict[str, str]:
    """Default by name, as the table says it."""
    rows = re.findall(r"(?m)^\| ([A-Z][A-Z_, ]+) \| .* \| (.*) \|$", SETTINGS.__doc__ or "")
    return {name: default for names, default in rows for name in names.split(", ")}


def read_by_the_code() -> set[str]:
    assert SETTINGS.__file__ is not None
    found = set()
    for node in ast.walk(ast.parse(Path(SETTINGS.__file__).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
            continue
        if ast.unparse(node.func) in READERS | {"os.environ.get", "os.getenv"}:
            found.add(str(node.args[0].value))
    return found


def passed() -> set[str]:
    return set(table()) - IN_THE_IMAGE - NEVER_IN_PRODUCTION


def test_the_table_lists_every_setting_that_the_code_reads() -> None:
    assert {"OIDC_ROLES", "TRUSTED_PROXIES", "MAIL_URL", "PORTAL_URL", "REQUIRE_TWO_FACTOR"} <= read_by_the_code()
    assert read_by_the_code() - set(table()) == set()


def test_compose_passes_every_setting_to_every_part() -> None:
    parts = {name: service for name, service in COMPOSE["services"].items() if "build" in service}
    assert parts
    missing = {(name, setting) for name, part in parts.items() for setting in passed() - set(part["environment"])}
    assert missing == {(name, setting) for name in parts.keys() - {"migrate"} for setting in OF_THE_MIGRATION}


def test_what_compose_passes_by_default_is_the_default_of_the_setting() -> None:
    defaults = dict(re.findall(r"(?m)^([A-Z_]+)=(.*)$", EXAMPLE))
    numbers = {name: default for name, default in table().items() if re.fullmatch(r"\d+", default)}
    assert {name: defaults[name] for name in numbers if name in passed()} == {
        name: default for name, default in numbers.items() if name in passed()
    }
    assert (defaults["OIDC_NAME"], defaults["OIDC_GROUPS_CLAIM"], defaults["DEFAULT_LANGUAGE"]) == (
        table()["OIDC_NAME"], table()["OIDC_GROUPS_CLAIM"], table()["DEFAULT_LANGUAGE"],
    )  # fmt: skip


def test_the_chart_takes_every_setting_and_no_other() -> None:
    assert set(VALUES["settings"]) == passed() - SECRETS - SIZES_OF_WEB


def test_the_chart_takes_secrets_by_reference_only() -> None:
    assert set(VALUES["secrets"]) == SECRETS
    assert all(set(reference) == {"name", "key"} for reference in VALUES["secrets"].values())


def test_the_settings_load_with_what_compose_passes_by_default() -> None:
    environment = {**dict(re.findall(r"(?m)^([A-Z_]+)=(.*)$", EXAMPLE)), **FILLED}
    assert loaded(environment) == "False [] en 10 dummy {}"


def test_the_settings_load_with_all_of_identity_and_mail() -> None:
    filled = {
        "OIDC_SERVER_URL": "https://id.example.org", "OIDC_CLIENT_ID": "suanpan", "OIDC_CLIENT_SECRET": "x",
        "OIDC_ROLES": '{"gpu-finance": "finance"}', "REQUIRE_TWO_FACTOR": "1", "DEFAULT_LANGUAGE": "zh-hans",
        "MAIL_URL": "smtp+tls://user:password@mail.example.org:587", "MAIL_FROM": "billing@example.org",
    }  # fmt: skip
    environment = {**dict(re.findall(r"(?m)^([A-Z_]+)=(.*)$", EXAMPLE)), **FILLED, **filled}
    assert loaded(environment) == "True ['oidc'] zh-hans 10 smtp {'gpu-finance': [('finance', None)]}"


SENDERS = """import django
django.setup()
from allauth.account.adapter import get_adapter
from django.core.mail import EmailMessage
print([EmailMessage().from_email, get_adapter().get_from_email()])"""


def test_mails_about_accounts_come_from_the_address_of_all_mails() -> None:
    """Those with the link that resets a password, too."""
    filled = {**FILLED, "MAIL_URL": "smtp://mail.example.org:25", "MAIL_FROM": "billing@example.org"}
    assert loaded(filled, SENDERS) == "['billing@example.org', 'billing@example.org']"


RESERVED_IN = "import billing.settings.base as s; print(s.CACHE_URL)"
RABBIT = "amqp://u:p@rabbit:5672/"


@pytest.mark.parametrize(("given", "chosen"), [
    ({}, "redis://:p@broker:6379/0"),
    ({"CACHE_URL": "rediss://:p@cache:6379/2"}, "rediss://:p@cache:6379/2"),
    ({"BROKER_URL": RABBIT, "CACHE_URL": "redis://cache:6379/0"}, "redis://cache:6379/0"),
])  # fmt: skip
def test_reservations_are_kept_in_the_broker_or_in_a_valkey_of_their_own(given: dict[str, str], chosen: str) -> None:
    assert loaded({**FILLED, **given}, RESERVED_IN) == chosen


@pytest.mark.parametrize(("given", "named"), [
    ({"BROKER_URL": RABBIT}, "BROKER_URL has scheme 'amqp'"),
    ({"BROKER_URL": RABBIT, "CACHE_URL": RABBIT}, "CACHE_URL has scheme 'amqp'"),
])  # fmt: skip
def test_no_process_starts_where_reservations_cannot_be_kept(given: dict[str, str], named: str) -> None:
    done = started({**FILLED, **given}, RESERVED_IN)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"django.core.exceptions.ImproperlyConfigured: {named}; reservations of budgets are kept in Valkey or Redis:"
        " set CACHE_URL to redis://host:6379/0"
    )


def loaded(environment: dict[str, str], shown: str = SHOWN) -> str:
    """What a process of its own makes of these variables."""
    done = started(environment, shown)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def started(environment: dict[str, str], shown: str) -> subprocess.CompletedProcess[str]:
    own = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": SETTINGS.__name__, **environment}
    return subprocess.run([sys.executable, "-c", shown], cwd=PROJECT, env=own, capture_output=True, text=True)


@pytest.mark.parametrize(("given", "said"), [
    ({"DATABASE_OWNER_URL": "postgresql://o:p@db/other"}, "DATABASE_OWNER_URL and DATABASE_URL name different databases"),
    ({"DATABASE_OWNER_URL": "postgresql://u:q@db/suanpan"},
     "DATABASE_OWNER_URL and DATABASE_URL name the same role: use two, or only the second"),
    ({"DATABASE_OWNER_URL": "mysql://o:p@db/suanpan"},
     "DATABASE_OWNER_URL has scheme 'mysql'; Suanpan keeps its ledger in postgresql"),
    ({"AUDIT_ANCHOR": "syslog://logs,http://hooks.example.com/hidden-word"},
     "AUDIT_ANCHOR: write file:///path, syslog://host, syslog+tcp://host, https://host/path or s3://bucket/prefix"),
    ({"TOKEN_STORE": "clickhouse://u:hidden-word@a:8123"},
     "TOKEN_STORE is no address such as clickhouse://user:password@host-a:8123,host-b:8123/database: replicas of a shard"
     " with commas between, shards with semicolons"),
    ({"AUDIT_ANCHOR": "s3://bucket/prefix?day=3"}, "AUDIT_ANCHOR: s3 knows days, mode, endpoint and region, not day"),
    ({"FISCAL_YEAR_START": "13"}, "FISCAL_YEAR_START='13' must be a month, 1 to 12"),
    ({"FISCAL_YEAR_START": "April"}, "FISCAL_YEAR_START='April' must be a month, 1 to 12"),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"},
     "OTEL_EXPORTER_OTLP_ENDPOINT: write http://collector:4318, or https://..."),
    ({"AUDIT_ANCHOR": "s3://bucket/prefix?mode=NONE"},
     "AUDIT_ANCHOR: days is a whole number, mode one of COMPLIANCE, GOVERNANCE"),
])  # fmt: skip
def test_a_setting_that_would_not_do_what_it_says_starts_no_process(given: dict[str, str], said: str) -> None:
    done = started({**FILLED, **given}, "import billing.settings.base")
    assert (done.returncode, "hidden-word" in done.stderr) == (1, False)
    assert done.stderr.splitlines()[-1] == f"django.core.exceptions.ImproperlyConfigured: {said}"


def test_the_owner_may_be_reached_by_another_way_than_the_application() -> None:
    """Past a PgBouncer, for example, which keeps no session for a migration."""
    given = {**FILLED, "DATABASE_OWNER_URL": "postgresql://o:p%40q@direct:5433/suanpan?sslmode=require"}
    facts = "o['USER'], o['PASSWORD'], o['HOST'], o['OPTIONS']['sslmode']"
    shown = f"from billing.settings.base import DATABASE_OWNER as o; print({facts})"
    assert loaded(given, shown) == "o p@q direct require"
