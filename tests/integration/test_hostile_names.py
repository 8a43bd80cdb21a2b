"""Whatever people and programs call things, no page runs it, no file calculates it, and nobody else reads it.

Many pages of each kind are read by finance and by leads, and some of each by every role, in a company whose every
name is an attack (`tests.full_scenario`).
A page of the URL configuration that no link and no seed reaches fails the test, so that a new one is read too.
"""

import csv
import io
import re
import zipfile
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import openpyxl
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from django.urls import resolve

from tests.factories.roles import MATRIX
from tests.full_scenario import PEOPLE, Scenario, build_scenario
from tests.site_walk import EACH, Page, Walk, read, walk_as

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
ATTACK = "=1*1\"'><img src=x onerror=alert(1)>"
OWN_FORMULA = re.compile(r"=(SUM\([A-Z]+\d+([:,][A-Z]+\d+)*\)|'[^']*'![A-Z]+\d+|0)")
SHOWN = {
    "accelerator", "budget", "channel", "cluster", "consumer", "cost-centre", "dispute", "draft", "evidence", "feedback",
    "fix", "issuer", "model", "mute", "namespace", "nobodys", "owner", "pod", "policy", "priceless", "proof", "question",
    "reason", "sheet", "source", "stranger", "team", "ticket", "triage", "version", "why", "workload",
}  # fmt: skip


def hostile(kind: str) -> str:
    """A name that a spreadsheet calculates and a careless page runs. It begins with what it is, after the equals sign."""
    return f"={kind}{ATTACK}"


FULLY, MANY = ("finance", "lead", "other"), 12
"""Of whom so many pages of each kind are read; the others see what finance sees with other buttons, so a few of each do."""


@pytest.fixture(scope="module")
def scenario(for_all_tests: Path) -> Scenario:
    return build_scenario(for_all_tests, hostile)


@pytest.fixture(scope="module")
def walks(scenario: Scenario) -> dict[str, Walk]:
    return {who: walk_as(who, scenario, most=MANY if who in FULLY else EACH) for who in [*PEOPLE, "other"]}


def test_no_page_runs_what_somebody_called_something(walks: dict[str, Walk]) -> None:
    assert [alarm for walk in walks.values() for alarm in walk.alarms] == []


def test_the_walks_read_every_page_there_is(walks: dict[str, Walk]) -> None:
    reached = {resolve(urlsplit(address).path).route for walk in walks.values() for address in [*walk.pages, *walk.files]}
    pages = {route for route, (method, _) in MATRIX.items() if method == "GET" and not route.startswith("api/")}
    apart = {"healthz", "readyz", "metrics", "login/", "operations/<int:pk>/", "teams/<str:code>/evidence/"}
    assert pages - reached - apart == set()


def test_the_attacks_were_there_to_be_seen(walks: dict[str, Walk]) -> None:
    """Each kind of name is on a page, as text."""
    text = "\n".join(page.text for walk in walks.values() for page in walk.pages.values())
    seen = {kind for kind in SHOWN if hostile(kind)[: 12 + len(kind)] in text}
    assert seen == SHOWN


def test_a_lead_of_another_team_reads_nothing_of_this_one(walks: dict[str, Walk]) -> None:
    other = walks["other"]
    reported = "\n".join(page.text for page in other.pages.values()) + str(list(other.files.values()))
    private = ["team", "namespace", "consumer", "budget", "owner", "cluster", "dispute", "reason", "workload", "mute"]
    assert [kind for kind in private if f"={kind}=" in reported] == []
    assert "AI-INFRA-2026-000002" not in reported


