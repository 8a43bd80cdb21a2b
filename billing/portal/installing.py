"""Ways to connect: the configuration of each gateway, scheduler and assistant, and the state of what reports."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.portal.sources import last_used_by
from billing.tenancy.models import ApiToken
from billing.usage.models import AgentWatermark

CHART = "docker/charts/suanpan-agent"
NAMESPACE = "suanpan"
SECRET = "suanpan-token"  # noqa: S105 -- the name of a Secret, as in the values of the chart


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands for a shell; they contain `token`, so that they are shown once, with the token."""

    endpoint: str
    name: str
    token: str
    image: str

    @property
    def cluster(self) -> str:
        """Return the commands that install the chart of the agents in the cluster `name`."""
        values = {"image.repository": self.image, "cluster": self.name, "endpoint": self.endpoint}
        given = " ".join(f"--set-string {shlex.quote(f'{key}={value}')}" for key, value in values.items())
        return (
            # the token goes through stdin: as an argument it would stand in the process list
            f"kubectl create namespace {NAMESPACE}\n"
            f"printf %s {shlex.quote(self.token)} |\n"
            f"    kubectl -n {NAMESPACE} create secret generic {SECRET} --from-file=token=/dev/stdin\n"
            f"helm install suanpan-agent {CHART} --namespace {NAMESPACE} \\\n"
            f"    {given}\n"
        )

    @property
    def gateway(self) -> str:
        """Return the commands that install the reader of the gateway's log as a systemd service, from a checkout."""
        given = {"SUANPAN_SOURCE": self.name, "SUANPAN_FORMAT": "envoy", "SUANPAN_LOG": "/var/log/gateway/access.log"}
        return self._service("token", "tokens.env", given, "suanpan-tokens.service")

    @property
    def slurm(self) -> str:
        """Return the commands that install the reporter of Slurm accounting on cluster `name`'s head node, from source."""
        given = {"SUANPAN_CLUSTER": self.name, "SUANPAN_ACCELERATORS": "h800=NVIDIA-H800"}
        return self._service("slurm-token", "slurm.env", given, "suanpan-slurm.timer", "suanpan-slurm.service")

    @property
    def litellm(self) -> str:
        """Return the settings of LiteLLM's proxy with our callback, and with the hook that asks the budget."""
        return (
            "# config.yaml of the proxy, which finds the folder metering of a checkout on its PYTHONPATH\n"
            "litellm_settings:\n"
            '  callbacks: ["metering.gateways.litellm_callback.reporter"]\n'
            "\n"
            "# environment of the proxy\n"
            f"SUANPAN_ENDPOINT={self.endpoint}\n"
            f"SUANPAN_TOKEN={self.token}\n"
            f"SUANPAN_SOURCE={self.name}\n"
            "SUANPAN_OUTBOX=/var/lib/suanpan/outbox\n"
        )

    @property
    def litellm_http(self) -> str:
        """Return the settings of LiteLLM's own generic_api callback."""
        return (
            "# config.yaml of the proxy\n"
            'litellm_settings: {callbacks: ["generic_api"]}\n'
            "\n"
            "# environment of the proxy\n"
            f"GENERIC_LOGGER_ENDPOINT={self.endpoint}/api/v1/usage/litellm\n"
            f'GENERIC_LOGGER_HEADERS="Authorization=Bearer {self.token}"\n'
        )

    @property
    def kong(self) -> str:
        """Return the plugin http-log of Kong, which posts the log of its AI plugins."""
        return (
            "plugins:                       # beside ai-proxy with logging.log_statistics: true\n"
            "  - name: http-log\n"
            "    config:\n"
            f"      http_endpoint: {self.endpoint}/api/v1/usage/kong\n"
            f'      headers: {{Authorization: "Bearer {self.token}"}}\n'
            "      queue: {max_batch_size: 200, max_coalescing_delay: 2, max_entries: 100000, max_retry_time: 86400}\n"
        )

    @property
    def apisix(self) -> str:
        """Return the plugin http-logger of APISIX, which posts the log of ai-proxy."""
        return (
            "plugins:                       # beside ai-proxy with logging.summaries: true\n"
            "  request-id: {}\n"
            "  http-logger:\n"
            f"    uri: {self.endpoint}/api/v1/usage/apisix\n"
            f"    auth_header: Bearer {self.token}\n"
            "    ssl_verify: true\n"
            "    batch_max_size: 200\n"
            "    max_retry_count: 1000\n"
            "    retry_delay: 60\n"
        )

    @property
    def otel(self) -> str:
        """Return the environment of a program with an OpenTelemetry SDK."""
        return (
            f"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT={self.endpoint}/v1/traces\n"
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf\n"
            f'OTEL_EXPORTER_OTLP_TRACES_HEADERS="Authorization=Bearer%20{self.token}"\n'
            "OTEL_TRACES_SAMPLER=always_on\n"
            "OTEL_RESOURCE_ATTRIBUTES=suanpan.consumer=team-key-1\n"
        )

    @property
    def program(self) -> str:
        """Return a report of one request, for a program of one's own."""
        record = {
            "id": "req-1", "time": timezone.now().isoformat(timespec="seconds"), "source": self.name,
            "consumer": "team-key-1", "model": "llama-3-8b", "input_tokens": 1000, "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0, "output_tokens": 100, "reasoning_output_tokens": 0,
        }  # fmt: skip
        return (
            f"curl -H 'Authorization: Bearer {self.token}' -H 'Content-Type: application/json' \\\n"
            f"    {shlex.quote(f'{self.endpoint}/api/v1/usage/tokens')} -d '\n"
            f"[{json.dumps(record)}]'\n"
        )

    @property
    def budget(self) -> str:
        """Return the question of nginx about the budget of each request."""
        return (
            "location = /budget {           # auth_request /budget; in the location of the models\n"
            "    internal;\n"
            f"    proxy_pass {self.endpoint}/api/v1/budgets/authorize?deny=403;\n"
            "    proxy_pass_request_body off;\n"
            "    proxy_pass_request_headers off;\n"
            '    proxy_set_header Content-Length "";\n'
            f'    proxy_set_header X-Suanpan-Authorization "Bearer {self.token}";\n'
            f"    proxy_set_header X-Suanpan-Source {self.name};\n"
            "    proxy_set_header X-Suanpan-Consumer $consumer;\n"
            "    proxy_set_header X-Suanpan-Id $request_id;\n"
            "}\n"
        )

    @property
    def assistant(self) -> str:
        """Return the entry of an assistant that speaks the Model Context Protocol."""
        headers = {"Authorization": f"Bearer {self.token}"}
        server = {"type": "http", "url": f"{self.endpoint}/mcp", "headers": headers}
        return json.dumps({"mcpServers": {"suanpan": server}}, indent=2) + "\n"

    @property
    def prometheus(self) -> str:
        """Return the scrape of costs and budgets."""
        scheme, _separator, host = self.endpoint.partition("://")
        return (
            "scrape_configs:\n"
            "  - job_name: suanpan-costs\n"
            "    scrape_interval: 5m\n"
            "    scrape_timeout: 30s\n"
            f"    scheme: {scheme}\n"
            "    metrics_path: /api/v1/metrics\n"
            f"    authorization: {{credentials: {self.token}}}\n"
            f'    static_configs: [{{targets: ["{host}"]}}]\n'
        )

    def _service(self, token: str, environment: str, given: dict[str, str], *units: str) -> str:
        """Return the commands that install a systemd unit, the first of `units`, with the files that it reads."""
        settings = {"SUANPAN_ENDPOINT": self.endpoint, **given}
        lines = "".join(f" \\\n    {shlex.quote(f'{key}={value}')}" for key, value in settings.items())
        files = " ".join(f"docker/systemd/{unit}" for unit in units)
        return (
            "sudo python3 -m venv /opt/suanpan\n"
            "sudo /opt/suanpan/bin/pip install msgspec httpx pyyaml\n"
            "sudo cp -r metering /opt/suanpan/\n"
            "sudo install -d -m 0700 /etc/suanpan\n"
            f"printf %s {shlex.quote(self.token)} | sudo install -m 0600 /dev/stdin /etc/suanpan/{token}\n"
            f"printf '%s\\n'{lines} |\n"
            f"    sudo install -m 0600 /dev/stdin /etc/suanpan/{environment}\n"
            f"sudo cp {files} /etc/systemd/system/\n"
            f"sudo systemctl enable --now {units[0]}\n"
        )


