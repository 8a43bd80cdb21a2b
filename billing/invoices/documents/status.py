"""Which mark a document carries for its place in the lifecycle."""

from __future__ import annotations

NOT_YET_ISSUED = frozenset({"draft", "preview", "approved"})
ISSUED = frozenset({"issued", "disputed", "settled"})


def mark_on(status: str, *, shadow: bool) -> str | None:
    """The mark of a document: a shadow is marked as one at every moment, since nobody ever owes it."""
    mark = mark_of(status)
    return "shadow" if shadow and mark != "void" else mark


def mark_of(status: str) -> str | None:
    """``"draft"`` before issue, ``"void"`` for a void draft, None for an issued document.

    A dispute or a settlement is not printed: the file of an issued document stays the same bytes for ever.
    Raises ValueError for an unknown status, so that a new one is never printed as if it were issued.
    """
    if status in NOT_YET_ISSUED:
        return "draft"
    if status in ISSUED:
        return None
    if status == "void":
        return "void"
    raise ValueError(f"status {status!r}: no rule says how such a document is marked")
