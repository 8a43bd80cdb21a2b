"""Every kind of entry that code writes into the audit log has words of its own, and no word is left over."""

import ast
from pathlib import Path

import billing
import billing.inbox.decisions  # imports every kind
from billing.approvals.kinds import KINDS
from billing.corrections.models import Dispute
from billing.portal.audit_words import AUDIT
from billing.settings.sessions import CREDENTIALS

MADE = {
    "{}_put": {"namespaceownership_put", "consumerownership_put"},
    "{}_publish": {f"{kind}_policy_publish" for kind in ("allocation", "efficiency", "interruption")},
    "dispute_{}": {f"dispute_{kind}" for kind in (*Dispute.Status.values, "hold", "let_go")},
}
"""Kinds that code puts together."""
WRITERS = ("audit_record", "audit_record_each", "AuditEntry")
ROWS = {"row_insert", "row_update", "row_delete"}
"""What the database notes by itself."""


def kinds_in_code() -> set[str]:
    found = ROWS | set(CREDENTIALS.values()) | {name for kind in KINDS.values() for name in kind.audit.values()}
    for path in Path(billing.__file__).parent.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            if getattr(node.func, "id", "") == "_tell" and isinstance(node.args[0], ast.Constant):
                found.add(str(node.args[0].value))
            for keyword in node.keywords:
                if keyword.arg == "action" and getattr(node.func, "id", "") in WRITERS:
                    found |= named(keyword.value)
    return found


def named(value: ast.expr) -> set[str]:
    if isinstance(value, ast.Constant):
        return {str(value.value)}
    if isinstance(value, ast.JoinedStr):
        return MADE["".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in value.values)]
    return set()


def test_every_kind_of_entry_has_its_words() -> None:
    assert kinds_in_code() == set(AUDIT)
