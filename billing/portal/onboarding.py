"""The way from an empty installation to the first bill: what is there already, and how fresh it is."""

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from billing.portal.sources import SILENT
from billing.rates.models import PriceVersion
from billing.tenancy.models import ApiToken, BillingSetup, ConsumerOwnership, NamespaceOwnership, Team
from billing.usage.models import AgentWatermark


@dataclass(frozen=True, slots=True)
class Reporter:
    """Somebody who reports: a cluster's agent or a gateway; `seconds` since it was heard, None where never."""

    name: str
    seconds: int | None

    @property
    def silent(self) -> bool:
        return self.seconds is None or self.seconds > SILENT.total_seconds()


@dataclass(frozen=True, slots=True)
class Step:
    """One step by name: whether it is done, and what shows it."""

    name: str
    done: bool
    facts: list[str]
    reporters: list[Reporter]


def steps(now: datetime) -> list[Step]:
    """Every step in its order, looked at anew."""
    setup = BillingSetup.objects.first()
    codes = list(Team.objects.filter(is_group=False).values_list("code", flat=True)[:6])
    allocations, tokens = _used()
    clusters, gateways = _clusters(now), _gateways(now)
    version = PriceVersion.objects.filter(sealed=True).order_by("-valid_from").first()
    namespaces = NamespaceOwnership.objects.order_by("id").values_list("namespace", flat=True)
    consumers = ConsumerOwnership.objects.order_by("id").values_list("consumer", flat=True)
    owned = [*namespaces[:3], *consumers[:3]]
    return [
        Step("billing", setup is not None, [f"{setup.currency}, {setup.zone}, {setup.issuer}"] if setup else [], []),
        Step("teams", bool(codes), codes, []),
        Step("cluster", allocations, [], clusters),
        Step("gateway", tokens, [], gateways),
        Step("owners", bool(owned), owned, []),
        Step("price", version is not None, [version.name] if version else [], []),
    ]


def _used() -> tuple[bool, bool]:
    """Whether any device was held, and any token used."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM usage_gpuallocation), EXISTS (SELECT 1 FROM token_usage_hour)")
        allocations, tokens = cursor.fetchone()
    return bool(allocations), bool(tokens)


def _clusters(now: datetime) -> list[Reporter]:
    rows = AgentWatermark.objects.order_by("cluster", "agent").values_list("cluster", "reported_at")
    newest: dict[str, datetime] = {}
    for cluster, at in rows:
        newest[cluster] = max(at, newest.get(cluster, at))
    return [Reporter(cluster, _age(at, now)) for cluster, at in newest.items()]


def _gateways(now: datetime) -> list[Reporter]:
    """Gateways by the tokens that were made for one source; clusters' agents have a watermark and are left out."""
    clusters = set(AgentWatermark.objects.values_list("cluster", flat=True))
    rows = ApiToken.objects.filter(revoked_at=None, scopes__contains=["usage:write"]).exclude(source="")
    newest: dict[str, datetime | None] = {}
    for source, at in rows.exclude(source__in=clusters).order_by("source").values_list("source", "last_used_at"):
        known = newest.get(source)
        newest[source] = max((item for item in (at, known) if item is not None), default=None)
    return [Reporter(source, None if at is None else _age(at, now)) for source, at in newest.items()]


def _age(at: datetime, now: datetime) -> int:
    return max(0, int((now - at).total_seconds()))
