"""Walking through the portal: every page and file that the links of an installation (`tests.full_scenario`) reach for a
person."""

import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import Resolver404, resolve

from tests.full_scenario import Scenario

RUNS = re.compile(r"\s*(javascript|data(?!:image/svg\+xml;base64,)|vbscript):", re.IGNORECASE)
MONTHS = {"2026-10", "2026-11"}
FILTERED = ("/spending/", "/audit/", "/search/", "/recovery/", "/explorer/")
"""Pages whose filters combine without end: of each combination of filters some values are tried, up to a limit."""
TRIED, TRIED_IN_ALL = 3, 40


@dataclass
class Page(HTMLParser):
    """What a browser would take from a page: links, forms, and anything that would run."""

    address: str = ""
    links: list[str] = field(default_factory=list)
    forms: list[tuple[str, str, list[str]]] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    text: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def __hash__(self) -> int:
        return id(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        runs = [name for name in facts if name.startswith("on") or name.startswith("hx-on") or name == "srcdoc"]
        strange = [name for name in ("href", "src", "action", "formaction") if RUNS.match(facts.get(name, ""))]
        is_code = tag == "script" and "src" not in facts and facts.get("type") != "application/json"
        if runs or strange or facts.get("src") == "x" or is_code:
            self.alarms.append(f"{self.address}: <{tag} {facts}>")
        if "href" in facts:
            self.links.append(facts["href"])
        if tag == "form":
            self.forms.append((facts.get("method", "get").lower(), facts.get("action", ""), []))
        elif self.forms and tag in ("input", "textarea", "select") and facts.get("name"):
            self.forms[-1][2].append(facts["name"])

    def handle_data(self, data: str) -> None:
        self.text += data


@dataclass
class Walk:
    """All pages and files that a person reaches."""

    pages: dict[str, Page] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    @property
    def alarms(self) -> list[str]:
        return [alarm for page in self.pages.values() for alarm in page.alarms]


def read(client: Client, address: str, walk: Walk) -> Page | None:
    response = client.get(address)
    assert response.status_code < 500, (address, response.status_code)
    body = b"".join(response) if response.streaming else response.content
    if not response.headers.get("Content-Type", "").startswith("text/html"):
        walk.files[address], walk.types[address] = body, response.headers.get("Content-Type", "")
        return None
    page = Page(address=address, source=body.decode())
    page.feed(page.source)
    walk.pages[address] = page
    return page


def seeds(scenario: Scenario) -> list[str]:
    """Where a walk begins: what is reached by a form, or for a month that no link names."""
    return [
        "/?month=2026-10", "/?month=2026-11", "/close/?month=2026-10", "/close/?month=2026-11",
        "/quarantine/?status=dismissed", "/teams/nlp/?month=2026-10", "/teams/nlp/?month=2026-11",
        f"/prices/drafts/{scenario.draft.pk}/effect/?month=2026-10", "/prices/compare/", "/account/2fa/",
        "/prices/workbench/effect/",
    ]  # fmt: skip


def wanted(link: str, base: str) -> str | None:
    """The address behind a link, if it is of this site and of a month of this installation."""
    parts = urlsplit(link)
    path = parts.path or urlsplit(base).path
    months = {value for name, value in parse_qsl(parts.query) if name == "month"}
    leave = path.startswith(("/static/", "/admin/", "/account/oidc", "/logout")) or parts.netloc or not months <= MONTHS
    return None if leave or parts.scheme or link.startswith("#") else f"{path}?{parts.query}" if parts.query else path


def walk_as(who: str, scenario: Scenario, *, most: int | None = None, language: str = "en") -> Walk:
    """Everything that a person reaches; with `most` only so many addresses of each route beside the seeds."""
    client, walk = Client(), Walk()
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = language
    client.force_login(User.objects.get(username=who))
    queue, known = seeds(scenario), set(seeds(scenario))
    tried: Counter[object] = Counter()
    while queue:
        address = queue.pop()
        page = read(client, address, walk)
        for link in page.links if page else []:
            found = wanted(link, address)
            if found and found not in known:
                known.add(found)
                parts = urlsplit(found)
                filters = (parts.path, frozenset(name for name, _ in parse_qsl(parts.query)))
                tried[filters] += 1
                tried[parts.path] += 1
                if parts.path in FILTERED and (tried[filters] > TRIED or tried[parts.path] > TRIED_IN_ALL):
                    continue
                if most is not None and (route := route_of(found)) is not None:
                    tried[route] += 1
                    if tried[route] > most:
                        continue
                queue.append(found)
        assert len(walk.pages) < 1500, "the walk does not end"
    return walk


def route_of(address: str) -> str | None:
    """The route of an address, None where no page has it."""
    try:
        return resolve(urlsplit(address).path).route
    except Resolver404:
        return None


EACH = 4


def shortest(walk: Walk) -> dict[str, Page]:
    """A page of each route, the one with the shortest address."""
    found: dict[str, Page] = {}
    for address in sorted(walk.pages, key=lambda address: (len(address), address)):
        found.setdefault(resolve(urlsplit(address).path).route, walk.pages[address])
    return found


def one_of_each(who: str, house: Scenario) -> dict[str, str]:
    """An address of each page that a person reaches, by route; the shortest of a few."""
    return {route: page.address for route, page in shortest(walk_as(who, house, most=EACH)).items()}


SENTENCE = re.compile(r"(?:(?<![\w/`.-])[a-z']{2,}[ ,:]+){3,}")
"""Four English words in a row."""
