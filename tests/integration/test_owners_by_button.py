"""Teams and owners are changed on pages: by the rule of the set-up file, and with what moves shown before it is saved."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.services.periods import period_open
from billing.setup.apply import set_up_apply
from billing.setup.file import SetUpFileError
from billing.setup.owners import (
    Share,
    file_text,
    owners_apply,
    owners_declared,
    owners_preview,
    sections_text,
    team_ending,
    teams_declared,
)
from billing.tenancy.access import Access, Right
from billing.tenancy.models import AuditEntry, BillingMode, ConsumerOwnership, NamespaceOwnership, Team
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.closing import close, issue
from tests.full_scenario import build_scenario, pleasant

pytestmark = pytest.mark.django_db
CLAIM = "ownership:\n- {cluster: hq-1, namespace: lab, team: cv, valid_from: '2026-10-01'}\n"


def october() -> BillingPeriod:
    return period_open(month="2026-10")


def lab() -> None:
    """8 H800 for 2 h 37 min 13 s in a namespace that nobody owns: 75,464 device-seconds, 209.62 at 10.00 an hour."""
    ingest_allocations(allocation_record(901, namespace="lab"))


def test_a_claim_shows_hours_and_money_before_it_is_saved_and_changes_nothing(tmp_path: Path) -> None:
    apply(tmp_path)
    lab()
    found = owners_preview(text=CLAIM, name="form", actor="ann", periods=[october()])
    assert found.applied.changes == ["hq-1/lab -> cv from 2026-09-30T16:00:00+00:00"]
    share = Share(Decimal(75464), Decimal(0), Decimal("209.62"))
    assert [(row.month, row.kind, row.payer, row.before, row.after) for row in found.moved] == [
        ("2026-10", "team", "cv", Share(), share), ("2026-10", "nobody", "", share, Share()),
    ]  # fmt: skip
    assert not NamespaceOwnership.objects.filter(namespace="lab").exists()
    owners_apply(text=CLAIM, name="form", actor="ann")
    assert NamespaceOwnership.objects.get(namespace="lab").team.code == "cv"


def test_late_usage_of_a_closed_month_moves_with_its_hours_in_the_month_that_bills_it(tmp_path: Path) -> None:
    build_scenario(tmp_path, pleasant)  # October is closed: what is reported of it now is billed in November
    lab()
    found = owners_preview(text=CLAIM, name="form", actor="ann", periods=[period_open(month="2026-11")])
    team, nobody = found.moved
    assert (team.payer, team.before, team.after) == ("cv", Share(), Share(Decimal(75464), Decimal(0), Decimal("209.62")))
    assert (nobody.kind, nobody.before.gpu_seconds - nobody.after.gpu_seconds) == ("nobody", Decimal(75464))


def test_what_a_page_shows_as_yaml_is_what_apply_finds_unchanged(tmp_path: Path) -> None:
    apply(tmp_path, teams=[
        {"code": "lab", "name": "Lab", "group": "true"}, {"code": "nlp", "name": "NLP: 研究", "parent": "lab"},
        {"code": "cv", "name": "Vision", "cost_center": "0220", "legal_entity": "No", "recipient": "on"},
    ])  # fmt: skip
    teams = teams_declared(Team.objects.all())
    rows = owners_declared(NamespaceOwnership.objects.order_by("id"), ConsumerOwnership.objects.order_by("id"))
    path = tmp_path / "shown.yaml"
    path.write_text(sections_text({"teams": teams, **rows}))
    applied = set_up_apply(path=path, actor="ann")
    assert (applied.changes, applied.unchanged) == ([], 8)  # four teams with the platform's, four owners


def test_a_group_can_be_named_and_put_below_another(tmp_path: Path) -> None:
    apply(tmp_path, teams=[
        {"code": "research", "name": "Research", "group": "true"},
        {"code": "labs", "name": "Labs", "group": "true", "parent": "research"}, {"code": "nlp", "parent": "labs"},
        {"code": "cv"},
    ])  # fmt: skip
    facts = Team.objects.exclude(code="platform").values_list("code", "name", "is_group", "parent__code")
    assert list(facts) == [
        ("cv", "cv", False, None), ("labs", "Labs", True, "research"), ("nlp", "nlp", False, "labs"),
        ("research", "Research", True, None),
    ]  # fmt: skip


def test_a_team_never_comes_below_itself_whatever_is_stored_already(tmp_path: Path) -> None:
    apply(tmp_path, teams=[{"code": "nlp"}, {"code": "cv", "parent": "nlp"}])
    with pytest.raises(SetUpFileError, match=r"form line 2: teams\[0\].parent: 'nlp' would be above itself"):
        owners_apply(text="teams:\n- {code: nlp, parent: cv}\n", name="form", actor="ann")
    assert Team.objects.get(code="nlp").parent is None


def test_a_team_with_usage_of_its_own_becomes_no_group(tmp_path: Path) -> None:
    """Groups get no invoice: the 209.62 of October would be in no list and no total, though somebody owes them."""
    apply(tmp_path, ownership=[{"cluster": "hq-1", "namespace": "lab", "team": "cv"}])
    lab()
    close()
    issue()
    for code in ("cv", "nlp"):  # of nlp a consumer
        with pytest.raises(SetUpFileError, match=rf"form line 2: teams\[0\].group: '{code}' owns usage or was billed"):
            owners_apply(text=f"teams:\n- {{code: {code}, group: true}}\n", name="form", actor="ann")
    assert [invoice.total for invoice in Invoice.objects.filter(team__in=Access(frozenset(Right)).teams())] == [
        Decimal("209.62")
    ]


WRONG_FILES = {
    "teams:\n- {code: x}\nchanels: []": "line 3: chanels: is no field here",
    "teams: {code: x}": "line 1: teams: must be a list, not fields",
    "budgets:\n- team: nlp\n  period: month\n  amount: much": "line 4: budgets[0].amount: 'much' must be",
    "price_versions:\n- name: 2026-11\n  valid_from: 2026-10-01\n  gpu:\n  - {accelerator: H, price_per_gpu_hour: 1}": (
        "line 2: price_versions[0]: price version 2026-11 overlaps another one"
    ),
    "price_versions:\n- name: 2026-11\n  valid_from: 2026-11-01\n  gpu:\n  - accelerator: H\n    price_per_gpu_hour: x": (
        "line 6: price_versions[0].gpu[0].price_per_gpu_hour: 'x' must be"
    ),
    "cost_sheets:\n- {name: own, accelerator: H}": "line 2: cost sheet own: currency: is missing",
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRONG_FILES.items())
def test_an_error_of_a_file_names_the_line_and_the_field(tmp_path: Path, text: str, said: str) -> None:
    apply(tmp_path)
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(SetUpFileError) as refused:
        set_up_apply(path=path, actor="ann")
    assert str(refused.value).startswith(f"{path} {said}")


ONLY = "only teams, ownership, platform, consumers, channels, budgets are changed here"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("prices: []", f"prices: {ONLY}"),
        ("billing: {currency: USD}", f"billing: {ONLY}"),
        ("teams:\n- {code: x, colour: red}", "line 2: teams[0].colour: is no field here"),
        ("teams: [", "line 1: "),
    ],
)
def test_a_text_that_changes_anything_else_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    apply(tmp_path)
    with pytest.raises(SetUpFileError) as refused:
        owners_apply(text=text, name="form", actor="ann")
    assert rule in str(refused.value)


def test_a_table_of_teams_becomes_the_section(tmp_path: Path) -> None:
    apply(tmp_path)
    table = "code,name,cost_center,parent\nspeech,Speech 语音,0310,\nasr,ASR,,speech\n"
    text = file_text(table.encode("utf-8-sig"), "teams.csv")
    owners_apply(text=text, name="teams.csv", actor="ann")
    assert list(Team.objects.filter(code__in=("asr", "speech")).values_list("name", "cost_center", "parent__code")) == [
        ("ASR", "", "speech"), ("Speech 语音", "0310", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"team,name\n", "x.csv: the first row names its columns: code, and any of "),
        (b"code,code\n", "x.csv: the first row names its columns: code, and any of "),
        (b"", "x.csv: the first row names its columns: code, and any of "),
        (b"code,name\na\n", "x.csv line 2: not as many cells as the first row"),
        (b"code\na,b\n", "x.csv line 2: not as many cells as the first row"),
        (b'code\n"a\n', "x.csv line 1: unexpected end of data"),
        (b"code\n\xff\n", "x.csv: not UTF-8 at byte 5"),
    ],
)
def test_a_table_that_is_none_is_refused(content: bytes, rule: str) -> None:
    with pytest.raises(SetUpFileError) as refused:
        file_text(content, "x.csv")
    assert rule in str(refused.value)


def until(namespace: str) -> list[tuple[str, datetime | None, datetime | None]]:
    rows = NamespaceOwnership.objects.filter(namespace=namespace).order_by("valid_from")
    return [(row.team.code, row.valid_from, row.valid_until) for row in rows]


def test_a_team_that_ends_hands_on_what_it_owns_from_a_day(tmp_path: Path) -> None:
    apply(tmp_path)
    begun, day = datetime(2025, 12, 31, 16, tzinfo=UTC), datetime(2026, 10, 31, 16, tzinfo=UTC)
    owners_apply(text=sections_text(team_ending("nlp", day, "cv")), name="form", actor="ann")
    assert until("nlp-*") == [("nlp", begun, day), ("cv", day, None)]
    assert until("cv") == [("cv", begun, None)]
    consumers = ConsumerOwnership.objects.order_by("valid_from").values_list("team__code", "valid_from", "valid_until")
    assert list(consumers) == [("nlp", begun, day), ("cv", day, None)]


def test_a_team_that_ends_without_successor_leaves_its_usage_without_owner_from_then_on(tmp_path: Path) -> None:
    apply(tmp_path)
    begun, day = datetime(2025, 12, 31, 16, tzinfo=UTC), datetime(2026, 10, 31, 16, tzinfo=UTC)
    owners_apply(text=sections_text(team_ending("cv", day, "")), name="form", actor="ann")
    assert until("cv") == [("cv", begun, day)]


@pytest.fixture
def admin(tmp_path: Path, client: Client) -> Client:
    apply(tmp_path)
    client.force_login(person("ann", "admin"))
    return client


def saved(client: Client, looked: str) -> int:
    """The status of the answer to the button of a preview, with the text that is in its hidden field."""
    text = re.search(r'<input type="hidden" name="text" value="([^"]*)"', looked, re.DOTALL)
    assert text is not None, looked[:2000]
    return client.post("/ownership/apply/", {"text": unescape(text[1])}).status_code


def test_an_unowned_namespace_is_claimed_from_where_it_is_seen(admin: Client) -> None:
    lab()
    link = '/ownership/claim/?kind=namespace&amp;place=hq-1&amp;name=lab&amp;valid_from=2026-10-01'
    for address in ("/ownership/?month=2026-10", "/close/?month=2026-10"):
        assert link in admin.get(address).content.decode(), address
    form = admin.get(unescape(link)).content.decode()
    assert 'name="name" value="lab"' in form
    sent = {"kind": "namespace", "place": "hq-1", "name": "lab", "team": "cv", "valid_from": "2026-10-01"}
    looked = admin.post("/ownership/look/claim/", sent).content.decode()
    cells = re.sub(r"<[^>]*>|\s+", " ", looked).split()
    assert [cells.count(figure) for figure in ("209.62", "21.0")] == [2, 2]  # from nobody, to Vision
    assert not NamespaceOwnership.objects.filter(namespace="lab").exists()
    assert saved(admin, looked) == 302
    row = NamespaceOwnership.objects.get(namespace="lab")
    assert (row.team.code, row.valid_from, row.valid_until) == ("cv", datetime(2026, 9, 30, 16, tzinfo=UTC), None)
    entry = AuditEntry.objects.get(action="namespaceownership_put", subject="hq-1/lab")
    assert (entry.actor, entry.detail["acting"]["channel"]) == ("ann", "portal")
    assert link not in admin.get("/ownership/?month=2026-10").content.decode()


def test_a_consumer_is_claimed_by_the_same_form(admin: Client) -> None:
    sent = {"kind": "consumer", "place": "litellm-hq", "name": "cv-*", "team": "cv", "valid_from": ""}
    assert saved(admin, admin.post("/ownership/look/claim/", sent).content.decode()) == 302
    assert ConsumerOwnership.objects.get(consumer="cv-*").team.code == "cv"


def test_a_team_is_made_renamed_put_below_a_group_and_ended_by_form(admin: Client) -> None:
    for sent in (
        {"code": "labs", "name": "Labs", "group": "on"},
        {"code": "cv", "name": "Vision 2", "cost_center": "CC-9", "parent": "labs"},
    ):
        assert saved(admin, admin.post("/ownership/look/team/", sent).content.decode()) == 302
    team = Team.objects.get(code="cv")
    assert (team.name, team.cost_center, team.is_group, team.parent and team.parent.code) == (
        "Vision 2", "CC-9", False, "labs",
    )  # fmt: skip
    page = admin.get("/ownership/teams/?edit=cv").content.decode()
    assert 'name="cost_center" value="CC-9"' in page
    assert "- code: labs\n  name: Labs\n  group: &#x27;true&#x27;\n" in page
    ended = admin.post("/ownership/look/end/", {"team": "cv", "successor": "nlp", "day": "2026-11-01"})
    assert saved(admin, ended.content.decode()) == 302
    assert [row[0] for row in until("cv")] == ["cv", "nlp"]


def test_teams_come_from_a_file(admin: Client) -> None:
    file = SimpleUploadedFile("teams.csv", b"code,name\nasr,Speech\n")
    assert saved(admin, admin.post("/ownership/look/file/", {"file": file}).content.decode()) == 302
    assert Team.objects.get(code="asr").name == "Speech"


def test_a_file_above_the_limit_is_refused_and_not_cut(admin: Client) -> None:
    """The beginning of a table is a table, too."""
    rows = b"code,name\n" + b"".join(b"t%06d,%s\n" % (n, "队".encode() * 15) for n in range(20_000))
    file = SimpleUploadedFile("teams.csv", rows)
    page = admin.post("/ownership/look/file/", {"file": file}).content.decode()
    assert "teams.csv: larger than 1048576 bytes" in unescape(page)
    assert "t000000" not in page


@pytest.mark.parametrize(
    ("kind", "sent", "rule"),
    [
        ("claim", {"kind": "namespace", "place": "hq-1", "name": "x", "team": "gone"}, "there is no such team"),
        ("claim", {"kind": "consumer", "place": "g", "name": "x", "team": "cv", "platform": "on"}, "only a namespace may"),
        ("claim", {"kind": "namespace", "place": "hq-1", "name": "cv", "team": "nlp", "valid_from": "2025-01-01",
                   "valid_until": "2026-02-01"}, "another owner is already set for part of that time"),
        ("claim", {"kind": "namespace", "place": "hq-1", "name": "cv", "team": "nlp", "valid_from": "2026-02-01",
                   "valid_until": "2026-01-01"}, "must be after valid_from"),
        ("team", {"code": "nlp", "name": "n", "parent": "nlp"}, "would be above itself"),
        ("end", {"team": "cv", "successor": "cv", "day": "2026-11-01"}, "must be another team"),
        ("file", {"file": SimpleUploadedFile("x.yaml", b"billing: {currency: USD}")}, "only teams, ownership, platform,"),
    ],
)  # fmt: skip
def test_a_form_is_refused_with_the_reason_and_stores_nothing(admin: Client, kind: str, sent: Any, rule: str) -> None:
    before = AuditEntry.objects.count()
    answer = admin.post(f"/ownership/look/{kind}/", sent)
    assert answer.status_code == 409
    assert rule in unescape(answer.content.decode())
    assert AuditEntry.objects.count() == before


def test_the_table_of_teams_can_be_uploaded_again(admin: Client) -> None:
    table = admin.get("/ownership/teams/?table=teams&as=csv").content
    assert table.decode("utf-8-sig").splitlines()[:2] == [
        "code,name,cost_center,parent,group,legal_entity,recipient,department", "cv,Vision,CC-220,,false,,,",
    ]  # fmt: skip
    sent = {"file": SimpleUploadedFile("teams.csv", table)}
    assert "Nothing changes." in admin.post("/ownership/look/file/", sent).content.decode()


def test_who_may_not_operate_sees_teams_without_forms(tmp_path: Path, client: Client) -> None:
    apply(tmp_path, teams=[{"code": "nlp", "parent": "labs"}, {"code": "cv"}])
    client.force_login(person("lea", "lead", team="nlp"))
    page = client.get("/ownership/teams/").content.decode()
    assert "nlp" in page
    assert "- code: nlp" in page
    assert "- code: cv" not in page
    assert "/ownership/look/" not in page


def test_a_namespace_without_owner_becomes_a_team_in_one_form(tmp_path: Path) -> None:
    apply(tmp_path)
    lab()
    admin = signed_in(person("ada", "admin"))
    asked = {"kind": "namespace", "place": "hq-1", "name": "lab", "valid_from": "2026-10-01"}
    nobody = admin.post("/ownership/look/claim/", asked)
    assert (nobody.status_code, "choose a team, or name a new one" in nobody.content.decode()) == (409, True)
    both = admin.post("/ownership/look/claim/", {**asked, "team": "cv", "new_team": "lab"})
    assert (both.status_code, "choose one of the two" in both.content.decode()) == (409, True)
    shown = admin.post("/ownership/look/claim/", {**asked, "new_team": "lab"})
    assert shown.status_code == 200
    text = "teams:\n- code: lab\n  name: lab\nownership:\n- cluster: hq-1\n  namespace: lab\n  team: lab\n"
    text += "  valid_from: '2026-10-01'\n"
    assert text in unescape(shown.content.decode())
    answer = admin.post("/ownership/apply/", {"text": text})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/ownership/")
    assert NamespaceOwnership.objects.get(namespace="lab").team.code == "lab"


def test_an_approver_has_all_teams_only_shown_from_an_open_month_on(tmp_path: Path) -> None:
    apply(tmp_path)
    wish = {"team": "", "mode": "shadow", "from_month": "2026-10", "reason": "a first look"}
    assert signed_in(person("ada", "admin")).post("/ownership/teams/mode/", wish).status_code == 403
    approver = signed_in(person("wang", "approver"))
    refused = approver.post("/ownership/teams/mode/", {**wish, "from_month": "2026-13"})
    assert (refused.status_code, BillingMode.objects.count()) == (409, 0)
    assert approver.post("/ownership/teams/mode/", wish).status_code == 302
    teams = set(Team.objects.filter(is_group=False).values_list("code", flat=True))
    assert set(BillingMode.objects.values_list("team__code", "from_month", "mode", "set_by")) == {
        (team, "2026-10", "shadow", "wang") for team in teams
    }
    assert approver.post("/ownership/teams/mode/", {**wish, "team": "nlp", "mode": "chargeback"}).status_code == 302
    page = approver.get("/ownership/teams/").content.decode()
    assert page.count('<span\n        class="pill wait">Only shown') == len(teams) - 1
