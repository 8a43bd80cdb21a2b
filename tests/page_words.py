"""What a page says in words, and which of them are English where a page is Chinese."""

import re
from collections.abc import Iterable
from html.parser import HTMLParser

from tests.full_scenario import PEOPLE

WORD = re.compile(r"(?<![\w/.%#-])[A-Za-z][\w'./@-]*(?<!['./-])")
GIVEN = re.compile(
    r"(?<![\w/-])(?:Suanpan|Li Mei|NLP Research|Vision|Everything of NLP|Asia/Shanghai|other|tests|platform|v1|bands-v1"
    rf"|{'|'.join(PEOPLE)}|(?:[a-z]+[-/])*[a-z]+-\d|hq-\*|(?:nlp|cv)(?:-[a-z]+)*(?:-[\d*])?|higress-bj|litellm-hq|CC-2\d0"
    r"|AI-INFRA(?:-CN)?(?:-2026-\d{6})?|NVIDIA-\w+|nvidia\.com/[\w.-]+|llama-[\w*-]+|qwen3-32b|wecombot://KEY|[A-Z2-7]{32}"
    r")(?![\w-])"
)
"""Names and codes that people and programs of the installation gave."""
UNDERSTOOD = {
    *("API", "CSV", "XLSX", "PDF", "Excel", "YAML", "JSON", "ZIP", "FOCUS", "UTC", "CNY", "GPU", "SKU", "MFU", "HFU", "MIG"),
    *("MoE", "PUE", "PIN", "Pod", "Token", "Tokens", "JavaScript", "Ctrl", "Esc", "K", "GPU-h", "GPU-Hours", "Slice-Hours"),
    *("GB", "TB", "kW", "kWh", "W", "Wh", "kg", "kg/kWh", "g", "CO₂", "M", "min", "s", "h", "id", "AIPerf", "Apprise"),
    *("GuideLLM", "Locust", "SGLang", "vLLM", "AUDIT_ANCHOR", "MAIL_FROM", "MAIL_URL", "true", "false", "annuity"),
    *("mean-book-value", "official", "average", "residual", "lifecycle", "on-base", "share-of-total", "CN", "CN-East", "SE"),
    *("APISIX", "Grafana", "Kong", "Kubernetes", "LiteLLM", "MCP", "OpenTelemetry", "Prometheus", "Slurm", "nginx", "sacct"),
    *("http-log", "http-logger", "generic_api", "Webhook", "Base64", "https", "whsec_"),
    *("count", "price_per_1000", "tb_months", "price_per_tb_month", "price_version", "import", "token_cost_sheets"),
}
"""Formats, units, products, settings, and what a sheet of costs takes: the same word in every language."""
CODE = frozenset({"code", "pre", "textarea", "script", "style", "option"})
SILENT = frozenset({"mono", "printed", "material-symbols-outlined"})
"""Classes of elements that have a name, a code, or the name of an icon."""
SHOWN = ("aria-label", "placeholder", "title", "alt", "data-label")
"""Attributes that people read or hear."""
VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "rect"})


class Words(HTMLParser):
    """What a page says in words: not code, not what is marked as of another language."""

    def __init__(self, code: frozenset[str]) -> None:
        super().__init__()
        self.code = code
        self.open: list[tuple[str, bool]] = []
        self.said: list[str] = []

    @property
    def silent(self) -> bool:
        return any(skipped for _tag, skipped in self.open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        if tag == "html":
            facts.pop("lang", None)
        if not self.silent:
            self.said += [facts[name] for name in SHOWN if facts.get(name)]
        if tag not in VOID:
            code = tag in self.code or not SILENT.isdisjoint(facts.get("class", "").split()) or "lang" in facts
            self.open.append((tag, code))

    def handle_endtag(self, tag: str) -> None:
        while self.open and tag not in VOID:
            if self.open.pop()[0] == tag:
                break

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.said.append(data)


def english_in(page: str, also: Iterable[str] = (), code: frozenset[str] = CODE) -> list[str]:
    """What has a word that no list allows: English, or an identifier where a name belongs."""
    words = Words(code)
    words.feed(page)
    said = [" ".join(text.split()) for text in words.said]
    return sorted({text for text in said if set(WORD.findall(GIVEN.sub("", text))) - UNDERSTOOD.union(also)})
