"""Whether a close is prepared that bills what closing the month now would bill.

A month of many teams takes seconds to rate, and by far most of what it bills is known long before somebody closes it. So the
scheduler prepares the close of a month that is over and that nothing holds: as a close that was taken back the moment it was
made (`ClosedWindow`), with its charges, and with drafts that are of no month yet. To close the month is then to adopt that.

It is adopted only where the close would come to the same if it were made now, asked for while no usage can come in:

- nothing was learned of the month, or of months closed before, since usage was cut off for it. What is learned carries its
  epoch, so that this is the question of what came late, asked of a close that is not one yet;
- no earlier piece of usage was changed (`epoch_spoil`), and pools offered what they offered;
- no close was made or taken back, and no row of what usage is rated by and documents are written from differs;
- it was made by the same programs.

Where one of these is not so, the month is closed as if nothing had been prepared. Nothing else reads what is prepared.
"""

import json
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from django.db import connection
from django.db.models import Model

from billing.invoicing.models import BillingMode, BillingPeriod, PreparedClose
from billing.rates.models import GpuPrice, InterruptionPolicy, TokenPrice
from billing.rating.allocation import capacity_of
from billing.rating.input_fingerprint import DATED
from billing.rating.models import RatingRule, RetroactiveChange
from billing.tenancy.models import BillingSetup, ConsumerOwnership, NamespaceOwnership, Team
from billing.usage.models import ClosedWindow
from billing.usage.selectors import last_ordinal, learned_since
from metering.intervals import Interval

FACTS: Final[tuple[type[Model], ...]] = (
    BillingSetup, Team, NamespaceOwnership, ConsumerOwnership, *DATED, GpuPrice, TokenPrice, InterruptionPolicy,
    RetroactiveChange, RatingRule, BillingMode,
)  # fmt: skip
"""Every table that rating and drafting read beside usage and what the closes before left."""
PROGRAMS: Final = ("metering", "pricing", "billing")
"""All of the product: a list of what a close reads would be wrong on the day on which a module moves."""
ROOT: Final = Path(__file__).resolve().parents[2]


def standing(period: BillingPeriod, *, locked: bool = False) -> PreparedClose | None:
    """The prepared close of an open month, where closing it now would bill the same. Certain while no usage comes in.

    locked: so that nobody removes it meanwhile, within a transaction.
    """
    known = PreparedClose.objects.select_for_update() if locked else PreparedClose.objects
    prepared = known.filter(period=period, ready=True).first()
    if prepared is None or prepared.ordinal is None or prepared.ordinal != last_ordinal():
        return None
    ordinal, window = prepared.ordinal, Interval(period.start, period.end)
    if not ClosedWindow.objects.filter(ordinal=ordinal, prepared=True, spoiled=False).exists():
        return None
    if prepared.made_of != made_of(ordinal) or capacity_of(window, ordinal) != capacity_of(window, None):
        return None
    return None if learned_since(ordinal, ends=InterruptionPolicy.objects.exists()) else prepared


def made_of(ordinal: int) -> str:
    """SHA-256 over every row of FACTS, the closes that stand before the `ordinal`-th, and the programs."""
    rows = " UNION ALL ".join(_rows(model._meta.db_table) for model in FACTS)
    with connection.cursor() as cursor:
        cursor.execute(rows)
        facts = [[str(value) for value in row] for row in cursor.fetchall()]
    before = ClosedWindow.objects.filter(ordinal__lt=ordinal, withdrawn_at=None).order_by("ordinal")
    closes = list(before.values_list("ordinal", "start", "end"))
    return sha256(json.dumps([facts, closes, programs()], default=str).encode()).hexdigest()


def _rows(table: str) -> str:
    return f"SELECT '{table}', count(*), coalesce(sum(hash_record_extended(t, 0)), 0) FROM {table} t"  # noqa: S608


@cache
def programs() -> str:
    """SHA-256 over the source of all that decides what a document says; of this process, asked for once."""
    digest = sha256()
    for file in sorted(_sources()):
        digest.update(f"{file.relative_to(ROOT)} {sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    for folder in PROGRAMS:
        yield from (ROOT / folder).rglob("*.py")