class Way(NamedTuple):
    """Way to connect: its name, the scopes of its token, and what is kept of what it sends.

    `reads`: its token reads by the rights of its owner, and reports nothing.
    """

    label: Any
    kept: Any
    scopes: tuple[str, ...] = ("usage:write",)

    @property
    def reads(self) -> bool:
        return self.scopes != ("usage:write",)


_CALLS: Final = _("Time, consumer, model and token counts of each call; no prompt, no answer, no key of a client.")
_READS: Final = _("Nothing is sent: it reads by your rights.")
GROUPS: Final[Mapping[Any, Mapping[str, Way]]] = {
    _("Schedulers"): {
        "cluster": Way(
            _("Cluster of Kubernetes"),
            _("Pods and jobs with devices: namespace, workload, queue, node and times; no logs, no variables."),
        ),
        "slurm": Way(
            _("Slurm, on its head node"),
            _("Jobs with devices: account, partition, nodes and times, as sacct lists them; no scripts."),
        ),
    },
    _("Gateways and programs"): {
        "litellm": Way(_("LiteLLM: our callback"), _CALLS),
        "litellm_http": Way(_("LiteLLM: its generic_api callback"), _CALLS),
        "kong": Way(_("Kong: http-log"), _CALLS),
        "apisix": Way(_("APISIX: http-logger"), _CALLS),
        "gateway": Way(_("Gateway on a host"), _CALLS),
        "otel": Way(_("OpenTelemetry"), _CALLS),
        "program": Way(_("A program of your own"), _CALLS),
        "budget": Way(_("nginx: stop at the budget"), _("Nothing: each request only asks."), ("budgets:read",)),
    },
    _("Assistants and dashboards"): {
        "assistant": Way(
            _("Assistant (MCP)"), _READS, ("invoices:read", "budgets:read", "usage:read", "prices:read")
        ),
        "prometheus": Way(_("Prometheus and Grafana"), _READS, ("invoices:read", "budgets:read")),
    },
}
WAYS: Final[Mapping[str, Way]] = {name: way for ways in GROUPS.values() for name, way in ways.items()}


def last_record(token: ApiToken) -> datetime | None:
    """Return the end of the last hour with usage of a token's source within the last month; None if there is none."""
    return last_used_by(timezone.now()).get(token.source)


def reported_through(token: ApiToken) -> object:
    """Return the watermark of a token's source, if reported since the token was made; else None."""
    heard = AgentWatermark.objects.filter(cluster=token.source, reported_at__gte=token.created_at)
    return heard.aggregate(through=Max("watermark"))["through"]
