"""All writes of rating: the charges of a close, and changes of facts of closed time."""

from billing.rating.services.changes import ChangeError, change_checked, change_known
from billing.rating.services.charges import (
    capacity_freeze,
    charges_write,
    idle_shares_write,
    pool_times_write,
)

__all__ = [
    "ChangeError",
    "capacity_freeze",
    "change_checked",
    "change_known",
    "charges_write",
    "idle_shares_write",
    "pool_times_write",
]
