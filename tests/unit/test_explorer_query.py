"""What an address of the explorer asks."""

from datetime import date

import pytest
from django.http import QueryDict

from billing.explorer.query import Query, QueryError, query_of

TODAY = date(2026, 11, 3)


def asked(text: str) -> Query:
    return query_of(QueryDict(text), TODAY, 1)


@pytest.mark.parametrize("text", [
    "metric=money", "by=person", "by=team&by=job&by=queue", "range=eternity", "from=2026-10-32",
    "from=2026-10-02&to=2026-10-01", "from=2020-01-01&to=2026-10-01", "step=minute", "column=secrets", "sort=luck",
])  # fmt: skip
def test_an_address_that_asks_for_nothing_known_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        asked(text)


@pytest.mark.parametrize("text", [
    "", "range=last-90-days&by=namespace&by=model&team=nlp&team=cv&metric=tokens&step=day", "from=2026-10-01&to=2026-10-05",
    "by=none&column=none&sort=name&search=a+b", "from=2026-10-01&to=2026-10-05&step=hour",
    "month=2026-10&namespace=%E2%88%85&sort=-per_job&column=jobs&column=share",
])  # fmt: skip
def test_what_an_address_asks_is_written_back_to_the_same_question(text: str) -> None:
    query = asked(text)
    assert query_of(QueryDict(query.address), TODAY, 1) == query
