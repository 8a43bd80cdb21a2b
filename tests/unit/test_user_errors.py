"""Whatever a service says to a person is a message of the catalogue, and whatever a page catches has one."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import billing
import metering
import pricing
from metering.messages import UserError
from tests.catalogue import PO, messages, read_po

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("management", "commands", "setup", "local", "backup", "settings", "migrations")
"""What is said on a terminal only, in English."""
TEXTS = {
    "refuse": 1, "FieldProblem": 1, "ReportedException": 5, "Check": 2, "require_right": 1,
    "Refusal": 2, "Altered": 2,
}  # fmt: skip
"""Calls that take a sentence for people, and at which place."""
READ_BY = (
    "metering.logs", "metering.engines", "metering.k8s", "metering.slurm", "metering.gateways.litellm_callback",
    "metering.gateways.litellm_budget", "metering.efficiency", "metering.backfill",
)  # fmt: skip
"""Agents and readers of log files: what they say is in their own log."""
OURS = ("billing", "pricing", "metering")
PLACE = re.compile(r"%\(\w+\)s")


def modules() -> Iterator[ModuleType]:
    for package in (billing, pricing, metering):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            parts = found.name.split(".")
            if not {"migrations", "local", "settings", "__main__"} & set(parts) and not found.name.startswith(READ_BY):
                yield importlib.import_module(found.name)


@cache
def user_errors() -> dict[str, type[UserError]]:
    list(modules())
    found, waiting = {}, list(UserError.__subclasses__())
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if one.__module__.startswith(OURS):
            found[f"{one.__module__}.{one.__name__}"] = one
    return found


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(path for package in OURS for path in (ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if not set(COMMANDS) & set(name.split(".")) and not name.startswith(READ_BY):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def is_plain(node: ast.expr, function: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
    """Whether an expression is a text that no catalogue knows; a name (not yet `seen`) is what it assigned."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(node.value)
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.BinOp):
        return is_plain(node.left, function, seen) or is_plain(node.right, function, seen)
    if isinstance(node, ast.BoolOp):
        return any(is_plain(part, function, seen) for part in node.values)
    if isinstance(node, ast.IfExp):
        return is_plain(node.body, function, seen) or is_plain(node.orelse, function, seen)
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", getattr(node.func, "attr", "")) in ("str", "join", "format", "repr", "gettext")
    if isinstance(node, ast.Name) and node.id not in seen:
        return any(
            is_plain(one.value, function, seen | {node.id})
            for one in ast.walk(function)
            if isinstance(one, ast.Assign) and any(getattr(target, "id", "") == node.id for target in one.targets)
        )
    return False


def errors_of(module: str) -> set[str]:
    """The errors with a message that a module knows, by the names that it gives them."""
    known = vars(importlib.import_module(module))
    return {name for name, one in known.items() if isinstance(one, type) and issubclass(one, UserError)}


def said(tree: ast.AST, errors: set[str]) -> Iterator[tuple[int, ast.expr, ast.AST]]:
    """Each sentence for people in a module, with the function that says it."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for call in ast.walk(function):
            if isinstance(call, ast.Call):
                name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                place = 0 if name in errors else TEXTS.get(name)
                if place is not None and place < len(call.args):
                    yield call.lineno, call.args[place], function


def plain_in(source: str, errors: set[str]) -> list[str]:
    tree = ast.parse(source)
    return sorted({ast.unparse(node) for _, node, function in said(tree, errors) if is_plain(node, function)})


def test_the_walk_finds_what_is_no_message() -> None:
    source = '''
def f(why, n):
    first = None
    for one in n:
        first = first or one.message
    if first:
        raise NoteError(first)
    if n:
        raise NoteError(f"{n} is wrong")
    text = "wrong" if why else why
    other = Message("right")
    reader.refuse("field", text)
    reader.refuse("field", other)
    require_right("me", "go " + why)
    raise NoteError(Message("right %(n)s", n=n) if why else why.message)
'''
    assert plain_in(source, {"NoteError"}) == ["'go ' + why", "f'{n} is wrong'", "text"]


def test_every_sentence_for_people_is_a_message() -> None:
    found = [(name, plain_in(ast.unparse(tree), errors_of(name))) for name, tree in sources()]
    assert [(name, texts) for name, texts in found if texts] == []


def test_there_are_many_sentences_and_the_walk_sees_them() -> None:
    assert sum(1 for name, tree in sources() for _ in said(tree, errors_of(name))) > 400
    assert len(user_errors()) > 40


def test_every_message_has_a_template_that_the_catalogue_can_hold() -> None:
    """A template that is put together would be translated by nobody; those of bounds and readers are where they are made."""
    loose = [
        (name, node.lineno)
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Message" and node.args
        if not isinstance(node.args[0], ast.Constant) and name not in ("pricing.fields", "metering.messages")
    ]
    assert loose == []


def test_every_kind_of_error_has_a_code_of_its_own() -> None:
    codes = [error.__dict__.get("code", "") for error in user_errors().values()]
    assert "" not in codes
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", code) for code in codes)


def test_a_page_catches_errors_that_have_a_message() -> None:
    """Or it shows nothing of them: what it answers then is that there is no such page."""
    silent = []
    for module in modules():
        if not module.__name__.startswith("billing.portal."):
            continue
        for handler in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
            if not isinstance(handler, ast.ExceptHandler) or handler.name is None or handler.type is None:
                continue
            if isinstance(handler.body[0], ast.Raise) and "Http404" in ast.unparse(handler.body[0]):
                continue
            names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            caught = [getattr(module, ast.unparse(name), None) for name in names]
            own = [error for error in caught if getattr(error, "__module__", "").startswith(OURS)]
            silent += [(module.__name__, error) for error in own if not issubclass(error, UserError)]
    assert silent == []


def test_every_text_says_the_same_values_in_chinese() -> None:
    chinese = read_po(PO.read_text(encoding="utf-8"))
    wrong = [
        message for message in messages()
        if not chinese.get(message) or set(PLACE.findall(chinese[message])) != set(PLACE.findall(message[-1]))
    ]  # fmt: skip
    assert wrong == []
