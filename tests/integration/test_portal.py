"""The pages: who sees what, the same figures at every level, and nothing from outside ever runs in a browser."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.closing.services.closing import period_close
from billing.closing.services.operations import operation_run
from billing.closing.services.showback import billing_mode_put
from billing.invoices.models import BillingPeriod, Invoice, Operation
from billing.invoices.selectors import document_of
from billing.invoices.services.invoices import invoice_rebuild, invoice_void, invoices_issue
from billing.portal import drilldown
from billing.portal.statements import MonthStatements, Statement, StatementLine
from billing.runtime.canonical_json import canonical_json, document_hash
from billing.tenancy.models import Membership, Team
from billing.usage.store.clickhouse import token_servers
from tests import factories
from tests.factories import AFTER, SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories.pages import statements_of
from tests.factories.usage import POLICY, sample

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
MONTH = "2026-10"
@pytest.fixture(scope="module")
def month(for_all_tests: Path) -> str:
    """Two teams: devices of three workloads over three local days, tokens of three hours, one rewarded job."""
    apply(for_all_tests, efficiency_policies=[POLICY], budgets=[{"team": "nlp", "period": "month", "amount": "2000.00"}])
    until = "2026-10-12T17:00:01Z"
    ingest_allocations(
        allocation_record(1, workload={"kind": "PyTorchJob", "name": "pretrain"}),
        allocation_record(2, quantity=1, workload={"kind": "Job", "name": "evaluate"}, ended_at=until,
                          observed_until=until),
        allocation_record(3, ended_at="2026-10-10T00:00:07Z", observed_until="2026-10-10T00:00:07Z"),
        allocation_record(4, namespace="cv", quantity=3),
        allocation_record(5, namespace="serving"),
    )  # fmt: skip
    ingest_tokens(
        token_record(1, input_tokens=1_434_567, output_tokens=345_678),
        token_record(2, input_tokens=3_333_333, time="2026-10-15T13:59:59+08:00"),
        token_record(3, input_tokens=7_777_777, time="2026-10-31T23:59:59+08:00"),
    )
    sample("2026-10-10T00:00:00Z", "2026-10-10T02:37:13Z", "75464", "0.55", "0.6")
    return MONTH


@pytest.fixture
def closed_month(month: str, db: None) -> str:
    period_close(month=month, actor="closer", now=AFTER)
    return month


def signed_in(name: str, *teams: str, staff: bool = False) -> Client:
    user = User.objects.create_user(name)
    if staff:
        Membership.objects.create(user=user, role="finance")
    for code in teams:
        Membership.objects.create(user=user, team=Team.objects.get(code=code))
    return factories.signed_in(user)


def statements(month: str) -> MonthStatements:
    return statements_of(month, is_group=False)


def of_team(month: MonthStatements, code: str) -> Statement:
    return next(statement for statement in month.statements if statement.team.code == code)


def lines_of(month: str, code: str, kind: str) -> list[StatementLine]:
    return [line for line in of_team(statements(month), code).lines if line.key.kind == kind]


def addresses(month: str, invoice: Invoice | None, line: StatementLine) -> list[str]:
    """Every page that shows something of one team."""
    own = [
        f"/teams/{line.key.team}/?month={month}",
        f"/teams/{line.key.team}/lines/{line.digest}/?month={month}",
        f"/teams/{line.key.team}/lines/{line.digest}/?month={month}&workload=pod%2Fuid-4",
    ]
    if invoice is None:
        return own
    files = [f"/invoices/{invoice.pk}/download.{kind}" for kind in ("pdf", "csv", "xlsx", "json")]
    return [*own, f"/invoices/{invoice.pk}/", *files]


def test_who_has_to_sign_in_before_a_form_is_taken_reads_that_nothing_was_saved(client: Client, tmp_path: Path) -> None:
    apply(tmp_path)
    User.objects.create_superuser("mei", password="abacus-2026")
    signed_out = client.post("/corrections/changes/new/", {"kind": "price"})
    assert signed_out["Location"] == "/login/?next=/corrections/changes/new/"
    answer = client.post(signed_out["Location"], {"login": "mei", "password": "abacus-2026"}, follow=True)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert "<h1>Nothing was saved</h1>" in answer.content.decode()
    assert client.head("/corrections/changes/new/").content == b""


def test_signing_in_leads_to_the_overview_and_out_again(client: Client) -> None:
    User.objects.create_user("mei", password="abacus-2026")

    assert client.get("/login/").status_code == 200
    assert "alert" in client.post("/login/", {"login": "mei", "password": "wrong"}).content.decode()
    assert client.post("/login/", {"login": "mei", "password": "abacus-2026"})["Location"] == "/"
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/").status_code == 302


def test_an_empty_installation_says_what_to_do(tmp_path: Path) -> None:
    client = signed_in("finance", staff=True)
    for path in ("/overview/", "/close/", "/prices/", "/ownership/", "/invoices/", "/quarantine/"):
        assert "manage.py apply FILE" in client.get(path).content.decode()

    apply(tmp_path)

    assert "manage.py import_usage" in client.get("/overview/").content.decode()
    assert "No invoices yet" in client.get("/invoices/").content.decode()
    assert client.get("/close/?month=2026-10").status_code == 200


def test_two_prices_in_one_month_are_two_lines_that_add_up(tmp_path: Path) -> None:
    first = SET_UP["price_versions"][0]
    second = {**first, "name": "2026-10b", "valid_from": "2026-10-10T09:00:00+08:00"}
    apply(tmp_path, price_versions=[first, second])
    ingest_allocations(allocation_record(1))
    ingest_tokens(token_record(1, time="2026-10-10T08:30:00+08:00"), token_record(2, time="2026-10-10T09:30:00+08:00"))
    shown = statements(MONTH)

    for line in of_team(shown, "nlp").lines:
        scope = drilldown.scope_of(line, shown.period)
        tokens = line.key.kind == "tokens"
        level = drilldown.days_of_tokens(line, scope) if tokens else drilldown.workloads(line, scope)
        assert_adds_up(level, line.quantity, line.amount)
    assert [line.quantity for line in lines_of(MONTH, "nlp", "gpu")] == [Decimal("8.000000"), Decimal("12.962222")]


def test_each_document_proves_itself_and_no_other(tmp_path: Path) -> None:
    """nlp is charged November and only shown October, also what came late of it; its first draft of November was voided."""
    apply(tmp_path)
    person("app", "approver")
    for first, mode in (("2026-10", "shadow"), ("2026-11", "chargeback")):
        billing_mode_put(team="nlp", from_month=first, mode=mode, reason="first", actor="app", now=AFTER)
    ingest_allocations(allocation_record(1, ended_at="2026-10-10T10:00:00Z", observed_until="2026-10-10T10:00:00Z"))
    period_close(month="2026-10", actor="closer", now=AFTER)
    ingest_allocations(
        allocation_record(2, ended_at="2026-10-10T12:00:00Z", observed_until="2026-10-10T12:00:00Z"),
        allocation_record(3, started_at="2026-11-10T00:00:00Z", ended_at="2026-11-10T01:00:00Z",
                          observed_until="2026-11-10T01:00:00Z"),
    )  # fmt: skip
    period_close(month="2026-11", actor="closer", now=datetime(2026, 12, 3, tzinfo=UTC))
    voided = invoice_void(month="2026-11", team="nlp", reason="looked at again", actor="closer")
    invoice_rebuild(month="2026-11", team="nlp", actor="closer")
    client = signed_in("finance", staff=True)
    live = Invoice.objects.filter(period__month="2026-11").exclude(status="void")
    proofs = {
        document_hash(canonical_json(document_of(found))): client.post(f"/invoices/{found.pk}/proof/").content.decode()
        for found in live
    }
    assert len(proofs) == 2
    for digest, page in proofs.items():
        assert page.count(digest) == 2
    assert "/proof/" not in client.get(f"/invoices/{voided.pk}/").content.decode()
    assert client.post(f"/invoices/{voided.pk}/proof/").status_code == 404


def test_missing_pages_look_like_the_installation() -> None:
    response = signed_in("guest").get("/nowhere/")

    assert response.status_code == 404
    assert "There is nothing here" in response.content.decode()


def test_pages_take_few_queries_however_many_teams_there_are(tmp_path: Path) -> None:
    codes = [f"team-{number:02d}" for number in range(40)]
    owners = [{"cluster": "hq-1", "namespace": code, "team": code, "valid_from": "2026-01-01"} for code in codes]
    teams = [{"code": code, "name": code} for code in codes]
    apply(tmp_path, teams=teams, ownership=owners, consumers=[], efficiency_policies=[POLICY])
    ingest_allocations(*(allocation_record(n, namespace=code) for n, code in enumerate(codes)))
    client = signed_in("finance", staff=True)
    line = lines_of(MONTH, "team-00", "gpu")[0]
    below = ["/overview/", "/explorer/", "/teams/team-00/", f"/teams/team-00/lines/{line.digest}/", "/close/", "/ownership/",
             "/prices/", "/late/"]  # fmt: skip

    for closed in (False, True):
        if closed:
            period_close(month=MONTH, actor="closer", now=AFTER)
            below.append("/invoices/")
        client.get("/explorer/", {"month": MONTH})  # the first reader has the sums of the month made
        for path in below:
            with CaptureQueriesContext(connection) as queries:
                assert client.get(path, {"month": MONTH}).status_code == 200
            most = 61 if path == "/close/" else 32  # a report asks one question per check
            most += 31 if path == "/close/" and token_servers() else 0  # ClickHouse is compared day by day
            assert len(queries) <= most, (path, closed, len(queries))


def test_reading_a_page_stores_nothing(month: str) -> None:
    client = signed_in("finance", staff=True)
    for path in ("/overview/", "/close/", "/teams/nlp/"):
        assert client.get(f"{path}?month={month}").status_code == 200

    assert not BillingPeriod.objects.exists()


def test_the_overview_opens_at_the_newest_month_with_usage(month: str) -> None:
    assert "<h1>2026-10</h1>" in signed_in("finance", staff=True).get("/overview/").content.decode()


def test_a_member_sees_only_the_own_team(closed_month: str) -> None:
    invoice = Invoice.objects.get(team__code="cv")
    line = lines_of(closed_month, "cv", "gpu")[0]
    cv, nlp, nobody = signed_in("cv-lead", "cv"), signed_in("nlp-lead", "nlp"), signed_in("guest")

    for address in addresses(closed_month, invoice, line):
        assert cv.get(address).status_code == 200, address
        assert nlp.get(address).status_code == 404, address
        assert nobody.get(address).status_code == 403, address
    for path in ("/overview/", "/invoices/", "/ownership/"):
        page = nlp.get(path, {"month": closed_month}).content.decode()
        assert "NLP Research" in page
        assert "Vision" not in page
        assert "63.0" not in page


def test_a_preview_is_as_confined_as_an_invoice(month: str) -> None:
    line = lines_of(month, "cv", "gpu")[0]
    nlp = signed_in("nlp-lead", "nlp")

    assert all(nlp.get(address).status_code == 404 for address in addresses(month, None, line))
    assert "Vision" not in nlp.get("/", {"month": month}).content.decode()
    assert nlp.get(f"/teams/nlp/lines/{line.digest}/", {"month": month}).status_code == 404


def assert_adds_up(breakdown: drilldown.Breakdown, quantity: Decimal, amount: Decimal) -> None:
    assert breakdown.parts
    assert sum(part.quantity for part in breakdown.parts) == breakdown.quantity == quantity
    assert sum(part.amount for part in breakdown.parts) == breakdown.amount == amount


def test_the_workloads_of_a_line_are_the_holds_of_devices(month: str) -> None:
    line = lines_of(month, "nlp", "gpu")[0]
    shown = statements(month)
    workloads = drilldown.workloads(line, drilldown.scope_of(line, shown.period))
    client = signed_in("nlp-lead", "nlp")
    address = f"/teams/nlp/lines/{line.digest}/"

    assert [(part.facts["job"], part.quantity, part.amount) for part in workloads.parts] == [
        ("Job/evaluate", Decimal("65.000278"), Decimal("650.00")),
        ("PyTorchJob/pretrain", Decimal("20.962222"), Decimal("209.62")),
        ("pod/uid-3", Decimal("0.015556"), Decimal("0.16")),
    ]
    page = client.get(address, {"month": month, "workload": "Job/evaluate"}).content.decode()
    assert "alloc-2" in page
    assert "2026-10-13 01:00:01" in page
    assert "65.000278" in page
    assert "alloc-1" not in page
    assert client.get(address, {"month": month, "workload": "Job/none"}).status_code == 404


def test_a_token_line_goes_down_to_its_requests(month: str) -> None:
    line = next(line for line in lines_of(month, "nlp", "tokens") if line.key.token_class == "input")
    client = signed_in("nlp-lead", "nlp")
    address = f"/teams/nlp/lines/{line.digest}/"
    wanted = {"month": month, "day": "2026-10-15", "hour": datetime(2026, 10, 15, 5, tzinfo=UTC).isoformat()}

    page = client.get(address, wanted).content.decode()

    assert "req-2" in page
    assert "3,333,133" in page
    assert "req-1" not in page
    for broken in ({"day": "x"}, {"day": "2026-10-16"}, {**wanted, "hour": "x"}, {**wanted, "hour": "2026-10-15T05:00"}):
        assert client.get(address, {"month": month, **broken}).status_code == 404


def test_a_busy_hour_shows_some_requests_and_the_sum_of_the_rest(month: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drilldown, "ROWS_SHOWN", 2)
    ingest_tokens(*(token_record(n, input_tokens=n, cache_read_input_tokens=0, time="2026-10-20T10:00:00+08:00")
                    for n in range(101, 106)))  # fmt: skip
    line = next(line for line in lines_of(month, "nlp", "tokens") if line.key.token_class == "input")
    page = signed_in("nlp-lead", "nlp").get(
        f"/teams/nlp/lines/{line.digest}/", {"month": month, "day": "2026-10-20", "hour": "2026-10-20T02:00:00+00:00"}
    )

    requests = page.context["requests"]
    assert [part.facts["id"] for part in requests.parts] == ["req-101", "req-102"]
    assert (requests.left_out, requests.rest.usage, requests.usage) == (3, 103 + 104 + 105, 515)
    assert "3 more requests" in page.content.decode()


def test_late_usage_is_shown_as_a_correction_that_adds_up(closed_month: str) -> None:
    ingest_allocations(allocation_record(9), allocation_record(10, started_at="2026-11-02T00:00:00Z",
                                                               ended_at="2026-11-02T01:00:00Z",
                                                               observed_until="2026-11-02T01:00:00Z"))  # fmt: skip
    shown = statements("2026-11")
    late = next(line for line in of_team(shown, "nlp").lines if line.key.correction)
    scope = drilldown.scope_of(late, shown.period)
    page = signed_in("nlp-lead", "nlp").get("/teams/nlp/?month=2026-11").content.decode()

    assert [part.facts["job"] for part in drilldown.workloads(late, scope).parts] == ["pod/uid-9"]
    assert_adds_up(drilldown.workloads(late, scope), late.quantity, Decimal("209.62"))
    assert "late usage of 2026-10" in page
    assert of_team(statements(closed_month), "nlp").total == Invoice.objects.get(team__code="nlp").total


def test_pages_carry_no_inline_script_or_style(closed_month: str) -> None:
    client = signed_in("finance", staff=True)
    invoice = Invoice.objects.get(team__code="nlp")
    for address in ("/overview/", "/teams/nlp/", f"/invoices/{invoice.pk}/", "/close/", "/prices/", "/ownership/"):
        page = client.get(address).content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|javascript:", page), address


def test_pages_are_not_kept_by_caches(month: str) -> None:
    assert signed_in("finance", staff=True).get("/explorer/")["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize("issued", [False, True])
def test_documents_download_as_what_they_are(closed_month: str, issued: bool) -> None:
    if issued:
        invoices_issue(month=closed_month, actor="closer", now=AFTER)
    invoice = Invoice.objects.get(team__code="nlp")
    name = "ai-infra-2026-000002" if issued else "draft-2026-10-nlp"
    client = signed_in("nlp-lead", "nlp")
    kinds = {
        "pdf": ("application/pdf", b"%PDF-"), "csv": ("text/csv; charset=utf-8", b"\xef\xbb\xbf"),
        "xlsx": ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", b"PK"),
        "json": ("application/json", b'{"currency":"CNY"'),
    }  # fmt: skip

    for kind, (content_type, start) in kinds.items():
        response = client.get(f"/invoices/{invoice.pk}/download.{kind}")
        assert response["Content-Type"] == content_type
        assert response["Content-Disposition"] == f'attachment; filename="{name}.{kind}"'
        assert response.content.startswith(start)
    assert client.get(f"/invoices/{invoice.pk}/download.exe").status_code == 404


def test_an_issued_invoice_shows_its_hash_and_proves_itself(closed_month: str) -> None:
    invoices_issue(month=closed_month, actor="closer", now=AFTER)
    invoice = Invoice.objects.get(team__code="nlp")
    client = signed_in("finance", staff=True)

    page = client.get(f"/invoices/{invoice.pk}/").content.decode()
    proof = client.post(f"/invoices/{invoice.pk}/proof/", headers={"HX-Request": "true"}).content.decode()

    assert invoice.number in page
    assert invoice.sha256 in page
    assert "the same to the byte" in proof
    assert proof.count(invoice.sha256) == 2
    assert "<html" not in proof


def test_a_month_says_whose_draft_was_voided_and_is_not_built_again(closed_month: str) -> None:
    """What nlp is charged is in no total then."""
    said = "The draft of nlp was voided and is not built again: what it is charged is in no amount of this page."
    client, cv = signed_in("finance", staff=True), signed_in("cv-lead", "cv")
    pages = [f"/overview/?month={closed_month}", f"/teams/nlp/?month={closed_month}"]

    def shown() -> list[bool]:
        return [said in client.get(page).content.decode() for page in pages]

    assert shown() == [False, False]
    invoice_void(month=closed_month, team="nlp", reason="looked at again", actor="closer")
    assert shown() == [True, True]
    assert said not in cv.get(pages[0]).content.decode()
    invoice_rebuild(month=closed_month, team="nlp", actor="closer")
    assert shown() == [False, False]


def test_closing_and_issuing_leave_an_intent_that_a_worker_brings_about(month: str) -> None:
    client = signed_in("finance", staff=True)
    start = f"/close/{month}/operations/"

    assert client.get(start).status_code == 405
    assert client.post(start, {"kind": "drop"}).status_code == 404
    for kind, said in (("close", "2 invoices drafted"), ("issue", "2 invoices issued")):
        assert client.post(start, {"kind": kind})["Location"] == f"/close/?month={month}"
        client.post(start, {"kind": kind})
        operation = Operation.objects.get(kind=kind)
        waiting = client.get(f"/operations/{operation.pk}/", headers={"HX-Request": "true"})
        assert "every 1500ms" in waiting.content.decode()
        operation_run(operation_id=operation.pk)
        finished = client.get(f"/operations/{operation.pk}/", headers={"HX-Request": "true"})
        assert said in finished.content.decode()
        assert finished["HX-Trigger-After-Swap"] == "operation-finished"
        assert "HX-Refresh" not in finished  # which would lose what somebody types meanwhile
        assert "Show the page as it is now" in finished.content.decode()
        assert said in client.get("/close/", {"month": month}).content.decode()
    assert client.get(f"/?month={month}").content.decode().count("AI-INFRA-2026-00000") == 2


def test_a_form_of_another_site_changes_nothing(month: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(factories.person("finance", "finance"))

    response = client.post(f"/close/{month}/operations/", {"kind": "close"})

    assert response.status_code == 403
    assert "This form has expired" in response.content.decode()
    assert not Operation.objects.exists()


def test_the_close_report_names_what_blocks_the_month(month: str) -> None:
    ingest_allocations(allocation_record(20, namespace="nobodys"), allocation_record(21, accelerator="NVIDIA-B300"))
    page = signed_in("finance", staff=True).get("/close/", {"month": month}).content.decode()

    assert "Not ready: 2 exceptions block the close." in page
    assert "hq-1/nobodys" in page
    assert "NVIDIA-B300" in page
    assert "capacity unknown" in page
    assert "21.0 GPU-h" in page
