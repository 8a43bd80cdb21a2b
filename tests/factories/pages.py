"""What pages show and the files they offer, as somebody reads them."""

import csv
import io
from html import unescape

from django.test import Client


def text_of(client: Client, address: str) -> str:
    """The page, without entities."""
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return unescape(response.content.decode())


def rows_of(client: Client, address: str) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return list(csv.DictReader(io.StringIO(response.content.decode("utf-8-sig"))))
