"""GPU allocations: the latest report of each, with revisions of what was known before and after each close.

`merge` is the whole rule of what a repeated report means; all other functions move rows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from django.db import connection, transaction
from psycopg.types.json import Jsonb

from billing.usage import models
from billing.usage.contents import ALLOCATION, content_sha256
from billing.usage.epochs import ingest_lock_shared
from billing.usage.models import ShareCorrection
from billing.usage.services.outcome import (
    IngestOutcome,
    Meaning,
    Refusal,
    Reporter,
    accepted_note,
    in_the_future,
    last_instant,
    latest_instant,
    may_not_report,
)
from billing.usage.services.quarantine import quarantine_add
from billing.usage.services.share_corrections import CHANGED, corrections_of, goes_on, parts_of
from billing.usage.services.tags import allocation_tags_filter, cluster_tag_rules
from billing.usage.services.unknown_shares import shares_resolve
from metering.allocation import INTERRUPTIONS, Rule
from metering.messages import Message
from metering.names import visible
from metering.raw_json import readable_members
from metering.records import GpuAllocation, Rejected, canonical_capacity_type, tags_agree

Indexed = tuple[int, GpuAllocation, bytes]
NOTED: Final = INTERRUPTIONS | {Rule.SHARE_CHANGED.value}
"""End reasons stored as AllocationInterruption: interruptions, and changes of share that end earlier pieces."""


@dataclass(frozen=True, slots=True)
class End:
    """End of an allocation. `estimated`: the instant was not reported; `reconstructed`: no agent watched it either."""

    at: datetime
    reason: str = ""
    rule: str = ""
    estimated: bool = False
    earliest: datetime | None = None
    latest: datetime | None = None
    reconstructed: bool = False

    @property
    def rank(self) -> tuple[Any, ...]:
        """Return the sort key by which the smaller of two ends wins: reported, then watched, then narrower, then earlier."""
        width = self.latest - self.earliest if self.latest and self.earliest else timedelta.max
        return self.estimated, self.reconstructed, width if self.estimated else timedelta(0), self.at, self.reason


@dataclass(frozen=True, slots=True)
class Known:
    """Stored state of an allocation.

    `frozen_until`: end of its time billed by closes in force. `kept_until`: end of its revisions of earlier epochs, of which
    the time after `frozen_until` is in a month still open. `facts`: the facts that the bill depends on, compared only if
    either side is `reconstructed`; `learned`: the report whose facts replace reconstructed ones. `stored_reason`: end reason
    before this batch. `intact`: the row matches its hash. `optional`: its capacity type and tags, if reported.
    """

    identity: int
    ended_at: datetime | None
    observed_until: datetime
    end_reason: str
    frozen_until: datetime | None = None
    kept_until: datetime | None = None
    row_id: int = 0
    changed: bool = False
    end: End | None = None
    reconstructed: bool = False
    stored_reason: str = ""
    facts: tuple[object, ...] = ()
    learned: GpuAllocation | None = None
    intact: bool = True
    optional: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.ended_at is not None and self.end is None:
            object.__setattr__(self, "end", End(self.ended_at, self.end_reason))


def end_of(report: GpuAllocation) -> End | None:
    if report.ended_at is None:
        return None
    return End(
        report.ended_at, report.end_reason or "", report.end_rule or "", bool(report.end_estimated), report.end_earliest,
        report.end_latest, report.reconstructed_from is not None,
    )  # fmt: skip


ALTERED: Final = Message("is not stored as it was reported: the database was changed, see `period_verify`")
OTHER_CONTENT: Final = Message("was reported before with other content; the first one stays")


def merge(known: Known, report: GpuAllocation) -> tuple[Meaning, Known, str]:
    """Return the meaning of `report`, the state after it, and the reason of a conflict; the order of reports is irrelevant.

    A reported end stays; an estimated end is replaced by a better one, a change of share by an earlier end. While the
    allocation is open, the latest observation counts. An end may lie before the last observation (the pod had finished
    before the observation was made), but never before time that a close has billed. Reconstructed values are replaced by
    watched ones; facts only while no close has billed the allocation, for they decide its job and its assessment.
    """
    if not known.intact:
        return Meaning.CONFLICT, known, ALTERED
    reconstructed = report.reconstructed_from is not None
    same = report.identity == known.identity
    # the identity covers all facts; a reconstruction may lack some, so only billing facts must agree
    if not same and not ((reconstructed or known.reconstructed) and report.billing_facts == known.facts):
        return Meaning.CONFLICT, known, OTHER_CONTENT
    if same and not _optional_agree(known.optional, report):
        return Meaning.CONFLICT, known, OTHER_CONTENT
    meaning, after, why = _merge_time(known, report, reconstructed)
    learns = known.reconstructed and not reconstructed and known.frozen_until is None
    if learns and meaning is not Meaning.CONFLICT:
        learned = replace(after, identity=report.identity, reconstructed=False, learned=report, changed=True)
        return Meaning.UPDATE, learned, why
    return meaning, after, why


def _optional_agree(known: Mapping[str, Any], report: GpuAllocation) -> bool:
    """Return True if no optional field has two values; a value on one side only is no difference."""
    capacity_type, stated = known.get("capacity_type"), report.capacity_type
    if capacity_type is not None and stated is not None and capacity_type != canonical_capacity_type(stated):
        return False
    return tags_agree(known.get("tags"), report.tags)


def _merge_time(known: Known, report: GpuAllocation, reconstructed: bool) -> tuple[Meaning, Known, str]:
    if known.end is not None:
        return _merge_into_ended(known, known.end, report, reconstructed)
    end = end_of(report)
    if end is None:
        if report.known_until <= known.observed_until:
            return Meaning.DUPLICATE, known, ""
        return Meaning.UPDATE, replace(known, observed_until=report.known_until, changed=True), ""
    if reconstructed and end.at < known.observed_until:
        return Meaning.DUPLICATE, known, ""  # the pod was seen alive after that end
    return _ended(known, end)


def _ended(known: Known, end: End) -> tuple[Meaning, Known, str]:
    if known.frozen_until is not None and end.at < known.frozen_until:
        return Meaning.CONFLICT, known, Message(
            "ended_at %(at)s lies in time that a close has billed", at=end.at.isoformat()
        )
    ended = replace(known, ended_at=end.at, observed_until=end.at, end_reason=end.reason, end=end, changed=True)
    return Meaning.UPDATE, ended, ""


def _merge_into_ended(
    known: Known, end: End, report: GpuAllocation, reconstructed: bool
) -> tuple[Meaning, Known, str]:
    reported = end_of(report)
    if end.rule == Rule.SHARE_CHANGED and report.known_until > end.at:
        return Meaning.CONFLICT, known, Message(
            "reports time after %(at)s, when a change of share ended it, as was reported before; what is billed may be too "
            "little: see which pods shared the claim, import what is missing, and dismiss this", at=end.at.isoformat(),
        )
    if reported is not None and Rule.SHARE_CHANGED in (reported.rule, end.rule):
        return _ended(known, reported) if _cut(reported) < _cut(end) else (Meaning.DUPLICATE, known, "")
    if reported is None:
        if end.reconstructed and not reconstructed and report.known_until > end.at:
            alive = replace(known, ended_at=None, end_reason="", end=None, observed_until=report.known_until, changed=True)
            return Meaning.UPDATE, alive, ""
        return Meaning.DUPLICATE, known, ""
    if not reported.estimated and not end.estimated and (reported.at, reported.reason) != (end.at, end.reason):
        return Meaning.CONFLICT, known, Message(
            "ended_at was reported before as %(at)s; the first one stays", at=end.at.isoformat()
        )
    return _ended(known, reported) if reported.rank < end.rank else (Meaning.DUPLICATE, known, "")


def _cut(end: End) -> tuple[datetime, bool, bool]:
    """Return the sort key of two ends, one a change of share: the smaller wins, as another allocation has the rest."""
    return end.at, end.rule == Rule.SHARE_CHANGED, not end.estimated


def allocations_ingest(
    *,
    records: Sequence[Indexed],
    rejected: Iterable[Rejected] = (),
    reporter: Reporter,
    now: datetime,
    from_file: bool = False,
) -> IngestOutcome:
    """Store a batch of (index, record, raw bytes); returns once all of it is durable."""
    outcome = IngestOutcome(refusals=[_invalid(item) for item in rejected])
    admitted = _admitted(records, reporter, now, outcome)
    with transaction.atomic(), connection.cursor() as cursor:
        epoch = ingest_lock_shared()
        admitted = _tags_filtered(admitted)
        admitted = shares_resolve(cursor, admitted, reporter, outcome)
        earlier, admitted = _parted(admitted)
        before = IngestOutcome()  # each report counts once, by its last part
        for items, counted in ((earlier, before), (admitted, outcome)):
            repeated = _insert_new(cursor, items, epoch, counted, from_file)
            _merge_known(cursor, repeated, epoch, counted)
        quarantine_add(reporter=reporter, refusals=[*before.refusals, *outcome.refusals])
    return outcome


def _parted(admitted: list[Indexed]) -> tuple[list[Indexed], list[Indexed]]:
    """Return the earlier parts, and the last part of each report, split where the share was corrected."""
    corrections = corrections_of(record for _, record, _ in admitted)
    if not corrections:
        return [], admitted
    earlier, last = list[Indexed](), list[Indexed]()
    for index, record, raw in admitted:
        *parts, end = parts_of(record, corrections)
        earlier += [(index, part, raw) for part in parts]
        last.append((index, end, raw))
    return earlier, last


class CorrectionError(ValueError):
    """Error of an allocation whose share cannot be corrected, named in the message."""


def allocations_correct(*, correction: ShareCorrection) -> int:
    """Split the stored allocations that extend beyond the instant of a correction, in a transaction; return their number."""
    rows = models.GpuAllocation.objects.filter(
        cluster=correction.cluster, resource=correction.resource, observed_until__gt=correction.valid_from
    ).exclude(device_fraction=correction.device_fraction)
    if correction.accelerator:
        rows = rows.filter(accelerator=correction.accelerator)
    with connection.cursor() as cursor:
        epoch = ingest_lock_shared()
        found = [row for row in rows.order_by("allocation_id") if row.ended_at != row.started_at]
        going_on = [goes_on(row, correction) for row in found]
        known = _lock_known(cursor, [row.allocation_id for row in found], epoch)
        states = []
        for row, part in zip(found, going_on, strict=True):
            at = part.started_at
            before = known[row.allocation_id]
            meaning, state, why = _ended(before, End(at, CHANGED, CHANGED, False, at, at))
            if meaning is Meaning.CONFLICT or not before.intact:
                raise CorrectionError(f"{row.allocation_id} {why or ALTERED}")
            states.append(state)
        _store(cursor, states, epoch)
        items = [(index, part, b"") for index, part in enumerate(going_on)]
        _insert_new(cursor, items, epoch, IngestOutcome(), from_file=False)
    return len(found)


def _tags_filtered(admitted: list[Indexed]) -> list[Indexed]:
    """Remove tags that the allow-list of the cluster does not name, and add those that it reads from labels."""
    rules = cluster_tag_rules() if any(record.tags or record.labels for _, record, _ in admitted) else {}
    if not rules and not any(record.tags for _, record, _ in admitted):
        return admitted
    records = allocation_tags_filter([record for _, record, _ in admitted], rules)
    return [(index, record, raw) for (index, _, raw), record in zip(admitted, records, strict=True)]


def _insert_new(
    cursor: Any, admitted: list[Indexed], epoch: int, outcome: IngestOutcome, from_file: bool
) -> list[Indexed]:
    """Insert the first report of each unknown allocation; return the other reports, which repeat known ones."""
    first: dict[str, Indexed] = {}
    for item in admitted:
        first.setdefault(item[1].allocation_id, item)
    if not first:
        return []
    # sorted: two transactions that insert the same allocations do not deadlock
    rows = [_row(record, from_file) for _, (_, record, _) in sorted(first.items())]
    names = ", ".join(ALLOCATION)
    cursor.execute(
        f"""INSERT INTO usage_gpuallocation ({names}, received_at, content_sha256)
            SELECT n.*, now(), {content_sha256(ALLOCATION, 'n')}
            FROM unnest({', '.join(f'%s::{kind}[]' for kind in ALLOCATION.values())}) AS n ({names})
            ON CONFLICT (allocation_id) DO NOTHING RETURNING allocation_id, id""",
        [[row[name] for row in rows] for name in ALLOCATION],
    )
    made = dict(cursor.fetchall())
    outcome.accepted += len(made)
    accepted_note(cursor, models.AcceptedRows.Kind.ALLOCATION, len(made))
    new = [(row_id, first[allocation_id][1]) for allocation_id, row_id in made.items()]
    _put_spans(
        cursor,
        [
            (row_id, epoch, record.started_at, record.known_until)
            for row_id, record in new
            if record.known_until > record.started_at
        ],
    )
    _put_ends(cursor, [(row_id, record.ended_at, record.end_reason or "", "") for row_id, record in new], epoch)
    # a batch may repeat an allocation: only the item that made the row is done, the others are merged into it
    return [item for item in admitted if item[1].allocation_id not in made or first[item[1].allocation_id] is not item]


def _row(record: GpuAllocation, from_file: bool) -> dict[str, Any]:
    facts = {
        name: msgspec.to_builtins(getattr(record, name))
        for name in ("scheduler", "workload", "labels", "priority_class", "pool")
        if getattr(record, name) is not None
    }
    if record.capacity_type is not None:
        facts["capacity_type"] = canonical_capacity_type(record.capacity_type)
    if record.tags:
        facts["tags"] = record.tags
    return {
        "allocation_id": record.allocation_id, "identity": record.identity, "cluster": record.cluster,
        "namespace": record.namespace, "pod": record.pod, "pod_uid": record.pod_uid, "resource": record.resource,
        "quantity": record.quantity, "device_fraction": record.device_fraction, "accelerator": record.accelerator,
        "node": record.node, "started_at": record.started_at, "ended_at": record.ended_at,
        "observed_until": record.known_until, "end_reason": record.end_reason or "",
        "workload_kind": record.workload.kind if record.workload else "",
        "workload_name": record.workload.name if record.workload else "", "queue": record.queue or "",
        "site": record.site or "", "facts": Jsonb(facts), "from_file": from_file,
        "reconstructed_from": record.reconstructed_from or "", **_end_columns(end_of(record)),
    }  # fmt: skip


def _end_columns(end: End | None) -> dict[str, Any]:
    if end is None:
        return dict(NO_END)
    return {
        "end_rule": end.rule, "end_estimated": end.estimated, "end_earliest": end.earliest, "end_latest": end.latest,
        "end_reconstructed": end.reconstructed,
    }  # fmt: skip


NO_END: dict[str, Any] = {
    "end_rule": "", "end_estimated": False, "end_earliest": None, "end_latest": None, "end_reconstructed": False,
}  # fmt: skip
TIMES = ("ended_at", "observed_until", "end_reason", *NO_END)
LEARNED = ("identity", "pod", "node", "workload_kind", "workload_name", "queue", "site", "facts", "reconstructed_from")


def _merge_known(cursor: Any, admitted: list[Indexed], epoch: int, outcome: IngestOutcome) -> None:
    """Merge the remaining reports into the stored allocations, in the order of their arrival."""
    if not admitted:
        return
    before = _lock_known(cursor, sorted({record.allocation_id for _, record, _ in admitted}), epoch)
    after = dict(before)
    for index, record, raw in admitted:
        meaning, after[record.allocation_id], why = merge(after[record.allocation_id], record)
        outcome.count(meaning)
        if meaning is Meaning.CONFLICT:
            error = allocation_refused(record, why)
            disputed = f"{record.allocation_id} {record.identity} {record.ended_at} {why}".encode()
            outcome.refusals.append(Refusal(index, record.allocation_id, error, "conflict", raw, disputed))
    _store(cursor, [state for state in after.values() if state.changed], epoch)


def allocation_refused(record: GpuAllocation, why: str) -> Message:
    """Return the refusal of a report that contradicts its stored allocation."""
    return Message("allocation_id %(key)s %(why)s", key=repr(record.allocation_id), why=why)


def _lock_known(cursor: Any, ids: list[str], epoch: int) -> dict[str, Known]:
    # `frozen_until`: time in a closed month is billed if its revision's epoch is below the last close in force
    cursor.execute(
        f"""SELECT a.allocation_id, a.identity, a.ended_at, a.observed_until, a.end_reason, a.id,
                  (SELECT max(least(s.until, w."end")) FROM usage_allocationrevision s
                   JOIN usage_close w ON w.withdrawn_at IS NULL AND s.start < w."end" AND s.until > w.start
                   WHERE s.allocation_id = a.id
                         AND s.epoch < (SELECT max(close_seq) FROM usage_close WHERE withdrawn_at IS NULL)),
                  (SELECT max(until) FROM usage_allocationrevision s WHERE s.allocation_id = a.id AND s.epoch < %(epoch)s),
                  a.end_rule, a.end_estimated, a.end_earliest, a.end_latest, a.end_reconstructed, a.reconstructed_from,
                  a.content_sha256 = {content_sha256(ALLOCATION, 'a')},
                  a.cluster, a.namespace, a.pod_uid, a.resource, a.quantity, a.device_fraction, a.accelerator, a.started_at,
                  a.facts
           FROM usage_gpuallocation a WHERE a.allocation_id = ANY(%(ids)s) ORDER BY a.allocation_id FOR UPDATE OF a""",
        {"epoch": epoch, "ids": ids},
    )
    return {row[0]: _known(row[1:]) for row in cursor.fetchall()}


def _known(row: Sequence[Any]) -> Known:
    identity, ended_at, observed, reason, row_id, frozen, kept = row[:7]
    rule, estimated, earliest, latest, end_reconstructed, reconstructed_from, intact = row[7:14]
    end = End(ended_at, reason, rule, estimated, earliest, latest, end_reconstructed) if ended_at else None
    *facts, fraction, accelerator, started_at, optional = row[14:]
    optional = json.loads(optional) if isinstance(optional, str) else optional
    return Known(
        identity, ended_at, observed, reason, frozen, kept, row_id, end=end, reconstructed=bool(reconstructed_from),
        stored_reason=reason, facts=(*facts, fraction.normalize(), accelerator, started_at), intact=intact,
        optional={name: optional[name] for name in ("capacity_type", "tags") if name in optional},
    )  # fmt: skip


def _store(cursor: Any, changed: list[Known], epoch: int) -> None:
    if not changed:
        return
    changed = sorted(changed, key=lambda state: state.row_id)
    _store_times(cursor, changed)
    _put_ends(cursor, [(state.row_id, state.ended_at, state.end_reason, state.stored_reason) for state in changed], epoch)
    learned = [(state, state.learned) for state in changed if state.learned is not None]
    for state, report in learned:
        _store_facts(cursor, state, report)
    rows = models.GpuAllocation.objects.filter(pk__in=[state.row_id for state in changed])
    started = dict(rows.values_list("pk", "started_at"))
    spans = [(state.row_id, epoch, state.kept_until or started[state.row_id], state.observed_until) for state in changed]
    _put_spans(cursor, [span for span in spans if span[3] > span[2]])
    # no time is left in this epoch, and a revision must not be empty
    empty = [span[0] for span in spans if span[3] <= span[2]]
    if empty:
        models.AllocationRevision.objects.filter(epoch=epoch, allocation_id__in=empty).delete()
    ended_early = [state for state in changed if state.kept_until and state.observed_until < state.kept_until]
    _shorten(ended_early)


def _store_times(cursor: Any, changed: Sequence[Known]) -> None:
    rows = [
        {"ended_at": state.ended_at, "observed_until": state.observed_until, "end_reason": state.end_reason,
         **_end_columns(state.end)}
        for state in changed
    ]  # fmt: skip
    cursor.execute(
        f"""UPDATE usage_gpuallocation a SET {', '.join(f'{name} = n.{name}' for name in TIMES)},
                  content_sha256 = {content_sha256(ALLOCATION, 'a', {name: f'n.{name}' for name in TIMES})}
           FROM unnest(%s::bigint[], {', '.join(f'%s::{ALLOCATION[name]}[]' for name in TIMES)})
                AS n (id, {', '.join(TIMES)}) WHERE a.id = n.id""",
        [[state.row_id for state in changed], *([row[name] for row in rows] for name in TIMES)],
    )


def _store_facts(cursor: Any, state: Known, report: GpuAllocation) -> None:
    """Replace the reconstructed facts of an allocation by watched ones; no bill depends on these columns."""
    row = _row(report, from_file=False)
    values = ", ".join(f"%s::{ALLOCATION[name]} AS {name}" for name in LEARNED)
    cursor.execute(
        f"""UPDATE usage_gpuallocation a SET {', '.join(f'{name} = n.{name}' for name in LEARNED)},
                   content_sha256 = {content_sha256(ALLOCATION, 'a', {name: f'n.{name}' for name in LEARNED})}
            FROM (SELECT {values}) n WHERE a.id = %s""",
        [*(row[name] for name in LEARNED), state.row_id],
    )


def _shorten(ended_early: Sequence[Known]) -> None:
    """Cut revisions of earlier epochs if an allocation ended before it was last seen; `merge` checks that it is unbilled."""
    for state in ended_early:
        pieces, end = models.AllocationRevision.objects.filter(allocation_id=state.row_id), state.observed_until
        pieces.filter(start__gte=end).delete()
        pieces.filter(until__gt=end).update(until=end)


def _put_spans(cursor: Any, spans: Sequence[tuple[int, int, datetime, datetime]]) -> None:
    """Store this epoch's revision of each allocation: from the last earlier end, or the start, to the latest known time."""
    if not spans:
        return
    cursor.execute(
        """INSERT INTO usage_allocationrevision (allocation_id, epoch, start, until)
           SELECT * FROM unnest(%s::bigint[], %s::int[], %s::timestamptz[], %s::timestamptz[])
           ON CONFLICT (allocation_id, epoch) DO UPDATE SET until = excluded.until""",
        [list(column) for column in zip(*spans, strict=True)],
    )


