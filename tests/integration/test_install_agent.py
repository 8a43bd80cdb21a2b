"""The page Connect: its commands are those that Helm and systemd take, and it says when a report has come."""

import html
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from django.test import Client
from django.utils import timezone

from billing.portal.installing import WAYS
from billing.tenancy.models import ApiToken, AuditEntry
from billing.usage.models import AgentWatermark
from billing.usage.services import rollups_fold
from metering.__main__ import parser
from tests import factories
from tests.charts import PROJECT, helm, named

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
UNITS = PROJECT / "docker/systemd"


@pytest.fixture(scope="module")
def set_up(for_all_tests: Path) -> None:
    factories.apply(for_all_tests)
    factories.person("ada", "admin")


@pytest.fixture
def ada(set_up: None, db: None) -> Client:
    return factories.signed_in("ada")


def command(client: Client, **fields: str) -> str:
    """The commands of the page, as somebody copies them."""
    sent = {"kind": "cluster", "name": "hq-9", "image": "registry.example.com/suanpan-agent", "days": "90", **fields}
    page = client.post("/sources/install/token/", sent)
    assert page.status_code == 200, page.content.decode()
    (text,) = re.findall(r'(?s)<pre class="command"[^>]*>(.*?)</pre>', page.content.decode())
    return html.unescape(text)


def test_the_command_of_the_page_renders_with_its_cluster_address_and_secret(ada: Client, settings: object) -> None:
    settings.PORTAL_URL = "https://billing.example.com/"  # type: ignore[attr-defined]
    text = command(ada)
    token = ApiToken.objects.get(source="hq-9")
    assert token.scopes == ["usage:write"]
    assert token.prefix in text
    assert AuditEntry.objects.get(action="api_token_create").actor == "ada"
    assert "create secret generic suanpan-token --from-file=token=/dev/stdin" in text
    (install,) = re.findall(r"(?m)^helm install (.*(?:\n.*)*)", text)
    done = helm("template", *shlex.split(install.replace("\\\n", " ")))
    assert (done.returncode, done.stderr) == (0, "")
    pods = named([item for item in yaml.safe_load_all(done.stdout) if item], "StatefulSet", "gpu-agent")["spec"]["template"]
    (container,) = pods["spec"]["containers"]
    assert container["image"] == "registry.example.com/suanpan-agent:1.0.0"
    assert {"--cluster=hq-9", "--endpoint=https://billing.example.com"} <= set(container["args"])
    (mounted,) = [volume for volume in pods["spec"]["volumes"] if volume["name"] == "token"]
    assert mounted["secret"] == {"secretName": "suanpan-token", "items": [{"key": "token", "path": "token"}]}


def test_the_page_says_when_the_first_report_has_come(ada: Client) -> None:
    now = timezone.now()
    AgentWatermark.objects.create(cluster="hq-9", agent="old", reported_at=now, watermark=now)
    command(ada)
    token = ApiToken.objects.get(source="hq-9")
    address = f"/sources/install/?token={token.pk}"
    assert "Nothing has used this token yet." in ada.get(address).content.decode()
    ApiToken.objects.filter(pk=token.pk).update(last_used_at=timezone.now())
    assert "no heartbeat yet" in ada.get(address).content.decode()
    later = timezone.now()
    AgentWatermark.objects.create(cluster="hq-9", agent="gpu", reported_at=later, watermark=later)
    assert "Data through" in ada.get(address).content.decode()
    assert [ada.get(f"/sources/install/?token={pk}").status_code for pk in ("0", "x", "9" * 30)] == [404, 404, 404]


