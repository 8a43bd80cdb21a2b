"""The texts of templates and code, and their Chinese: ``python -m tests.catalogue`` compiles it and names what is missing.

Unfold, in which the administration is drawn, has no Chinese: those of its texts that Django's Chinese lacks count as ours.

Needs no gettext: templates become calls by Django's own ``templatize``, calls are read by ``ast``, the `.mo` follows the
format of the GNU gettext manual ("The Format of GNU MO Files").
"""

import ast
import re
import struct
from collections.abc import Iterable, Iterator
from gettext import GNUTranslations
from pathlib import Path

import django
import unfold
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parents[1]
PO = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
MO = PO.with_suffix(".mo")
HEADER = (
    "Language: zh_Hans\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
    "Content-Transfer-Encoding: 8bit\nPlural-Forms: nplurals=1; plural=0;\n"
)
ONE = {"gettext", "gettext_lazy", "gettext_noop", "_"}
OF_CONTEXT = {"pgettext", "pgettext_lazy"}
"""A word that means one thing here and another in the administration, such as the close of a month: its context first."""
CONTEXT_END = "\x04"
MANY = {"ngettext", "ngettext_lazy", "counted"}
PLACES = {"Message": (0,), "Bound": (2, 3), "FieldReader": (1,), "nested": (1,), "mappings": (1,)}
"""Where calls of services, `pricing` and `metering` have texts (`metering.messages`)."""
WORDS = re.compile(r"[^\s;,]")
PLACE = re.compile(r"%\(\w+\)s")
CALL = re.compile(r"\b(?:[np]?gettext|_)\(")

OTHER_PARTS = {"contrib", "unfold_crispy"}
"""Of Unfold: what it has for packages that are not installed here."""

Message = tuple[str, ...]
"""One text, or the text for one and the text for many."""


def _calls(source: str) -> Iterator[Message]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        yield from ((text,) for text in _placed(node, name))
        wanted = 1 if name in ONE else 2 if name in MANY | OF_CONTEXT else 0
        texts = [part.value for part in node.args[:wanted] if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if wanted and len(texts) == wanted:
            yield (CONTEXT_END.join(texts),) if name in OF_CONTEXT else tuple(texts)


def _placed(call: ast.Call, name: str) -> Iterator[str]:
    """Texts of a call that is no call of gettext; one of placeholders alone reads the same in every language."""
    for place in PLACES.get(name, ()):
        part = call.args[place] if place < len(call.args) else None
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and WORDS.search(PLACE.sub("", part.value)):
            yield part.value


def _call_at(source: str, start: int) -> str:
    """The whole call that begins at `start`; templatize leaves noise around it."""
    for end in range(start, len(source)):
        if source[end] == ")":
            try:
                ast.parse(source[start:end + 1], mode="eval")
            except SyntaxError:
                continue
            return source[start:end + 1]
    raise ValueError(f"no end of the call {source[start:start + 60]!r}")


def messages() -> list[Message]:
    """Every text of templates and code, each once, in the order of the files."""
    found = _texts([*ROOT.glob("templates/**/*.html"), *ROOT.glob("templates/alerts/*.txt")])
    for package in ("billing", "pricing", "metering"):
        found |= _texts(ROOT.glob(f"{package}/**/*.py"))
    return list(found | _of_unfold())


def _texts(paths: Iterable[Path]) -> dict[Message, None]:
    found: dict[Message, None] = {}
    for path in sorted(paths):
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            found.update(dict.fromkeys(_calls(source)))
            continue
        source = templatize(source)
        for match in CALL.finditer(source):
            found.update(dict.fromkeys(_calls(_call_at(source, match.start()))))
    return found


def _of_unfold() -> dict[Message, None]:
    """Texts of Unfold, its parts for other packages left out, that Django does not translate."""
    root = Path(unfold.__file__).parent
    paths = [path for kind in ("html", "py") for path in root.glob(f"**/*.{kind}") if not OTHER_PARTS & set(path.parts)]
    known = {key[0] if isinstance(key, tuple) else key for key in _of_django()}
    return {message: None for message in _texts(paths) if message[0] not in known}


def _of_django() -> Iterator[str | tuple[str, int]]:
    for part in ("conf", "contrib/admin", "contrib/auth"):
        path = Path(django.__file__).parent / part / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.mo"
        with path.open("rb") as file:
            yield from GNUTranslations(file)._catalog  # type: ignore[attr-defined]  # there is no other list of its keys


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def write_po(texts: dict[Message, str]) -> str:
    """The catalogue as text, one entry after the other."""
    entries = [f'msgid ""\nmsgstr {_quoted(HEADER)}']
    for message, chinese in texts.items():
        context, _end, text = message[0].rpartition(CONTEXT_END)
        lines = [*([f"msgctxt {_quoted(context)}"] if context else []), f"msgid {_quoted(text)}"]
        lines += [f"msgid_plural {_quoted(message[1])}", f"msgstr[0] {_quoted(chinese)}"] if len(message) == 2 else [
            f"msgstr {_quoted(chinese)}"
        ]
        entries.append("\n".join(lines))
    return "\n\n".join(entries) + "\n"


def read_po(text: str) -> dict[Message, str]:
    """What `write_po` writes, with the header left out."""
    texts: dict[Message, str] = {}
    for entry in text.strip().split("\n\n"):
        parts = [str(ast.literal_eval(line[line.index('"'):])) for line in entry.splitlines() if not line.startswith("#")]
        if entry.startswith("msgctxt"):
            parts = [CONTEXT_END.join(parts[:2]), *parts[2:]]
        if parts[0]:
            message = tuple(parts[:-1])
            if message in texts:
                raise ValueError(f"{message[0]!r} occurs twice in the catalogue")
            texts[message] = parts[-1]
    return texts


def compiled(texts: dict[Message, str]) -> bytes:
    """The `.mo` of the texts, keys sorted by their bytes as the format asks."""
    pairs = sorted(("\0".join(key).encode(), value.encode()) for key, value in {("",): HEADER, **texts}.items())
    place = 28 + 16 * len(pairs)
    tables, body = [b"", b""], b""
    for column in (0, 1):
        for pair in pairs:
            tables[column] += struct.pack("<II", len(pair[column]), place + len(body))
            body += pair[column] + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, place)
    return head + tables[0] + tables[1] + body


if __name__ == "__main__":
    stored = read_po(PO.read_text(encoding="utf-8"))
    wanted = {message: stored.get(message, "") for message in messages()}
    PO.write_text(write_po(wanted), encoding="utf-8")
    MO.write_bytes(compiled({message: chinese for message, chinese in wanted.items() if chinese}))
    for message in (message for message, chinese in wanted.items() if not chinese):
        print("without Chinese:", message)
