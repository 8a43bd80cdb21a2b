"""Passwords, tokens, keys and addresses of channels stand in no log, no page, no audit entry and no message of an error.

Everything is logged at DEBUG, more than any installation does, while each secret is used and while its use fails.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.conf import settings as django_settings
from django.test import Client
from django.utils import timezone

from billing.budgets.models import Budget, Channel, Delivery
from billing.budgets.services import alerts_deliver, budgets_evaluate
from billing.local.process_list import free_port
from billing.settings.identity_settings import provider_apps
from billing.tenancy.models import AuditEntry
from billing.tenancy.tokens import api_token_create, api_token_revoke
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.identity import code_of

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
PASSWORD = "correct horse of the abacus"
WRONG = "wrong horse of the abacus"
TYPED = "spn_typed-by-somebody-who-guesses"
PROVIDER_SECRET = "secret-of-the-provider"
MAIL_PASSWORD = "password-of-the-mail-server"
HOOK = "secret-path-of-the-hook"
LATEST = {**SET_UP["price_versions"][0], "valid_from": "2024-01-01T00:00:00+08:00"}


@pytest.fixture
def closed_port() -> int:
    """A port of loopback where nobody listens."""
    return free_port()


@pytest.fixture
def printed(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Everything that was said so far: logs with their tracebacks, both streams, the audit log."""
    caplog.set_level(logging.DEBUG)

    def everything() -> str:
        streams = capsys.readouterr()
        entries = json.dumps(list(AuditEntry.objects.values_list("action", "subject", "detail")))
        return "\n".join([caplog.text, streams.out, streams.err, entries])

    return everything


def test_a_password_is_repeated_nowhere(printed: Callable[[], str]) -> None:
    person("mei", password=PASSWORD)
    client = Client()
    for given in (WRONG, PASSWORD):
        page = client.post("/login/", {"login": "mei", "password": given})
        assert given not in page.content.decode()
    client.post("/account/password/change/", {"oldpassword": WRONG, "password1": PASSWORD, "password2": PASSWORD})
    said = printed()
    assert (PASSWORD in said, WRONG in said) == (False, False)


def test_a_second_factor_is_repeated_nowhere(printed: Callable[[], str]) -> None:
    mei = person("mei", password=PASSWORD)
    secret = generate_totp_secret()
    TOTP.activate(mei, secret)
    client = Client()
    client.post("/login/", {"login": "mei", "password": PASSWORD})
    client.post("/account/2fa/authenticate/", {"code": "000000"})
    code = code_of(mei)
    client.post("/account/2fa/authenticate/", {"code": code})
    assert client.get("/overview/").status_code == 200
    said = printed()
    assert (secret in said, code in said) == (False, False)


def test_a_token_is_repeated_nowhere(printed: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(tmp_path)
    token, presented = api_token_create(name="gateway", scopes=["usage:write", "invoices:read"], actor="boss")
    client = Client(raise_request_exception=False)
    for given, address in ((presented, "/api/v1/teams"), (TYPED, "/api/v1/teams"), (presented, "/api/v1/nothing-here")):
        answer = client.get(address, headers={"authorization": f"Bearer {given}"})
        assert given not in answer.content.decode()
    client.post("/api/v1/usage/tokens", b"{", "application/json", headers={"authorization": f"Bearer {presented}"})
    monkeypatch.setattr("billing.api.invoices.actor_of", lambda request: 1 / 0)
    failed = client.get("/api/v1/teams", headers={"authorization": f"Bearer {presented}"})
    assert failed.status_code == 500
    api_token_revoke(token=token, actor="boss", now=timezone.now())
    refused = client.get("/api/v1/teams", headers={"authorization": f"Bearer {presented}"})
    assert refused.status_code == 401
    said = printed() + failed.content.decode() + refused.content.decode()
    assert "ZeroDivisionError" in said
    assert (presented in said, TYPED in said) == (False, False)


def test_the_secret_of_the_provider_is_repeated_nowhere(printed: Callable[[], str], settings: Any, closed_port: int) -> None:
    apps = provider_apps({
        "OIDC_SERVER_URL": f"http://127.0.0.1:{closed_port}", "OIDC_CLIENT_ID": "suanpan",
        "OIDC_CLIENT_SECRET": PROVIDER_SECRET,
    })  # fmt: skip
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": apps}}
    client = Client(raise_request_exception=False)
    pages = [client.get("/login/"), client.post("/account/oidc/oidc/login/?process=login")]
    said = printed() + "".join(page.content.decode() for page in pages)
    assert PROVIDER_SECRET not in said


def test_the_addresses_of_channels_and_of_the_mail_server_are_repeated_nowhere(
    printed: Callable[[], str], tmp_path: Path, settings: Any, closed_port: int
) -> None:
    settings.ALERT_MAIL_URL = f"mailto://user:{MAIL_PASSWORD}@127.0.0.1:{closed_port}?from=a@b.cn"
    ownership = [{**row, "valid_from": "2024-01-01"} for row in SET_UP["ownership"]]
    apply(tmp_path, ownership=ownership, price_versions=[LATEST], budgets=[{"team": "nlp", "amount": "1.00"}])
    now = timezone.now()
    start, end = (now - timedelta(hours=2)).isoformat(), now.isoformat()
    ingest_allocations(allocation_record(1, started_at=start, ended_at=end, observed_until=end), now=now)
    budget = Budget.objects.get()
    budget.channels.add(
        Channel.objects.create(name="hook", url=f"json://127.0.0.1:{closed_port}/{HOOK}"),
        Channel.objects.create(name="mail", mail="mei@example.cn"),
    )
    budgets_evaluate(now=now)
    alerts_deliver(now=now)
    errors = list(Delivery.objects.values_list("last_error", flat=True))
    boss = person("boss", "admin")
    client = signed_in(boss)
    pages = "".join(client.get(path).content.decode() for path in ("/budgets/", f"/budgets/{budget.pk}/", "/metrics"))
    said = printed() + " ".join(errors) + pages
    assert set(errors) == {"hook: did not take the message", "mail: did not take the message"}
    assert (MAIL_PASSWORD in said, HOOK in said) == (False, False)


@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("DATABASE_URL", "postgresql://suanpan:hidden-word@127.0.0.1:{port}/suanpan"),
        ("DATABASE_URL", "mysql://suanpan:hidden-word@127.0.0.1:{port}/suanpan"),
    ],
)
def test_a_command_that_cannot_reach_its_database_does_not_say_with_what_word(
    variable: str, address: str, closed_port: int, tmp_path: Path
) -> None:
    environment = {**os.environ, variable: address.format(port=closed_port), "SUANPAN_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "manage.py", "period_report", "2026-10"], capture_output=True, text=True, env=environment,
        cwd=django_settings.BASE_DIR, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "hidden-word" not in done.stdout + done.stderr
