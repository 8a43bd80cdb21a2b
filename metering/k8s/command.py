"""Command `python -m metering gpu`: meters the accelerators of a Kubernetes cluster and reports to the platform."""

import argparse
import logging
import socket
import sqlite3
from pathlib import Path
from typing import Any, Final

from kubernetes.config import ConfigException

from metering.accelerator_resources import Kind
from metering.accelerators import is_extended, resource_row
from metering.command_line import (
    add_platform_options,
    add_resource_options,
    bad_input,
    log_to_stderr,
    stop_on_signal,
    token_of,
)
from metering.k8s.agent import Agent
from metering.k8s.api import Api, ClusterClock, configuration_of
from metering.k8s.description import Scope, SlurmPods
from metering.k8s.health import HealthServer
from metering.k8s.leader import Leader
from metering.k8s.service import Pace, Service
from metering.k8s.surroundings import OWNERS, Lookup

VERSION: Final = "2"
STATE_FILE: Final = "gpu.sqlite"
PACE: Final = Pace()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add_platform_options(parser, required=True)
    add("--cluster", required=True, help="name of the cluster, as ownership rules know it")
    add("--state", type=Path, required=True, metavar="DIR", help="folder on a volume that outlives the pod")
    add("--kubeconfig", metavar="FILE", help="else the service account of the agent's own pod")
    add("--context", help="context of the kubeconfig")
    add("--name", default="", help="name of this agent in reports (default: gpu-CLUSTER)")
    add("--site", help="where the cluster is")
    add("--namespace-label", action="append", default=[], metavar="KEY", help="pass on this label of namespaces")
    add("--pod-label", action="append", default=[], metavar="KEY", help="pass on this label of pods")
    add_resource_options(parser)
    add("--alias", action="append", default=[], metavar="NAME=RESOURCE", type=_alias,
        help="a plugin's own name for a resource of the table, such as nvidia.com/vgpu=nvidia.com/gpu")  # fmt: skip
    add("--slurm-pods", type=SlurmPods, choices=tuple(SlurmPods), metavar="{count,leave-out}",
        help="pods in which Slurm runs jobs (Slinky, Soperator) or which it placed: count them here, or leave them to "
             "`metering slurm`; while nobody says, they are counted and a problem")  # fmt: skip
    add("--owner", action="append", default=[], metavar="KIND=GROUP/VERSION/PLURAL", type=_owner,
        help="look up who owns controllers of this kind; the agent needs the right to get them")  # fmt: skip
    add("--claim-driver", action="append", default=[], metavar="NAME[=VENDOR]", type=_driver,
        help="count claimed devices (DRA) of this driver; NAME= says that they are no accelerators")  # fmt: skip
    add("--port", type=int, default=9101, help="of /healthz, /readyz and /metrics; 0 picks a free one, -1 none")
    add("--report-seconds", type=float, default=PACE.report_s, metavar="S", help="report what is new")
    add("--refresh-seconds", type=float, default=PACE.refresh_s, metavar="S", help="report how far open ones were seen")
    add("--scan-seconds", type=float, default=PACE.scan_s, metavar="S", help="compare with an independent list")
    add("--silence-seconds", type=float, default=90.0, metavar="S", help="a stream that is silent so long is dead")
    add("--spool-bytes", type=int, default=1 << 30, metavar="N", help="most that may wait to be delivered")
    add("--lease", metavar="NAMESPACE/NAME", help="speak only while holding this Lease (several agents)")


def run(options: argparse.Namespace) -> int:
    """Meter until SIGTERM; return 2 if the options or the configuration are wrong."""
    log_to_stderr(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        token_of(options.token_file)()
        configuration = configuration_of(options.kubeconfig, options.context)
        service = _service(options, configuration)
        server = HealthServer(service.health, options.port) if options.port >= 0 else None
    except (OSError, sqlite3.Error, ConfigException, argparse.ArgumentTypeError) as error:
        return bad_input(error)
    if server is not None:
        logging.getLogger(__name__).info("health and metrics on port %d", server.server_port)
    service.run(stop_on_signal())
    if server is not None:
        server.stop()
    return 0


def _service(options: argparse.Namespace, configuration: Any) -> Service:
    clock = ClusterClock()

    def make_api() -> Api:
        return Api(configuration, clock, silence_s=options.silence_seconds)

    scope = Scope(
        options.cluster, dict(options.resource), tuple(options.pod_label), dict(options.claim_driver), options.site,
        frozenset(options.no_accelerator), dict(options.alias), options.slurm_pods,
    )  # fmt: skip
    lookup = Lookup(make_api(), tuple(options.namespace_label), clock.now, {**OWNERS, **dict(options.owner)})

    def make_agent(connection: sqlite3.Connection) -> Agent:
        return Agent(
            connection, scope, name=options.name or f"gpu-{options.cluster}", version=VERSION, look_around=lookup,
            max_spool_bytes=options.spool_bytes,
        )  # fmt: skip

    return Service(
        state=options.state / STATE_FILE, make_agent=make_agent, make_api=make_api, endpoint=options.endpoint,
        token=token_of(options.token_file), leader=_leader(options.lease, make_api()),
        pace=Pace(options.report_seconds, options.refresh_seconds, options.scan_seconds),
    )  # fmt: skip


def _leader(lease: str | None, api: Api) -> Leader | None:
    if not lease:
        return None
    namespace, slash, name = lease.partition("/")
    if not (namespace and slash and name):
        raise argparse.ArgumentTypeError(f"--lease {lease!r} must be written NAMESPACE/NAME")
    return Leader(api, namespace=namespace, name=name, identity=socket.gethostname())


def _alias(text: str) -> tuple[str, str]:
    name, _, resource = text.partition("=")
    if not is_extended(name) or resource_row(resource).kind is Kind.UNKNOWN:
        raise argparse.ArgumentTypeError(f"{text!r} must be written DOMAIN/NAME=RESOURCE, with a resource of the table")
    return name, resource


def _owner(text: str) -> tuple[tuple[str, str], str]:
    kind, _, path = text.partition("=")
    parts = path.split("/")
    if not kind or len(parts) != 3 or not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} must be written KIND=GROUP/VERSION/PLURAL")
    return (kind, parts[0]), path


def _driver(text: str) -> tuple[str, str]:
    name, equals, vendor = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} must be written NAME, NAME=VENDOR or NAME=")
    return name, vendor if equals else "other"