@pytest.mark.parametrize("name", ["a b", "x;reboot", "$(id)", "a,b", "-x", "名"])
def test_a_name_that_a_shell_or_helm_would_read_otherwise_makes_no_token(ada: Client, name: str) -> None:
    sent = {"kind": "cluster", "name": name, "image": "i", "days": "90"}
    assert ada.post("/sources/install/token/", sent).status_code == 409
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("kind", WAYS)
def test_each_way_shows_its_configuration_with_a_placeholder_and_then_with_the_token(
    ada: Client, settings: object, kind: str
) -> None:
    settings.PORTAL_URL = "https://billing.example.com/"  # type: ignore[attr-defined]
    page = ada.get(f"/sources/install/?kind={kind}").content.decode()
    (example,) = re.findall(r'(?s)<pre class="command"[^>]*>(.*?)</pre>', page)
    assert "TOKEN" in example
    assert "billing.example.com" in example
    assert str(WAYS[kind].kept) in html.unescape(page)
    text = command(ada, kind=kind, name="way-1")
    token = ApiToken.objects.get(name="way-1")
    assert token.prefix in text
    assert "TOKEN" not in re.sub(r"[A-Z_]+_TOKEN|SUANPAN_TOKEN", "", text)
    assert sorted(token.scopes) == sorted(WAYS[kind].scopes)
    owner = token.owner.get_username() if token.owner else None
    assert (token.source, owner) == (("", "ada") if WAYS[kind].reads else ("way-1", None))
    if kind in ("kong", "apisix", "prometheus"):
        assert yaml.safe_load(text)
    if kind == "assistant":
        assert json.loads(text)["mcpServers"]["suanpan"]["url"] == "https://billing.example.com/mcp"


def test_the_configuration_of_kong_reports_and_the_page_says_until_when(ada: Client) -> None:
    (plugin,) = yaml.safe_load(command(ada, kind="kong", name="kong-hq"))["plugins"]
    config = plugin["config"]
    entry = {
        "request": {"id": "k-1"}, "response": {"status": 200}, "started_at": int(timezone.now().timestamp() * 1000) - 60_000,
        "consumer": {"username": "nlp"}, "ai": {"proxy": {"meta": {"request_model": "m"}, "usage": {
            "prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35}}},
    }  # fmt: skip
    path = config["http_endpoint"].partition("testserver")[2]
    sent = Client().post(path, entry, content_type="application/json", headers=config["headers"])
    assert (sent.status_code, sent.json()["accepted"]) == (200, 1)
    rollups_fold()
    page = ada.get(f"/sources/install/?token={ApiToken.objects.get(source='kong-hq').pk}").content.decode()
    assert "Usage until" in page


@pytest.mark.parametrize(("kind", "name", "units", "agent", "options"), [
    ("gateway", "litellm-hq", ["suanpan-tokens.service"], "tokens", {"source": "litellm-hq", "follow": True}),
    ("slurm", "hpc-1", ["suanpan-slurm.timer", "suanpan-slurm.service"], "slurm",
     {"cluster": "hpc-1", "days": 7, "accelerators": {"h800": "NVIDIA-H800"}}),
])  # fmt: skip
def test_a_host_gets_a_service_that_systemd_takes(
    ada: Client, tmp_path: Path, kind: str, name: str, units: list[str], agent: str, options: dict[str, object]
) -> None:
    """What the page writes to the files is what the service reads, and makes a command line that the agent takes."""
    text = command(ada, kind=kind, name=name)
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    assert f"systemctl enable --now {units[0]}\n" in text
    (copied,) = re.findall(r"(?m)^sudo cp (.*) /etc/systemd/system/$", text)
    assert copied.split() == [f"docker/systemd/{unit}" for unit in units]
    unit = (UNITS / units[-1]).read_text(encoding="utf-8")
    written = set(re.findall(r"/dev/stdin (/etc/suanpan/\S+)", text))
    assert written == set(re.findall(r"(?m)^(?:EnvironmentFile=|LoadCredential=token:)(.*)$", unit))
    (settings,) = re.findall(r"(?s)printf '%s\\n' (.*?) \|", text)
    given = dict(word.split("=", 1) for word in shlex.split(settings.replace("\\\n", " ")))
    (start,) = re.findall(r"(?m)^ExecStart=(.*)$", unit)
    assert set(re.findall(r"\$\{(SUANPAN_\w+)\}", start)) == set(given)
    words = re.sub(r"\$\{(SUANPAN_\w+)\}", lambda match: given[match[1]], start).split()
    assert words[:4] == ["/opt/suanpan/bin/python", "-m", "metering", agent]
    read = vars(parser([agent]).parse_args(words[3:]))
    assert {key: read[key] for key in options} == options
    assert read["endpoint"] == given["SUANPAN_ENDPOINT"]
    copies = []  # the programs are not installed on the machine of the test
    for one in units:
        copies.append(tmp_path / one)
        plain = (UNITS / one).read_text(encoding="utf-8").replace("/opt/suanpan/bin/python", "/bin/true")
        copies[-1].write_text(plain, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *map(str, copies)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
