"""What tests report and set up: short ways to make the contract's records and the facts around them."""

import json
import secrets
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from billing.setup.apply import Applied, set_up_apply
from billing.tenancy.actors import Actor, Channel, Strength
from billing.tenancy.models import ApiToken, Membership, Team
from billing.tenancy.tokens import api_token_create
from billing.usage.models import AgentWatermark
from billing.usage.services import (
    IngestOutcome,
    Reporter,
    allocations_ingest,
    capacity_ingest,
    efficiency_ingest,
    tokens_ingest,
    watch_notes_add,
)
from metering.intervals import Interval
from metering.records import EfficiencySample, GpuAllocation, NodeCapacity, TokenUsage, decode_batch

SHANGHAI_OCTOBER = (datetime(2026, 9, 30, 16, tzinfo=UTC), datetime(2026, 10, 31, 16, tzinfo=UTC))
AFTER = datetime(2026, 11, 3, tzinfo=UTC)

SET_UP: dict[str, Any] = {
    "billing": {"currency": "CNY", "zone": "Asia/Shanghai", "issuer": "AI-INFRA", "review": "none"},
    "teams": [
        {"code": "nlp", "name": "NLP Research", "cost_center": "CC-210"},
        {"code": "cv", "name": "Vision", "cost_center": "CC-220"},
    ],
    "ownership": [
        {"cluster": "hq-1", "namespace": "nlp-*", "team": "nlp", "valid_from": "2026-01-01"},
        {"cluster": "hq-1", "namespace": "cv", "team": "cv", "valid_from": "2026-01-01"},
    ],
    "consumers": [{"source": "litellm-hq", "consumer": "nlp-key-1", "team": "nlp", "valid_from": "2026-01-01"}],
    "platform": [{"cluster": "hq-1", "namespace": "serving", "team": "platform"}],
    "price_versions": [
        {
            "name": "2026-10",
            "valid_from": "2026-10-01T00:00:00+08:00",
            "gpu": [
                {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.0000"},
                {"resource": "nvidia.com/mig-1g.10gb", "price_per_slice_hour": "1.7143"},
            ],
            "tokens": [
                {"model": "llama-3-8b", "input": "2.0000", "cache_read": "0.2000", "cache_creation": "2.0000",
                 "output": "8.0000"}
            ],
        }
    ],
}  # fmt: skip


def apply(directory: Path, *, watched: bool = True, **changed: Any) -> Applied:
    """Apply SET_UP with some sections replaced (None removes one).

    `watched`: somebody has reported of each of its clusters, so that a month without devices in use is one.
    """
    sections = {key: value for key, value in {**SET_UP, **changed}.items() if value is not None}
    path = directory / "set-up.yaml"
    path.write_text(yaml.safe_dump(sections, sort_keys=False))
    applied = set_up_apply(path=path, actor="tests")
    ruled = {row["cluster"] for name in ("ownership", "platform") for row in sections.get(name, ())}
    for cluster in sorted(ruled) if watched else ():
        cluster_reported(cluster)
    return applied


def cluster_reported(cluster: str) -> None:
    """The first microsecond of every month of four years, in Shanghai, is filled with nothing: so it is not silent."""
    instants = [
        datetime(year, month, 1, tzinfo=UTC) - timedelta(hours=8) for year in range(2024, 2028) for month in range(1, 13)
    ]
    moments = [Interval(instant, instant + timedelta(microseconds=1)) for instant in instants]
    watch_notes_add(agent="tests", cluster=cluster, kind="filled", stretches=moments)


def token_record(number: int = 1, **changed: Any) -> dict[str, Any]:
    """A valid TokenUsage as JSON values."""
    return {
        "id": f"req-{number}", "source": "litellm-hq", "time": "2026-10-15T12:00:00+08:00", "consumer": "nlp-key-1",
        "model": "llama-3-8b", "input_tokens": 1000, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 0,
        "output_tokens": 100, "reasoning_output_tokens": 40, **changed,
    }  # fmt: skip


def uuid7(at: str, number: int) -> str:
    """A UUID of version 7 (RFC 9562) of an instant."""
    return str(UUID(int=int(datetime.fromisoformat(at).timestamp() * 1000) << 80 | 0x7 << 76 | 0x2 << 62 | number))


def allocation_record(number: int = 1, **changed: Any) -> dict[str, Any]:
    """A valid, ended GpuAllocation of 8 GPUs for 2 h 37 min 13 s (20.962222... GPU-hours) as JSON values."""
    return {
        "allocation_id": f"alloc-{number}", "cluster": "hq-1", "namespace": "nlp-train", "pod": f"train-{number}",
        "pod_uid": f"uid-{number}", "resource": "nvidia.com/gpu", "quantity": 8, "device_fraction": "1",
        "accelerator": "NVIDIA-H800", "node": "node-1", "started_at": "2026-10-10T00:00:00Z",
        "ended_at": "2026-10-10T02:37:13Z", "observed_until": "2026-10-10T02:37:13Z", "end_reason": "completed",
        **changed,
    }  # fmt: skip


def ingest_tokens(*records: dict[str, Any], reporter: Reporter | None = None, now: datetime = AFTER) -> IngestOutcome:
    """Report through the service as the door does."""
    raws = [json.dumps(record).encode() for record in records]
    batch: Any = decode_batch(TokenUsage, raws)
    return tokens_ingest(
        records=[(index, record, raws[index]) for index, record in batch.records], rejected=batch.rejected,
        reporter=reporter or Reporter("tests", "usage/tokens"), now=now,
    )  # fmt: skip


def ingest_allocations(
    *records: dict[str, Any], reporter: Reporter | None = None, now: datetime = AFTER, from_file: bool = False
) -> IngestOutcome:
    """Report through the service as the door does."""
    raws = [json.dumps(record).encode() for record in records]
    batch: Any = decode_batch(GpuAllocation, raws)
    return allocations_ingest(
        records=[(index, record, raws[index]) for index, record in batch.records], rejected=batch.rejected,
        reporter=reporter or Reporter("tests", "usage/gpu-allocations"), now=now, from_file=from_file,
    )  # fmt: skip


def watched(until: datetime, cluster: str = "hq-1", agent: str = "gpu-agent") -> None:
    """An agent has reported all that it saw of a cluster before then."""
    AgentWatermark.objects.update_or_create(agent=agent, cluster=cluster, defaults={"watermark": until})


def ingest_capacity(**fields: Any) -> IngestOutcome:
    """Report what a node offered, through the service as the door does."""
    raw = json.dumps(fields).encode()
    batch: Any = decode_batch(NodeCapacity, [raw])
    return capacity_ingest(
        records=batch.records and [(0, batch.records[0][1], raw)], rejected=batch.rejected,
        reporter=Reporter("tests", "usage/capacity"), now=AFTER,
    )  # fmt: skip


def known_accelerators(*names: str) -> None:
    """Report a device of each that a cluster had for a day of September, so that rules may name them."""
    for name in names:
        day = {"from": "2026-09-01T00:00:00Z", "until": "2026-09-02T00:00:00Z"}
        ingest_capacity(cluster="hq-1", node=name, accelerator=name, resource="nvidia.com/gpu", quantity=1, **day)


def ingest_sample(**fields: Any) -> IngestOutcome:
    """Report what was measured of a job, in bf16 and all of the time where nothing else is said, as the door does."""
    raw = json.dumps({"cluster": "hq-1", "dtype": "bf16", "coverage": "1", **fields}).encode()
    batch: Any = decode_batch(EfficiencySample, [raw])
    return efficiency_ingest(
        records=batch.records and [(0, batch.records[0][1], raw)], rejected=batch.rejected,
        reporter=Reporter("tests", "usage/efficiency"), now=AFTER,
    )  # fmt: skip


def person(name: str, *roles: str, team: str | None = None, password: str | None = None) -> User:
    """Somebody who holds the roles, for one team (or group) or for all."""
    user = User.objects.create_user(name, password=password)
    for role in roles:
        Membership.objects.create(user=user, role=role, team=Team.objects.get(code=team) if team else None)
    return user


def approves(monkeypatch: pytest.MonkeyPatch, name: str, *roles: str) -> str:
    """The account at the keyboard of a command that approves: made if it is not there, its token in SUANPAN_TOKEN."""
    user = User.objects.filter(username=name).first() or person(name, *roles)
    monkeypatch.setenv("SUANPAN_TOKEN", own_token(user, f"{name}-{secrets.token_hex(4)}", "usage:read")[1])
    return name


def own_token(user: User, name: str, *scopes: str, **facts: Any) -> tuple[ApiToken, str]:
    """A token that somebody made on the portal, signed in with their password."""
    actor = Actor(user.username, Channel.PORTAL, account=user, strength=Strength.PASSWORD)
    return api_token_create(name=name, scopes=list(scopes), actor=actor, owner=user, **facts)


def operates(monkeypatch: pytest.MonkeyPatch, name: str, *roles: str) -> str:
    """The account in whose name commands run from now on: made if it is not there."""
    if not User.objects.filter(username=name).exists():
        person(name, *roles)
    monkeypatch.setenv("SUANPAN_OPERATOR", name)
    return name


def signed_in(who: User | str, language: str = "en") -> Client:
    """A browser in which somebody is signed in."""
    client = Client(headers={"accept-language": language})
    client.force_login(who if isinstance(who, User) else User.objects.get(username=who))
    return client


def staff(name: str, *roles: str) -> Client:
    """A browser of somebody with these roles who may open the administration."""
    made = person(name, *roles)
    made.is_staff = True
    made.save()
    return signed_in(made)


def hours(count: int | float) -> timedelta:
    """So many hours."""
    return timedelta(hours=count)


def money(text: str) -> Decimal:
    """An amount."""
    return Decimal(text)


def now() -> datetime:
    """The clock."""
    return timezone.now()
