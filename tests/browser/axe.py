"""axe-core, which comes with the package axe-playwright-python, and what it finds on a page."""

from collections.abc import Sequence
from importlib.resources import files

from playwright.sync_api import Page

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
SERIOUS = ("serious", "critical")


def faults(page: Page, where: str, rules: Sequence[str]) -> list[str]:
    """What axe-core finds serious or critical, by rule and element; without `rules` by all of them."""
    options = {"resultTypes": ["violations"], **({"runOnly": {"type": "rule", "values": list(rules)}} if rules else {})}
    found = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{where}: {rule['id']} ({rule['impact']}): {node['html'][:160]} {node['failureSummary']}"
        for rule in found["violations"] if rule["impact"] in SERIOUS for node in rule["nodes"]
    ]  # fmt: skip
