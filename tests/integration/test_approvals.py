"""What one person proposes another decides on: the states, the persons and the history that every kind shares."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from billing.approvals.kinds import KINDS, Approval, Kind, Refused, Why, register
from billing.approvals.models import Proposal, Step
from billing.approvals.selectors import waiting
from billing.approvals.services import (
    approve,
    locked,
    proposal_create,
    proposal_note,
    proposal_revise,
    proposal_submit,
    propose,
    reject,
    withdraw,
)
from billing.tenancy.access import Right
from billing.tenancy.models import AuditEntry
from tests.factories import person

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 10, 12, tzinfo=UTC)
STATES = ("draft", "submitted", "approved", "rejected", "withdrawn")
LEGAL = {
    ("draft", "submitted"), ("draft", "withdrawn"), ("submitted", "draft"), ("submitted", "approved"),
    ("submitted", "rejected"), ("submitted", "withdrawn"), ("rejected", "draft"), ("rejected", "withdrawn"),
}  # fmt: skip


class RefusalError(ValueError):
    """A step that the kind below refuses."""


class Poem(Kind[Proposal]):
    """A poem: it takes as many approvers as it has lines, and is read aloud then."""

    name = "poem"
    model = Proposal
    deciders = frozenset({Right.APPROVE})
    audit = {action: f"poem_{action}" for action in Step.Action}
    revisable = True
    heard: list[str]
    spoilt = ""

    def missing(self, pk: int) -> Exception:
        return RefusalError(f"no poem {pk}")

    def refusal(self, row: Proposal, refused: Refused) -> Exception:
        return RefusalError(f"{refused.why.name} {refused.action}")

    def approval(self, row: Proposal, actor: str, now: datetime) -> Approval:
        return Approval(lambda: self.heard.append(row.payload["text"]), row.payload["text"].count("\n") + 1, {"by": actor})

    def detail(self, row: Proposal, step: Step) -> dict[str, Any]:
        return {"text": row.payload["text"]}

    def fingerprint(self, row: Proposal) -> str:
        return super().fingerprint(row) + self.spoilt


@pytest.fixture
def poem() -> Iterator[Poem]:
    kind = Poem()
    kind.heard = []
    register(kind)
    yield kind
    del KINDS[kind.name]


def submitted(kind: Poem, text: str = "one", actor: str = "ann") -> Proposal:
    return propose(kind, subject="spring", payload={"text": text}, reason="it is spring", actor=actor, now=NOW)


def written(kind: Poem, state: str) -> Proposal:
    """A poem in that state."""
    if state == "draft":
        return proposal_create(kind, subject="spring", payload={"text": "one"}, reason="soon", actor="ann", now=NOW)
    row = submitted(kind)
    step = {"approved": approve, "rejected": reject, "withdrawn": withdraw}.get(state)
    return row if step is None else step(kind, row.pk, actor="ben", now=NOW, comment="so be it")


def sql(statement: str, *values: object) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)


def step_sql(actor: str, action: str = "approved", payload: str = "payload") -> None:
    sql(
        f"""INSERT INTO approvals_step (proposal_id, at, actor, action, comment, revision, payload)
            SELECT id, now(), %s, %s, 'why', revision, {payload} FROM approvals_proposal""",
        actor, action,
    )  # fmt: skip


def test_somebody_else_approves_and_then_it_happens_once(poem: Poem) -> None:
    row = submitted(poem)
    assert (row.waits, row.sha256 != "", row.decided_by) == (True, True, "")
    with pytest.raises(RefusalError, match="MAKER approved"):
        approve(poem, row.pk, actor=" ANN ", now=NOW)
    assert poem.heard == []
    done = approve(poem, row.pk, actor="ben", now=NOW, comment=" well said ")
    assert (done.state, done.decided_by, done.decided_at, done.decision) == ("approved", "ben", NOW, "well said")
    assert (done.outcome, poem.heard) == ({"by": "ben"}, ["one"])
    with pytest.raises(RefusalError, match="STATE approved"):
        approve(poem, row.pk, actor="cem", now=NOW)
    log = AuditEntry.objects.filter(action__startswith="poem_").order_by("id").values_list("action", "actor")
    assert list(log) == [("poem_submitted", "ann"), ("poem_approved", "ben")]


def test_two_lines_take_two_persons_and_one_person_spelt_twice_is_one(poem: Poem) -> None:
    row = submitted(poem, "one\ntwo")
    for actor in ("ben", "BEN", "ben "):
        assert approve(poem, row.pk, actor=actor, now=NOW).state == "submitted"
    with pytest.raises(DatabaseError, match="one_approval_of_a_proposal_per_person"):
        step_sql("Ben")
    assert poem.heard == []
    done = approve(poem, row.pk, actor="cem", now=NOW)
    assert (done.state, done.approvers, poem.heard) == ("approved", ["ben", "cem"], ["one\ntwo"])


def test_what_is_approved_is_what_was_submitted(poem: Poem) -> None:
    row = submitted(poem)
    poem.spoilt = "!"
    with pytest.raises(RefusalError, match="CHANGED approved"):
        approve(poem, row.pk, actor="ben", now=NOW)
    assert (Proposal.objects.get().state, Proposal.objects.get().approvers) == ("submitted", [])


def test_approvals_of_a_revision_before_do_not_count(poem: Poem) -> None:
    row = submitted(poem, "one\ntwo")
    approve(poem, row.pk, actor="ben", now=NOW)
    with locked(poem, row.pk, "edited", "ann") as held:
        proposal_revise(poem, held, subject="autumn", payload={"text": "x\ny"}, reason="it is not", actor="dan", now=NOW)
        proposal_submit(poem, held, actor="ann", now=NOW, reason="it is not")
    with pytest.raises(RefusalError, match="STALE approved"):
        approve(poem, row.pk, actor="cem", now=NOW, revision=1)
    with pytest.raises(RefusalError, match="MAKER approved"):
        approve(poem, row.pk, actor="dan", now=NOW)
    assert approve(poem, row.pk, actor="cem", now=NOW, revision=2).approvers == ["cem"]
    assert approve(poem, row.pk, actor="ben", now=NOW).state == "approved"
    history = Step.objects.values_list("actor", "action", "revision", "payload__text")
    assert list(history) == [
        ("ann", "submitted", 1, "one\ntwo"), ("ben", "approved", 1, "one\ntwo"), ("dan", "edited", 2, "x\ny"),
        ("ann", "submitted", 2, "x\ny"), ("cem", "approved", 2, "x\ny"), ("ben", "approved", 2, "x\ny"),
    ]  # fmt: skip


def test_a_rejection_says_why_and_a_maker_withdraws_instead(poem: Poem) -> None:
    row = submitted(poem)
    with pytest.raises(RefusalError, match="MAKER rejected"):
        reject(poem, row.pk, actor="Ann", now=NOW, comment="no")
    with pytest.raises(RefusalError, match="REASON rejected"):
        reject(poem, row.pk, actor="ben", now=NOW, comment=" ")
    poem.makers_reject = True
    ended = reject(poem, row.pk, actor="Ann", now=NOW, comment="no")
    assert (ended.state, ended.decided_by, ended.decision) == ("withdrawn", "Ann", "no")


def test_where_what_an_approval_does_fails_nothing_is_approved(poem: Poem) -> None:
    row = submitted(poem)
    del poem.heard
    with pytest.raises(AttributeError):
        approve(poem, row.pk, actor="ben", now=NOW)
    assert (Proposal.objects.get().state, Step.objects.count()) == ("submitted", 1)


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("after", STATES)
def test_the_database_knows_the_way_of_a_proposal(poem: Poem, before: str, after: str) -> None:
    revision = written(poem, before).revision + (after == "draft")
    if (before, after) in LEGAL and after in ("approved", "rejected", "withdrawn"):
        with pytest.raises(DatabaseError, match="is decided by a step of its history"):
            sql("UPDATE approvals_proposal SET state = %s", after)
        step_sql("cem", after)
    sha256 = "x" if before == "draft" else Proposal.objects.get().sha256
    moved = "UPDATE approvals_proposal SET state = %s, revision = %s, sha256 = %s"
    if (before, after) in LEGAL | {("draft", "draft")}:
        sql(moved, after, revision, sha256)
        assert Proposal.objects.get().state == after
    else:
        why = "never changes" if before in ("approved", "withdrawn") else "does not become"
        with pytest.raises(DatabaseError, match=why):
            sql(moved, after, revision, sha256)


def test_proposals_and_their_history_are_never_emptied() -> None:
    with pytest.raises(DatabaseError, match="who proposed and who decided is never forgotten"):
        sql("TRUNCATE approvals_proposal CASCADE")
    with pytest.raises(DatabaseError, match="the history of a proposal only grows"):
        sql("TRUNCATE approvals_step")


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        ("UPDATE approvals_proposal SET payload = '{}'", "changes only as a draft"),
        ("UPDATE approvals_proposal SET payload = '{}', state = 'draft'", "changes only as a draft, with a new revision"),
        ("UPDATE approvals_proposal SET makers = '{eve}'", "keeps its kind and its makers"),
        ("UPDATE approvals_proposal SET makers = '{eve,ann}'", "keeps its kind and its makers"),
        ("UPDATE approvals_proposal SET kind = 'prose'", "keeps its kind and its makers"),
        ("DELETE FROM approvals_proposal", "stays in the history"),
        ("UPDATE approvals_step SET actor = 'ben'", "the history of a proposal only grows"),
        ("DELETE FROM approvals_step", "the history of a proposal only grows"),
    ],
)
def test_what_waits_is_not_changed_and_nothing_is_forgotten(poem: Poem, statement: str, refused: str) -> None:
    submitted(poem)
    with pytest.raises(DatabaseError, match=refused):
        sql(statement)


def test_the_database_takes_no_step_of_a_maker_or_of_another_poem(poem: Poem) -> None:
    submitted(poem)
    for actor, action in ((" ＡＮＮ", "approved"), ("Ann", "rejected"), ("ann ", "noted")):
        with pytest.raises(DatabaseError, match="no maker decides on a proposal"):
            step_sql(actor, action)
    with pytest.raises(DatabaseError, match="is kept with what was proposed then"):
        step_sql("ben", payload="'{}'")
    with pytest.raises(DatabaseError, match="names its makers"):
        step_sql("eve", "submitted")


def test_each_person_sees_what_waits_for_them_whatever_its_kind(poem: Poem) -> None:
    ada, ben, lin = person("ada", "approver"), person("ben", "approver"), person("lin", "finance")
    first, second = submitted(poem, "a\nb", actor="lin"), submitted(poem, actor="Ada")
    assert [row.pk for row in waiting(ada, NOW)] == [first.pk]
    assert [row.pk for row in waiting(ben, NOW)] == [first.pk, second.pk]
    assert waiting(lin, NOW) == []
    approve(poem, first.pk, actor="ben", now=NOW)
    reject(poem, second.pk, actor="ben", now=NOW, comment="no")
    assert waiting(ben, NOW) == []
    assert [row.pk for row in waiting(ada, NOW)] == [first.pk]


def test_a_note_is_kept_and_decides_nothing(poem: Poem) -> None:
    row = submitted(poem)
    with locked(poem, row.pk, "noted", "tom") as held:
        proposal_note(poem, held, actor="tom", now=NOW, comment="read")
    assert [(step.actor, step.action, step.comment) for step in row.steps.all()][-1] == ("tom", "noted", "read")
    assert Proposal.objects.get().waits
    with pytest.raises(RefusalError, match="no poem 0"), locked(poem, 0, "noted", "tom"):
        pass


def test_a_kind_may_let_one_proposal_of_a_subject_wait(poem: Poem) -> None:
    sql("CREATE UNIQUE INDEX one_poem ON approvals_proposal (subject) WHERE kind = 'poem' AND state = 'submitted'")
    submitted(poem)
    with pytest.raises(RefusalError, match=f"{Why.TAKEN.name} submitted"):
        submitted(poem)
    assert Proposal.objects.count() == 1
