"""PURE: extended resource behind the sanitised `resource` label of kube-state-metrics."""

import re
from functools import cache
from itertools import product
from typing import Final

from metering.accelerator_resources import ROWS, Kind
from metering.accelerators import is_extended, resource_row

SEPARATORS: Final = ("-", ".", "_")
MOST_SEPARATORS: Final = 6
DOMAINS: Final = tuple(sorted({
    row.pattern.partition("/")[0].replace("\\", "") for row in ROWS if re.fullmatch(r"[a-z0-9.\\-]+/.*", row.pattern)
}, key=len, reverse=True))  # fmt: skip


def sanitised(resource: str) -> str:
    """Return the label value that kube-state-metrics makes of a resource name.

    >>> sanitised("nvidia.com/mig-1g.10gb")
    'nvidia_com_mig_1g_10gb'
    """
    return re.sub(r"[^a-zA-Z0-9_]", "_", resource)


@cache
def resource_of(label: str) -> str | None:
    """Return the accelerator resource behind a sanitised name, or None if the table knows none that is written so.

    Sanitising loses where "-", "." and "_" were, so the table decides.

    >>> resource_of("nvidia_com_gpu"), resource_of("nvidia_com_mig_1g_10gb"), resource_of("cpu")
    ('nvidia.com/gpu', 'nvidia.com/mig-1g.10gb', None)
    """
    for domain in DOMAINS:
        prefix = f"{sanitised(domain)}_"
        if label.startswith(prefix):
            parts = label.removeprefix(prefix).split("_")
            # Tries 3 ** (parts - 1) names; the bound on separators keeps a hostile label from costing hours.
            separators = SEPARATORS if len(parts) <= MOST_SEPARATORS + 1 else SEPARATORS[:1]
            for marks in product(separators, repeat=len(parts) - 1):
                rest = "".join(f"{part}{mark}" for part, mark in zip(parts, (*marks, ""), strict=True))
                name = f"{domain}/{rest}"
                if is_extended(name) and resource_row(name).kind is not Kind.UNKNOWN:
                    return name
    return None