def _put_ends(cursor: Any, ends: Sequence[tuple[int, datetime | None, str, str]], epoch: int) -> None:
    """Store in this epoch every end by an interruption or a change of share, and corrections of such ends.

    `ends`: row id of the allocation, its end (None: still running), the reason, and the reason stored before.
    """
    rows = [(row_id, at, reason) for row_id, at, reason, before in ends if {reason, before} & NOTED]
    if rows:
        cursor.execute(
            """INSERT INTO usage_allocationinterruption (allocation_id, epoch, ended_at, end_reason)
               SELECT a.id, %s, a.ended_at, a.reason
               FROM unnest(%s::bigint[], %s::timestamptz[], %s::text[]) AS a (id, ended_at, reason)
               ON CONFLICT (allocation_id, epoch)
               DO UPDATE SET ended_at = excluded.ended_at, end_reason = excluded.end_reason""",
            [epoch, *(list(column) for column in zip(*rows, strict=True))],
        )


def _admitted(
    records: Sequence[Indexed], reporter: Reporter, now: datetime, outcome: IngestOutcome
) -> list[Indexed]:
    """Return the records that the reporter may report and that are not in the future; refuse the others."""
    admitted, limit = list[Indexed](), latest_instant(reporter, now)
    for index, record, raw in records:
        if error := may_not_report(reporter, "cluster", record.cluster):
            outcome.refusals.append(Refusal(index, record.allocation_id, error, "invalid", raw))
        elif limit is not None and last_instant(record)[1] > limit:
            outcome.refusals.append(Refusal(index, record.allocation_id, in_the_future(record, now), "future", raw))
        else:
            admitted.append((index, record, raw))
    return admitted


def _invalid(item: Rejected) -> Refusal:
    key = visible(str(dict(readable_members(item.raw)).get("allocation_id", "")))
    return Refusal(item.index, key[:500], item.error.message, "invalid", item.raw)
