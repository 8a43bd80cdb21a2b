"""What pages show and the files they offer, as somebody reads them."""

import csv
import io
from html import unescape
from pathlib import Path
from typing import Any

from django.test import Client

from billing.portal.months import period_shown
from billing.portal.statements import MonthStatements, month_statements
from billing.tenancy.models import BillingSetup, Team


def text_of(client: Client, address: str) -> str:
    """The page, without entities."""
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return unescape(response.content.decode())


def rows_of(client: Client, address: str) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return csv_rows(response.content)


def csv_rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def file_rows(path: Path) -> list[dict[str, str]]:
    return csv_rows(path.read_bytes())


def statements_of(month: str = "2026-10", **teams: Any) -> MonthStatements:
    """What pages say of a month: of nlp unless other teams are asked for."""
    found = Team.objects.filter(**(teams or {"code": "nlp"}))
    return month_statements(period_shown(month, BillingSetup.objects.get()), found)
