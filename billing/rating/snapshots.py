"""The last rating of a month, kept: read back as the very result, or by team as far as a page asks.

It is valid while the fingerprint of what it was rated from is the same (`input_fingerprint`). Whatever decides takes it only
then; a page may show an older one and says of when it is. A month that is small is rated faster than it is read: of it
only its size is kept.
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
    """What a team is charged, and the verdicts on its jobs."""

    charges: list[Charge] = []
    verdicts: list[Verdict] = []


class SharedRating(msgspec.Struct, kw_only=True):
    """A `RatingResult` but for what is by team, and what it was looked up in."""

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
    if isinstance(value, Fraction | str):
        return str(value)
    raise NotImplementedError(type(value))


def _typed(kind: type, value: Any) -> Any:
    return kind(value)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
_team: Final = msgspec.msgpack.Decoder(TeamRating, dec_hook=_typed)
_shared: Final = msgspec.msgpack.Decoder(SharedRating, dec_hook=_typed)


def large(size: int) -> bool:
    """Whether a month of so many lines and verdicts is too large to be rated with every view."""
    return size >= settings.CACHE_STATEMENTS_ABOVE_LINES


def size_of(rated: RatingResult) -> int:
    """How many lines and verdicts a month has."""
    return len(rated.charges) + len(rated.verdicts)


def shared_bytes(rated: RatingResult) -> bytes:
    """All of a result but charges and verdicts."""
    return _encoder.encode({name: getattr(rated, name) for name in SharedRating.__struct_fields__})


def by_team(rated: RatingResult) -> dict[str, TeamRating]:
    found: dict[str, TeamRating] = defaultdict(TeamRating)
    for charge in rated.charges:
        found[charge.key.team].charges.append(charge)
    for verdict in rated.verdicts:
        found[verdict.team].verdicts.append(verdict)
    return found


def team_bytes(rating: TeamRating) -> bytes:
    return _encoder.encode(rating)


def snapshot_of(month: str, close_seq: int | None) -> RatingSnapshot | None:
    """The last rating of a month, where it is large and of that close (None: of none); its report stays unread."""
    kept = RatingSnapshot.objects.defer("report").filter(
        month=month, close_seq=close_seq, size__gte=settings.CACHE_STATEMENTS_ABOVE_LINES
    )
    return kept.first()


def team_ratings(snapshot: RatingSnapshot, teams: Iterable[str]) -> Mapping[str, TeamRating]:
    rows = snapshot.teams.filter(team__in=list(teams)).order_by("team").values_list("team", "rated")
    return {team: _team.decode(rated) for team, rated in rows.iterator()}


def result_of(snapshot: RatingSnapshot, verdicts: Iterable[Verdict] = ()) -> RatingResult:
    """What was rated but for charges, with some of the verdicts."""
    shared = _shared.decode(snapshot.result)
    return RatingResult(verdicts=list(verdicts), **{name: getattr(shared, name) for name in shared.__struct_fields__})


def content_sha256(fingerprint: str, result: bytes, teams: Iterable[tuple[str, bytes]]) -> str:
    """Of a whole result: a snapshot that is read while another takes its place, or that somebody changed, has another."""
    digest = sha256(fingerprint.encode() + result)
    for team, rated in teams:
        digest.update(team.encode() + rated)
    return digest.hexdigest()


def valid_result(month: str, fingerprint: Callable[[], str]) -> RatingResult | None:
    """The whole result that is kept of an open month, where it was rated from just these inputs.

    fingerprint: called only where a result is kept.
    """
    snapshot = snapshot_of(month, None)
    if snapshot is None or snapshot.input_fingerprint != fingerprint():
        return None
    teams = sorted((team, bytes(rated)) for team, rated in snapshot.teams.values_list("team", "rated"))
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
    """How many charges of a close do not follow from a rating, or are not stored though they do."""
    rows = ChargeRow.objects.filter(close_seq=close_seq).values_list("line_key", "usage_quantity", "unit_price")
    return lines_differing({key: (quantity, price) for key, quantity, price in rows}, rated)


CHARGED: Final = (*LineKey.__struct_fields__, "line_key", "usage_quantity", "unit_price", "facility_kw")


def charge_faults(rated: RatingResult, close_seq: int) -> list[tuple[str, str]]:
    """What should be and what is, for each charge of a close that is not the one that a rating gives, by line.

    Of teams that cannot be rated nothing is asked.
    """
    if rated.entangled:
        return []
    again = {charge.key: (charge.usage_quantity, charge.unit_price, charge.facility_kw) for charge in rated.charges}
    stored = dict[LineKey, tuple[Decimal, Decimal, Decimal | None]]()
    for row in ChargeRow.objects.filter(close_seq=close_seq).values_list(*CHARGED).iterator():
        key = LineKey(*row[:-4])
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
    """The same of charges that are read already, quantity and price by line: one that is replaced counts once."""
    again = {charge.key.digest(): (charge.usage_quantity, charge.unit_price) for charge in rated.charges}
    return max(len(stored.items() - again.items()), len(again.items() - stored.items()))


@dataclass(frozen=True)
class ClosedMonth:
    """A closed month, and the reference data of now that its charges are to follow from."""

    month: str
    window: Interval
    zone: str
    close_seq: int
    facts: Facts

    def fingerprint(self, names: Names) -> str:
        """Of what it was rated from, and its charges."""
        return input_fingerprint(self.facts, window=self.window, zone=self.zone, close_seq=self.close_seq, names=names)

    @property
    def proved(self) -> bool:
        """Whether its charges followed from what they would be rated from now."""
        kept = RatingSnapshot.objects.filter(month=self.month, close_seq=self.close_seq).exclude(names=None)
        known = kept.values_list("input_fingerprint", "names").first()
        return known is not None and known[1] is not None and known[0] == self.fingerprint(known[1])

    def proof(self) -> dict[str, Any]:
        """What a snapshot keeps of a month whose charges have just followed."""
        names = names_of(self.window, self.close_seq)
        return {"names": names, "input_fingerprint": self.fingerprint(names), "close_seq": self.close_seq}

    def keep_proof(self) -> None:
        """Keep that its charges have just followed, beside the snapshot of its close or in place of an older one."""
        proof = self.proof()
        if not RatingSnapshot.objects.filter(month=self.month, close_seq=self.close_seq).update(**proof):
            nothing = {"as_of": None, "took_ms": None, "size": None, "result": b"", "beside": b"", "report_as_of": None}
            RatingSnapshot.objects.update_or_create(month=self.month, defaults=proof | nothing)


def rated_now(*, month: str, window: Interval, zone: str, close_seq: int | None) -> RatingResult:
    """What a month comes to as it is known now, or as its close saw it; read where a valid snapshot of it is kept."""
    if close_seq is None:
        valid = valid_result(month, partial(fingerprint_now, window=window, zone=zone))
        if valid is not None:
            return valid
    return rate_period(window=window, zone=zone, close_seq=close_seq)


def due(as_of: datetime | None, took_ms: int | None, now: datetime) -> bool:
    """Whether something that took so long should be made again: at most a twentieth of one core goes into it.

    Also what is of a time so far ahead: it was made by a clock that was wrong.
    """
    return as_of is None or abs((now - as_of).total_seconds()) * 1000 >= max(60_000, 20 * (took_ms or 0))
