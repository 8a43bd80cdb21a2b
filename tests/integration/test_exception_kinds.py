"""Every kind of exception says whose it is, where it is solved and by what; the money at risk is given or null."""

import ast
from decimal import Decimal
from pathlib import Path

import pytest

import billing
from billing.closing.exception_kinds import KINDS, kind_of
from billing.closing.report import Report, build_report
from billing.invoices.selectors import period_of
from billing.tenancy.access import RIGHTS, Right
from tests import factories
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, person, signed_in, token_record

pytestmark = pytest.mark.django_db


def _strings(node: ast.expr | None) -> set[str]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)} if (
        isinstance(node, (ast.Constant, ast.IfExp))
    ) else set()  # fmt: skip


def kinds_in_code() -> set[str]:
    """What code names as the kind of an exception: the first argument, or what a variable `kind` is set to beside one."""
    found: set[str] = set()
    for path in Path(billing.__file__).parent.glob("**/*.py"):
        source = path.read_text(encoding="utf-8")
        if "ReportedException(" not in source and "Unowned(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("ReportedException", "Unowned"):
                found |= _strings(node.args[0] if node.args else None)
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "kind" and isinstance(
                node.value, ast.IfExp
            ):  # fmt: skip
                found |= _strings(node.value.body) | _strings(node.value.orelse)
    return found


@pytest.mark.parametrize("kind", sorted(kinds_in_code() | set(KINDS)))
def test_every_kind_has_an_owner_who_can_act_a_page_and_an_action(kind: str) -> None:
    facts = kind_of(kind)
    assert RIGHTS[facts.owner] & {Right.CLOSE, Right.OPERATE}
    assert len(str(facts.solution)) > 10
    client = signed_in(person("ann", facts.owner.value))
    assert client.get(facts.link("2026-10")).status_code == 200


def test_the_code_names_the_kinds_that_are_declared() -> None:
    assert kinds_in_code() == set(KINDS)


def test_a_kind_that_nobody_declared_is_refused() -> None:
    with pytest.raises(LookupError, match="exception 'new': say in `exception_kinds` whose it is"):
        kind_of("new")


def october() -> Report:
    return build_report(period_of("2026-10"), now=factories.AFTER)


def test_what_unowned_usage_would_be_billed_is_the_money_at_risk(tmp_path: Path) -> None:
    """Twice 20.962222 GPU-hours at 10.00 in one line: 419.24. 800,000 tokens at 2.00 per million: 1.60; 100 at 8.00: 0."""
    apply(tmp_path)
    ingest_allocations(allocation_record(1, namespace="lost"), allocation_record(2, namespace="lost", pod_uid="u-2"))
    ingest_tokens(token_record(1, consumer="nobody", input_tokens=800_000, cache_read_input_tokens=0))
    reported = {item.kind: item for item in october().exceptions}
    assert reported["unowned_namespace"].amount == Decimal("419.24")
    assert reported["unowned_consumer"].amount == Decimal("1.60")
    rows = {row["kind"]: row for row in october().as_dict()["exceptions"]}
    assert {name: rows["unowned_namespace"][name] for name in ("amount", "owner", "solution", "link", "blocks")} == {
        "amount": "419.24", "owner": "admin", "solution": "Declare the owner of the namespace", "link": "/ownership/",
        "blocks": True,
    }  # fmt: skip


def test_money_that_nobody_can_know_is_null_and_never_zero(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(1, namespace="lost", accelerator="NVIDIA-X1"))
    ingest_allocations(allocation_record(2, accelerator="NVIDIA-X1"))
    ingest_tokens(token_record(1, input_tokens=-1))
    rows = {row["kind"]: row for row in october().as_dict()["exceptions"]}
    assert {kind: row["amount"] for kind, row in rows.items()} == dict.fromkeys(
        ("unowned_namespace", "unpriced", "quarantine")
    )
    client = signed_in(person("kay", "finance"))
    page = " ".join(client.get("/close/?month=2026-10").content.decode().split())
    assert page.count('<span class="soft">unknown</span>') >= 3
    assert '<a href="/quarantine/">Correct or dismiss the record</a> · Platform admin' in page
