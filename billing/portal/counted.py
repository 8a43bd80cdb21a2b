"""Sentences of services that count something: said for one and for many, as a language tells them apart.

A service writes its sentence once, with the figure in it; where it says both itself, both are found here.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from django.utils.translation import ngettext, override

Say = Callable[[int], str]
SAID: Final[tuple[tuple[str, Say], ...]] = (
    ("n", lambda n: ngettext("%(n)s open allocation was not seen after that: %(advice)s",
                             "%(n)s open allocations were not seen after that: %(advice)s", n)),
    ("n", lambda n: ngettext("%(n)s more hold, whose end lies between %(earliest)s and %(latest)s",
                             "%(n)s more holds, whose ends lie between %(earliest)s and %(latest)s", n)),
    ("n", lambda n: ngettext("%(n)s unit was listed by %(scans)s scans: look for what the agent missed",
                             "%(n)s units were listed by %(scans)s scans: look for what the agent missed", n)),
    ("n", lambda n: ngettext("%(n)s unit in %(scans)s scans, %(differ)s differ",
                             "%(n)s units in %(scans)s scans, %(differ)s differ", n)),
    ("n", lambda n: ngettext("%(n)s charge, %(differ)s differ", "%(n)s charges, %(differ)s differ", n)),
    ("n", lambda n: ngettext("%(n)s document, %(total)s", "%(n)s documents, %(total)s", n)),
    ("n", lambda n: ngettext("%(n)s invoice drafted", "%(n)s invoices drafted", n)),
    ("n", lambda n: ngettext("%(n)s invoice issued", "%(n)s invoices issued", n)),
    ("n", lambda n: ngettext("%(n)s line or verdict assessed", "%(n)s lines and verdicts assessed", n)),
    ("n", lambda n: ngettext("%(n)s row of FOCUS made", "%(n)s rows of FOCUS made", n)),
    ("n", lambda n: ngettext("period %(month)s cannot be closed: %(n)s exception holds it",
                             "period %(month)s cannot be closed: %(n)s exceptions hold it", n)),
    ("days", lambda n: ngettext("dispute %(n)s was decided more than %(days)s business day ago",
                                "dispute %(n)s was decided more than %(days)s business days ago", n)),
    ("days", lambda n: ngettext("the run takes %(days)s day: more GPUs, or a smaller run",
                                "the run takes %(days)s days: more GPUs, or a smaller run", n)),
    ("n", lambda n: ngettext("has %(n)s hour, hourly has %(prices)s: give one load for each price",
                             "has %(n)s hours, hourly has %(prices)s: give one load for each price", n)),
    ("days", lambda n: ngettext("%(value)s must be after from %(start)s by at most %(days)s day",
                                "%(value)s must be after from %(start)s by at most %(days)s days", n)),
    ("days", lambda n: ngettext("%(value)s must be after from by at most %(days)s day",
                                "%(value)s must be after from by at most %(days)s days", n)),
    ("drafted", lambda n: ngettext(
        "period %(month)s is not closed: %(n)s of its teams cannot be billed, %(drafted)s invoice of others is drafted",
        "period %(month)s is not closed: %(n)s of its teams cannot be billed, %(drafted)s invoices of others are drafted",
        n,
    )),
)  # fmt: skip
"""What is counted, and the sentence for so many."""
ONE, MANY = 1, 2


@cache
def counted() -> Mapping[str, tuple[str, Say]]:
    """Each sentence as services may have written it, in English, with what it counts."""
    with override("en"):
        return {english: (name, say) for name, say in SAID for english in (say(ONE), say(MANY))}


def number_of(text: str) -> int:
    """The figure that a service wrote; what is none is said as many are.

    >>> number_of("1,204"), number_of("1"), number_of("some")
    (1204, 1, 2)
    """
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() else MANY