def test_what_the_address_says_is_shown_and_never_run(walks: dict[str, Walk], scenario: Scenario) -> None:
    """Every parameter of every page, from links and search forms, with an attack for a value."""
    names: dict[str, set[str]] = {}
    for address, page in walks["finance"].pages.items():
        path = urlsplit(address).path
        names.setdefault(path, set()).update(name for name, _ in parse_qsl(urlsplit(address).query))
        for method, _, fields in page.forms:
            if method == "get":
                names[path].update(fields)
    client, walk = Client(), Walk()
    client.force_login(User.objects.get(username="finance"))
    for path, parameters in names.items():
        for parameter in parameters:
            read(client, f"{path}?{urlencode({parameter: ATTACK})}", walk)
    assert (walk.alarms, len(walk.pages) > 50) == ([], True)


def test_what_a_form_says_is_refused_or_kept_and_never_run(walks: dict[str, Walk], scenario: Scenario) -> None:
    """Every field of every form of every role, with an attack for a value; the answer and the page after it."""
    for who in PEOPLE:
        client = Client()
        client.force_login(User.objects.get(username=who))
        forms = {(urlsplit(action).path or urlsplit(address).path, tuple(fields))
                 for address, page in walks[who].pages.items() for method, action, fields in page.forms
                 if method == "post"}  # fmt: skip
        for path, fields in sorted(forms):
            if path in ("/logout/", "/i18n/setlang/") or path.startswith("/account/"):
                continue
            with transaction.atomic():
                response = client.post(path, dict.fromkeys(fields, ATTACK), follow=True)
                transaction.set_rollback(True)
            page = Page(address=path)
            kind = response.headers.get("Content-Type", "")
            body = b"".join(response) if response.streaming else response.content
            if path.endswith("/accrual/"):
                assert kind.startswith("text/csv"), "a file for a ledger, which takes every text as it is"
            elif kind.startswith("text/csv"):  # a form that answers with a file
                assert cells_that_calculate(body) == [], (who, path)
            elif kind == "application/zip":
                assert sheets_that_calculate(body) == [], (who, path)
            else:
                page.feed(body.decode(errors="replace"))
            assert (page.alarms, response.status_code < 500) == ([], True), (who, path)


def cells_that_calculate(body: bytes) -> list[str]:
    rows = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""))
    numeric = re.compile(r"[-+]?[\d.,]+%?")
    return [cell for row in rows for cell in row
            if cell.lstrip().startswith(("=", "+", "-", "@", "\t")) and not numeric.fullmatch(cell.strip())]  # fmt: skip


def sheets_that_calculate(body: bytes) -> list[str]:
    """The CSV files of an archive with a cell that calculates."""
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return [name for name in archive.namelist()
                if name.endswith(".csv") and cells_that_calculate(archive.read(name))]  # fmt: skip


def test_no_file_calculates_what_somebody_called_something(walks: dict[str, Walk], tmp_path: Path) -> None:
    """Every CSV and workbook that a page offers, and those that commands write."""
    files = {address: body for walk in walks.values() for address, body in walk.files.items()}
    types = {address: kind for walk in walks.values() for address, kind in walk.types.items()}
    sheets = {address: body for address, body in files.items() if types[address].startswith("text/csv")}
    reference_data = {address: body for address, body in files.items() if "spreadsheetml" in types[address]}
    assert (len(sheets) >= 2, len(reference_data) >= 2) == (True, True)
    call_command("export_journal", "2026-10", "--spreadsheet", "--out", str(tmp_path / "journal.csv"))
    call_command("export_focus", "2026-10", "--out", str(tmp_path / "focus"))
    call_command("export_invoices", "2026-10", "--out", str(tmp_path / "invoices"))
    sheets |= {path.name: path.read_bytes() for path in tmp_path.rglob("*.csv")}
    assert {name: cells_that_calculate(body) for name, body in sheets.items() if cells_that_calculate(body)} == {}
    assert any(b"'=" in body for body in sheets.values()), "an attack was there and was made harmless"
    for name, body in reference_data.items():
        for sheet in openpyxl.load_workbook(io.BytesIO(body)).worksheets:
            formulas = [cell.value for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
            strange = [text for text in formulas if not OWN_FORMULA.fullmatch(str(text))]
            assert strange == [], name
            assert not any(cell.hyperlink for row in sheet.iter_rows() for cell in row)
