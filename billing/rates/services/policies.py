"""Publishing the policies: efficiency, who pays for interrupted holds, what of idle and shared cost is billed."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from billing.rates.models import AllocationPolicy, EfficiencyPolicy, InterruptionPolicy
from billing.rates.services.succession import policy_publish


def efficiency_policy_publish(*, fields: dict[str, Any], actor: str) -> bool:
    """Publish bands of HFU and MFU; False where they are published already.  Raises RateError."""
    detail = {name: value if isinstance(value, bool | int | list) else str(value) for name, value in fields.items()}
    return policy_publish(model=EfficiencyPolicy, fields=fields, detail=detail, actor=actor)


def interruption_policy_publish(
    *, name: str, valid_from: datetime, rules: Mapping[str, Mapping[str, str]], actor: str
) -> bool:
    """Publish who pays for holds that ended by interruption; False where it is published already.  Raises RateError."""
    fields = {"name": name, "valid_from": valid_from, "rules": dict(rules)}
    detail = {"valid_from": valid_from.isoformat(), "rules": dict(rules)}
    return policy_publish(model=InterruptionPolicy, fields=fields, detail=detail, actor=actor)


def allocation_policy_publish(*, name: str, valid_from: datetime, rules: Mapping[str, Any], actor: str) -> bool:
    """Publish what of idle and shared cost is billed; False where it is published already.  Raises RateError."""
    fields = {"name": name, "valid_from": valid_from, "rules": dict(rules)}
    detail = {"valid_from": valid_from.isoformat(), "rules": dict(rules)}
    return policy_publish(model=AllocationPolicy, fields=fields, detail=detail, actor=actor)
