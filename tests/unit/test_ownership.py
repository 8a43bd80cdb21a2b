"""Who owns what: the most specific pattern wins, at the instant asked for."""

from datetime import UTC, datetime

from billing.tenancy.ownership import Owner, OwnershipBook, OwnershipRow

JANUARY, MARCH = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)


def owner(rows: list[OwnershipRow], scope: str, name: str, at: datetime = JANUARY) -> str | None:
    for order in (rows, rows[::-1]):  # never the order of rows decides
        found = OwnershipBook(order).owner(scope, name, at)
    return found.team if found else None


def row(scope: str, name: str, team: str, start: datetime | None = None, end: datetime | None = None) -> OwnershipRow:
    return OwnershipRow(scope, name, Owner(team), start, end)


def test_an_exact_name_beats_every_pattern_and_a_longer_pattern_a_shorter() -> None:
    rows = [row("hq", "*", "all"), row("hq", "nlp-*", "nlp"), row("hq", "nlp-prod-*", "prod"), row("hq", "nlp-prod-a", "a")]
    assert [owner(rows, "hq", name) for name in ("x", "nlp-x", "nlp-prod-x", "nlp-prod-a")] == ["all", "nlp", "prod", "a"]


def test_an_exact_cluster_beats_a_pattern_of_clusters() -> None:
    rows = [row("*", "nlp-train", "everywhere"), row("hq", "nlp-*", "hq")]
    assert owner(rows, "hq", "nlp-train") == "hq"
    assert owner(rows, "edge", "nlp-train") == "everywhere"
    assert owner(rows, "edge", "other") is None


def test_ownership_is_half_open() -> None:
    rows = [row("hq", "a", "before", end=MARCH), row("hq", "a", "after", start=MARCH)]
    assert owner(rows, "hq", "a") == "before"
    assert owner(rows, "hq", "a", MARCH) == "after"


def test_outside_of_an_exact_row_the_pattern_owns() -> None:
    rows = [row("hq", "*", "all"), row("hq", "a", "guest", start=JANUARY, end=MARCH)]
    assert [owner(rows, "hq", "a", at) for at in (JANUARY, MARCH)] == ["guest", "all"]


def test_names_with_marks_of_patterns_in_them_are_matched_as_patterns_only_where_they_are_rows() -> None:
    assert owner([row("hq", "a.b", "dot")], "hq", "axb") is None
    assert owner([row("hq", "a?b", "mark")], "hq", "axb") == "mark"


def test_every_change_is_known() -> None:
    rows = [row("hq", "a", "x", JANUARY, MARCH), row("*", "b*", "y", MARCH)]
    assert OwnershipBook(rows).changes() == {JANUARY, MARCH}


def test_a_wildcard_may_stand_anywhere_in_a_pattern() -> None:
    rows = [
        row("hq", "*-prod", "end"), row("hq", "nlp?train", "one"), row("h*", "[ab]-x", "set"), row("hq", "nlp-t*n", "mid"),
        row("*", "", "nameless"),
    ]  # fmt: skip
    names = ("cv-prod", "nlp-train", "nlp_train", "b-x", "c-x", "nlp-tuition", "")
    assert [owner(rows, "hq", name) for name in names] == ["end", "one", "one", "set", None, "mid", "nameless"]
