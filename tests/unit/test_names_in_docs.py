"""Every module, function, path, test and command that pages for developers name exists; three packages name all modules."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("docs/life-of-a-line.md", "docs/how-to-change.md", "billing/closing/README.md")]
OTHERS = [ROOT / "ARCHITECTURE.md", *(ROOT / "docs/adr").glob("*.md"), *ROOT.glob("[bmp]*/**/README.md")]
"""Pages that also name settings, fields and programs of others: only their modules and paths are looked up."""
FOLDERS = ("billing", "metering", "pricing", "tests", "templates", "docs", "docker", "locale")
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*(?:::\w+)?|[A-Z]+\.md")
DOTTED = re.compile(r"_?[A-Za-z]\w*(?:\.\w+)+")
NAME = re.compile(r"_?[A-Za-z]+(?:_[A-Za-z]+)+|_[a-z]+|[A-Z][a-z]+[A-Z]\w+")
FILE = re.compile(r"[\w/]+\.(?:py|sql|md)")
SQL_NAME = re.compile(r"create (?:or replace )?(?:table|view|function)(?: if not exists)? (\w+)", re.IGNORECASE)
DEFINED = re.compile(r"\b(?:def|class) (\w+)|\b(\w+) ?[:=](?!=)")
OURS = re.compile(r"(?:billing|metering|pricing)\.\w|[\w/]+\.py$")
EACH = {
    "manage.py", "models.py", "selectors.py", "tasks.py", "labels.py", "billing/PACKAGE/sql/NAME.sql", "billing.invoicing",
}  # fmt: skip
"""Files that many packages have; and a package that was, in the record of how it went."""
OF_OTHERS = {"PodScheduled", "finishedAt", "cached_tokens", "completion_tokens", "prompt_tokens"}
"""Fields of Kubernetes and of model APIs."""


def spans(text: str) -> list[str]:
    """What stands in backticks, without the arguments of a call; indented blocks are examples."""
    lines = "\n".join(line for line in text.splitlines() if not re.match(r" {4,}(?!\s*\|)", line))
    return [re.sub(r"\(.*\)$", "", span) for span in re.findall(r"`([^`\n]+)`", lines)]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    files = (path for folder in FOLDERS[:4] for path in (ROOT / folder).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def bound(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Each name that statements define, with its statement."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node
        elif isinstance(node, ast.Assign):
            targets = (name for target in node.targets for name in ast.walk(target))
            yield from ((name.id, node) for name in targets if isinstance(name, ast.Name))


def defines(body: list[ast.stmt], names: list[str]) -> bool:
    """Whether statements define a name, and the class of that name the next."""
    found = dict(bound(body)).get(names[0])
    return found is not None and (not names[1:] or (isinstance(found, ast.ClassDef) and defines(found.body, names[1:])))


def dotted_exists(name: str) -> bool:
    """Whether a module (all of its dotted name, or its end) has what follows its name; or a class, what follows its."""
    parts = name.split(".")
    for known, path in modules().items():
        for length in range(len(parts), 0, -1):
            if f".{known}".endswith("." + ".".join(parts[:length])):
                rest = parts[length:]
                if not rest or defines(parsed(path).body, rest):
                    return True
    return any(
        f"class {parts[0]}" in text_of(path) and defines(parsed(path).body, parts)
        for known, path in modules().items()
        if not known.startswith("tests")
    )


@cache
def names_of_the_code() -> set[str]:
    """Functions, classes, constants, fields and parameters; tables of models, and what the SQL files make."""
    found = set[str]()
    for module, path in modules().items():
        if not module.startswith("tests"):
            found |= {name for names in DEFINED.findall(text_of(path)) for name in names}
        if ".models" in module:
            tables = re.findall(r"^class (\w+)", text_of(path), re.MULTILINE)
            found |= {f"{module.split('.')[1]}_{name.lower()}" for name in tables}
    for path in (ROOT / "billing").glob("*/sql/*.sql"):
        found |= set(SQL_NAME.findall(text_of(path)))
    return found


def beside(span: str, *folders: Path) -> Path | None:
    """The file of that name in the first of some folders that has it."""
    return next((folder / span for folder in folders if (folder / span).exists()), None)


def missing(text: str, home: Path = ROOT) -> set[str]:
    """What a text names in backticks that does not exist. A file without a folder is beside the path before it, or in
    `home`; a private name is of a module that the text names.
    """
    found, private, files, folder = set[str](), set[str](), set[Path](), home
    for span in spans(text):
        path, _, name = span.partition("::")
        there = True
        if command := re.match(r"(?:\S+ )?manage\.py (\w+)", span):
            there = any((ROOT / "billing").glob(f"*/management/commands/{command[1]}.py"))
        elif PATH.fullmatch(span):
            there = (ROOT / path).exists() and (not name or defines(parsed(ROOT / path).body, [name]))
            folder = (ROOT / path).parent if "." in path else ROOT / path
            files.add(ROOT / path)
        elif FILE.fullmatch(span):
            file = beside(span, folder, home)
            there = file is not None
            files |= {file} if file else set()
        elif DOTTED.fullmatch(span):
            there = dotted_exists(span)
            files |= {path for module, path in modules().items() if f"{span}.".startswith(f"{module}.")}
        elif NAME.fullmatch(span) and span not in OF_OTHERS:
            there = span.startswith("_") or span in names_of_the_code()
            private |= {span} if span.startswith("_") else set()
        found |= set() if there else {span}
    known = [parsed(file).body for file in files if file.suffix == ".py" and file.exists()]
    return found | {name for name in private if not any(defines(body, [name]) for body in known)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert missing(text_of(page), page.parent) == set()


@pytest.mark.parametrize("page", OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_modules_and_paths_that_a_page_names_exist(page: Path) -> None:
    named = {span for span in missing(text_of(page), page.parent) if PATH.fullmatch(span) or OURS.match(span)}
    assert named - EACH == set()


@pytest.mark.parametrize("package", ["billing/closing", "metering", "pricing"])
def test_a_readme_names_every_module_of_its_package(package: str) -> None:
    text = text_of(ROOT / package / "README.md")
    names = {path.name for path in (ROOT / package).glob("*.py")} - {"__init__.py", "__main__.py", "apps.py"}
    assert {name for name in names if f"`{name}`" not in text} == set()


@pytest.mark.parametrize(
    "stale",
    ["pricing/gone.py", "pricing.tco.gone", "billing.api.receiver", "Slice.gone", "walk.gone",
     "usage_faults", "_rate_late", "manage.py period_gone 2026-10", "pricing/tco.py::gone", "GoneError", "gone.py"],
)  # fmt: skip
def test_a_name_that_is_gone_is_found(stale: str) -> None:
    assert missing(f"before `{stale}` after") == {stale}


@pytest.mark.parametrize(
    "there",
    ["pricing/tco.py::cost_of_gpu_hour", "pricing/", "pricing.tco", "pricing.tco.Component.share_of", "Slice.of",
     "close_seq", "walk.rated_usage", 'OwnershipBook.owner("hq-1", at)', "usage_gpuallocation", "token_take",
     "manage.py period_close 2026-10"],
)  # fmt: skip
def test_a_name_that_is_there_is_not(there: str) -> None:
    assert missing(f"before `{there}` after") == set()


def test_a_private_name_belongs_to_a_module_that_the_page_names() -> None:
    assert missing("`billing.closing.services.closing.period_close` calls `_cut_off`") == set()
    assert missing("`pricing.tco` calls `_cut_off`") == {"_cut_off"}
