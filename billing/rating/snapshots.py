"""Cached rating of a month: read back as the whole result, or by team as far as a page needs.

A snapshot is valid while the fingerprint of its inputs is the same (`input_fingerprint`). Decisions use only a valid one; a
page may show an older one with its date. A small month is rated faster than it is read back: only its size is stored.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final

import msgspec
from django.conf import settings

from billing.rating.allocation import Pool, PoolIdle
from billing.rating.assessment import DeviceTime, RatingResult, Unowned, rate_period
from billing.rating.efficiency import Verdict
from billing.rating.input_fingerprint import Facts, Names, fingerprint_now, input_fingerprint, names_of
from billing.rating.models import Charge as ChargeRow
from billing.rating.models import RatingSnapshot
from metering.intervals import Interval
from pricing.number_text import plain_text
from pricing.rating import Charge, LineKey, Unpriced


class TeamRating(msgspec.Struct, gc=False):
    """Charges of a team, and the verdicts on its jobs."""

    charges: list[Charge] = []
    verdicts: list[Verdict] = []


class SharedRating(msgspec.Struct, kw_only=True):
    """A `RatingResult` without its parts by team and its reference data."""

    unowned: list[Unowned]
    unpriced: list[Unpriced]
    platform_unpriced: list[Unpriced]
    device_time: dict[Pool, DeviceTime]
    team_time: dict[Pool, dict[str, Decimal]]
    pools: list[PoolIdle]
    tokens: dict[str, int]
    tokens_left: int
    faults: dict[str, str]
    tokens_held: int
    entangled: bool
    layouts: dict[str, bool] = {}


def _plain(value: Any) -> Any:
    # msgpack encodes neither fractions nor subclasses of str
    if isinstance(value, Fraction | str):
        return str(value)
    raise NotImplementedError(type(value))


def _typed(kind: type, value: Any) -> Any:
    return kind(value)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
_team: Final = msgspec.msgpack.Decoder(TeamRating, dec_hook=_typed)
_shared: Final = msgspec.msgpack.Decoder(SharedRating, dec_hook=_typed)


def large(size: int) -> bool:
    """Return True if a month of `size` lines and verdicts is too large to be rated for every view."""
    return size >= settings.CACHE_STATEMENTS_ABOVE_LINES


def size_of(rated: RatingResult) -> int:
    """Count the lines and verdicts of a month."""
    return len(rated.charges) + len(rated.verdicts)


def shared_bytes(rated: RatingResult) -> bytes:
    """Encode a result without charges and verdicts."""
    return _encoder.encode({name: getattr(rated, name) for name in SharedRating.__struct_fields__})


def by_team(rated: RatingResult) -> dict[str, TeamRating]:
    """Group the charges and verdicts of a rating by team."""
    found: dict[str, TeamRating] = defaultdict(TeamRating)
    for charge in rated.charges:
        found[charge.key.team].charges.append(charge)
    for verdict in rated.verdicts:
        found[verdict.team].verdicts.append(verdict)
    return found


def team_bytes(rating: TeamRating) -> bytes:
    return _encoder.encode(rating)


def snapshot_of(month: str, close_seq: int | None) -> RatingSnapshot | None:
    """Return the last rating of a large month for a close (None: of an open month); its report is not loaded."""
    kept = RatingSnapshot.objects.defer("report").filter(
        month=month, close_seq=close_seq, size__gte=settings.CACHE_STATEMENTS_ABOVE_LINES
    )
    return kept.first()


def team_ratings(snapshot: RatingSnapshot, teams: Iterable[str]) -> Mapping[str, TeamRating]:
    """Decode the ratings of some teams from a snapshot."""
    rows = snapshot.teams.filter(team__in=list(teams)).order_by("team").values_list("team", "rated")
    return {team: _team.decode(rated) for team, rated in rows.iterator()}


def result_of(snapshot: RatingSnapshot, verdicts: Iterable[Verdict] = ()) -> RatingResult:
    """Decode the shared part of a result, without charges, with the given verdicts."""
    shared = _shared.decode(snapshot.result)
    return RatingResult(verdicts=list(verdicts), **{name: getattr(shared, name) for name in shared.__struct_fields__})


def content_sha256(fingerprint: str, result: bytes, teams: Iterable[tuple[str, bytes]]) -> str:
    """Return the SHA-256 of a whole result, which detects a snapshot that was replaced during the read, or altered."""
    digest = sha256(fingerprint.encode() + result)
    for team, rated in teams:
        digest.update(team.encode() + rated)
    return digest.hexdigest()


def valid_result(month: str, fingerprint: Callable[[], str]) -> RatingResult | None:
    """Return the cached result of an open month if it was rated from just these inputs, else None.

    fingerprint: called only if a result is cached.
    """
    snapshot = snapshot_of(month, None)
    if snapshot is None or snapshot.input_fingerprint != fingerprint():
        return None
    teams = sorted((team, bytes(rated)) for team, rated in snapshot.teams.values_list("team", "rated"))
    # no lock is held: the rows of teams may be of a newer snapshot
    if content_sha256(snapshot.input_fingerprint, bytes(snapshot.result), teams) != snapshot.sha256:
        return None
    result = result_of(snapshot)
    for _, rated in teams:
        team = _team.decode(rated)
        result.charges += team.charges
        result.verdicts += team.verdicts
    result.charges.sort(key=attrgetter("key"))
    result.verdicts.sort(key=attrgetter("cluster", "namespace", "job", "policy", "team"))
    return result


def charges_differing(rated: RatingResult, close_seq: int) -> int:
    """Count the charges of a close that do not follow from a rating, or follow but are not stored."""
    rows = ChargeRow.objects.filter(close_seq=close_seq).values_list("line_key", "usage_quantity", "unit_price")
    return lines_differing({key: (quantity, price) for key, quantity, price in rows}, rated)


CHARGED: Final = (*LineKey.__struct_fields__, "line_key", "usage_quantity", "unit_price", "facility_kw")


def charge_faults(rated: RatingResult, close_seq: int) -> list[tuple[str, str]]:
    """Return the expected and the stored text of each charge of a close that differs from a rating, by line.

    Teams that cannot be rated are not compared.
    """
    if rated.entangled:
        return []
    again = {charge.key: (charge.usage_quantity, charge.unit_price, charge.facility_kw) for charge in rated.charges}
    stored = dict[LineKey, tuple[Decimal, Decimal, Decimal | None]]()
    for row in ChargeRow.objects.filter(close_seq=close_seq).values_list(*CHARGED).iterator():
        key = LineKey(*row[:-4])
        # a row whose key does not match its digest was altered: it must differ from any rating
        stored[key] = row[-3:] if key.digest() == row[-4] else (Decimal(0), Decimal(0), None)
    return [
        (f"charge {_charge_name(key)}: {_charge_text(again.get(key))}", _charge_text(stored.get(key)))
        for key in sorted(again.keys() | stored.keys())
        if again.get(key) != stored.get(key) and key.team not in rated.faults
    ]


def _charge_name(key: LineKey) -> str:
    parts = (key.team, key.kind, key.sku, key.token_class, key.cluster, key.namespace, key.consumer, key.charge_period)
    return " ".join(part for part in parts if part)


def _charge_text(facts: tuple[Decimal, Decimal, Decimal | None] | None) -> str:
    if facts is None:
        return "none"
    quantity, price, power = facts
    text = f"{plain_text(quantity)} at {plain_text(price)}"
    return text if power is None else f"{text}, {plain_text(power)} kW"


def lines_differing(stored: Mapping[str, tuple[Decimal, Decimal]], rated: RatingResult) -> int:
    """Count the differing lines of stored quantity and price by line; a line that is replaced counts once."""
    again = {charge.key.digest(): (charge.usage_quantity, charge.unit_price) for charge in rated.charges}
    return max(len(stored.items() - again.items()), len(again.items() - stored.items()))


@dataclass(frozen=True)
class ClosedMonth:
    """A closed month, and the current reference data from which its charges must follow."""

    month: str
    window: Interval
    zone: str
    close_seq: int
    facts: Facts

    def fingerprint(self, names: Names) -> str:
        """Return the fingerprint of the rating inputs and the stored charges."""
        return input_fingerprint(self.facts, window=self.window, zone=self.zone, close_seq=self.close_seq, names=names)

    @property
    def proved(self) -> bool:
        """Return True if the charges were proved from the inputs from which they would be rated now."""
        kept = RatingSnapshot.objects.filter(month=self.month, close_seq=self.close_seq).exclude(names=None)
        known = kept.values_list("input_fingerprint", "names").first()
        return known is not None and known[1] is not None and known[0] == self.fingerprint(known[1])

    def proof(self) -> dict[str, Any]:
        """Return the fields that a snapshot stores for a month whose charges have just been proved."""
        names = names_of(self.window, self.close_seq)
        return {"names": names, "input_fingerprint": self.fingerprint(names), "close_seq": self.close_seq}

    def keep_proof(self) -> None:
        """Store that the charges have just been proved, in the snapshot of the close or in place of an older one."""
        proof = self.proof()
        if not RatingSnapshot.objects.filter(month=self.month, close_seq=self.close_seq).update(**proof):
            # the cached result of another close is cleared: the proof is not about it
            nothing = {"as_of": None, "took_ms": None, "size": None, "result": b"", "beside": b"", "report_as_of": None}
            RatingSnapshot.objects.update_or_create(month=self.month, defaults=proof | nothing)


def rated_now(*, month: str, window: Interval, zone: str, close_seq: int | None) -> RatingResult:
    """Return the result of a month as known now, or as its close saw it; cached for an open month if valid."""
    if close_seq is None:
        valid = valid_result(month, partial(fingerprint_now, window=window, zone=zone))
        if valid is not None:
            return valid
    return rate_period(window=window, zone=zone, close_seq=close_seq)


def due(as_of: datetime | None, took_ms: int | None, now: datetime) -> bool:
    """Return True if a computation that took `took_ms` should be repeated: it may use a twentieth of one core at most.

    An `as_of` far in the future counts as due: a wrong clock made it.
    """
    return as_of is None or abs((now - as_of).total_seconds()) * 1000 >= max(60_000, 20 * (took_ms or 0))
