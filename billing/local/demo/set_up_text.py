"""Set-up file of the demonstration, as text that a user may read and edit."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import yaml

from billing.local.demo.company import (
    BUDGETS_NOW,
    CARBON,
    COST_SHEETS,
    EDGES,
    GATEWAYS,
    GROUPS,
    H800_FROM_16TH,
    HQ,
    LAB,
    LAB_NAMESPACE,
    LAB_OWNER,
    MIG_RESOURCE,
    MOVES_FROM,
    MOVES_TO,
    MOVING_NAMESPACE,
    ORPHAN_NAMESPACE,
    ORPHAN_OWNER,
    TEAMS,
)
from metering.intervals import next_month

TOKEN_PRICES = [
    {"model": "qwen3-32b", "input": "2.4000", "cache_read": "0.4800", "cache_creation": "2.4000", "output": "9.6000"},
    {"model": "llama-3-8b", "input": "0.8000", "cache_read": "0.1600", "cache_creation": "0.8000", "output": "3.2000"},
    {"model": "deepseek-v3", "input": "4.0000", "cache_read": "0.8000", "cache_creation": "4.0000", "output": "16.0000"},
    {"model": "bge-m3", "input": "0.2000"},
]
EARLIER_TOKEN_PRICES = [
    {"model": "qwen3-32b", "input": "3.0000", "cache_read": "0.6000", "cache_creation": "3.0000", "output": "12.0000"},
    {"model": "llama-3-8b", "input": "1.0000", "cache_read": "0.2000", "cache_creation": "1.0000", "output": "4.0000"},
    {"model": "deepseek-v3", "input": "5.0000", "cache_read": "1.0000", "cache_creation": "5.0000", "output": "20.0000"},
    {"model": "bge-m3", "input": "0.2500"},
]
"""Prices a quarter dearer: the detailed month begins with a price cut."""
ZONE = "Asia/Shanghai"
ISSUER, EARLIER_ISSUER = "AI-INFRA", "AI-LAB"
"""Names of the department: it got a new one with the detailed month, whose invoices begin a series of their own."""


def set_up_text(month: str, earliest: str, issuer: str = ISSUER) -> str:
    """Return the declarations for the month "2026-10", for those before since `earliest` and for the running one."""
    first, running = date.fromisoformat(f"{month}-01"), date.fromisoformat(f"{next_month(month)}-01")
    sixteenth = first.replace(day=16)
    long_ago = (first - timedelta(days=270)).replace(day=1)
    sections: dict[str, Any] = {
        "billing": {"currency": "CNY", "zone": ZONE, "issuer": issuer, "review": "none"},
        "teams": _teams(),
        "ownership": _ownership(long_ago, first, sixteenth, running),
        "platform": [
            {"cluster": cluster, "namespace": "serving", "team": "platform", "valid_from": long_ago}
            for cluster in (HQ, *EDGES)
        ],
        "consumers": _consumers(long_ago),
        "cost_sheets": [
            *({"name": name, **fields} for name, fields in COST_SHEETS.items()),
            {"name": "h800-hq-winter", **COST_SHEETS["h800-hq"], **H800_FROM_16TH},
        ],
        "price_versions": [
            _version(earliest, date.fromisoformat(f"{earliest}-01"), "h800-hq", EARLIER_TOKEN_PRICES),
            _version(month, first, "h800-hq"),
            _version(f"{month}-16", sixteenth, "h800-hq-winter"),
        ],
        "carbon": [
            {"cluster": cluster, "valid_from": long_ago, "region": region, "year": 2023}
            for cluster, region in CARBON.items()
        ],
        "efficiency_policies": [
            {
                "name": "bands-v1", "valid_from": long_ago, "hfu_below": "0.20", "penalty": "0.20",
                "mfu_above": "0.50", "reward": "0.10", "min_minutes": 30, "min_coverage": "0.95",
            }
        ],
        "budgets": [
            {"team": team.code, "period": "month", "amount": team.budget, "thresholds": [50, 80, 100]}
            | ({"valid_until": running} if team.code in BUDGETS_NOW else {})
            for team in TEAMS
            if team.budget
        ],
    }  # fmt: skip
    return _dump(sections)


def orphan_text(month: str) -> str:
    """Return the solution of the month's exception: an owner for the namespace."""
    first = date.fromisoformat(f"{month}-01")
    owner = {"cluster": HQ, "namespace": ORPHAN_NAMESPACE, "team": ORPHAN_OWNER, "valid_from": first}
    return _dump({"ownership": [owner]})


def _teams() -> list[dict[str, object]]:
    teams: list[dict[str, object]] = [
        {"code": team.code, "name": team.name, "cost_center": team.cost_center,
         **({"parent": team.parent} if team.parent else {})}
        for team in TEAMS
    ]  # fmt: skip
    platform: dict[str, object] = {"code": "platform", "name": "AI Platform", "cost_center": "CC-900"}
    return [{"code": code, "name": name, "group": True} for code, name in GROUPS.items()] + teams + [platform]


def _ownership(long_ago: date, first: date, sixteenth: date, running: date) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"cluster": HQ, "namespace": namespace, "team": team.code, "valid_from": long_ago}
        for team in TEAMS
        for namespace in (*team.namespaces, f"nb-{team.code}")
    ]
    rows += [
        {"cluster": HQ, "namespace": MOVING_NAMESPACE, "team": MOVES_FROM, "valid_from": long_ago},
        {"cluster": HQ, "namespace": MOVING_NAMESPACE, "team": MOVES_TO, "valid_from": sixteenth},
        {"cluster": HQ, "namespace": ORPHAN_NAMESPACE, "team": ORPHAN_OWNER, "valid_from": long_ago, "valid_until": first},
        {"cluster": LAB.cluster, "namespace": LAB_NAMESPACE, "team": LAB_OWNER, "valid_from": running},
    ]
    return rows


def _consumers(long_ago: date) -> list[dict[str, object]]:
    return [
        {"source": gateway, "consumer": f"{team.code}-{app}", "team": team.code, "valid_from": long_ago}
        for gateway in GATEWAYS.values()
        for team in TEAMS
        if team.requests
        for app in ("app", "dev")
    ]


def _version(
    name: str, valid_from: date, h800: str, tokens: Sequence[dict[str, str]] = tuple(TOKEN_PRICES)
) -> dict[str, object]:
    return {
        "name": name,
        "valid_from": valid_from,
        "gpu": [
            {"accelerator": "NVIDIA-H800", "cost_sheet": h800},
            {"accelerator": "NVIDIA-A800", "cost_sheet": "a800-hq"},
            {"accelerator": "NVIDIA-L20", "cost_sheet": "l20-edge"},
            {"resource": MIG_RESOURCE, "price_per_slice_hour": "1.2500"},
        ],
        "tokens": [dict(price) for price in tokens],
    }


class _Plain(yaml.SafeDumper):
    """Dumper that repeats shared values instead of using aliases: the file is read as an example."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _dump(sections: dict[str, Any]) -> str:
    return yaml.dump(sections, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=160)
