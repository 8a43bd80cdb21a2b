"""Commands that install an agent, filled in for one cluster or gateway, and the check for its first report."""

import shlex
from dataclasses import dataclass

from django.db.models import Max

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


def reported_through(token: ApiToken) -> object:
    """Return the watermark of a token's source, if reported since the token was made; else None."""
    heard = AgentWatermark.objects.filter(cluster=token.source, reported_at__gte=token.created_at)
    return heard.aggregate(through=Max("watermark"))["through"]
