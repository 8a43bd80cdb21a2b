"""PURE: rule for names: which texts are valid names, and how an invalid text is escaped into one.

One rule covers all names in usage, prices, owners and commitments: endpoints put a record that breaks it into
quarantine, the set-up file and price lists refuse it. So every accepted name can be priced, owned and waived.

A name is at most 512 bytes of UTF-8 (names are in unique indexes, whose rows PostgreSQL bounds), has no blank at either
end, and has only characters that Python calls printable. That excludes control characters, line breaks, NUL, halves of
characters, every blank but the space, and characters that are invisible or turn the direction of writing: two names that
look the same would have two prices. Names are compared code point by code point: no normal form is demanded and none is
made, since a changed name would no longer be the one that its sender uses.
"""

from hashlib import blake2b
from typing import Final

from metering.messages import Message

MAX_NAME_BYTES: Final = 512
_DIGEST_CHARACTERS: Final = 32
_HALF_CHARACTERS: Final = range(0xD800, 0xE000)


def text_problem(text: str) -> Message | None:
    r"""Return a message why a text cannot stand on one line as it is; None for a valid text, also for an empty one.

    >>> text_problem("llama-3 8b"), text_problem("llama\n3"), text_problem("llama ")
    (None, 'contains the character \\n (U+000A), which cannot be printed', 'begins or ends with a blank')
    """
    if not text.isprintable():
        return _unprintable(next(character for character in text if not character.isprintable()))
    return Message("begins or ends with a blank") if text != text.strip() else None


def name_problem(name: str) -> Message | None:
    """Return a message why a text is no valid name; None for a valid name."""
    if not name:
        return Message("is empty")
    problem = text_problem(name)
    if problem is None and len(name) * 4 > MAX_NAME_BYTES and len(name.encode()) > MAX_NAME_BYTES:
        return Message("is longer than %(most)s bytes", most=MAX_NAME_BYTES)
    return problem


def visible(text: str) -> str:
    r"""Return a text with each unprintable character as its escape: it is one line and cannot control a terminal.

    >>> visible("red \x1b[31m, 8-bit \x9b31m"), visible("plain 中文")
    ('red \\x1b[31m, 8-bit \\x9b31m', 'plain 中文')
    """
    if text.isprintable():
        return text
    return "".join([character if character.isprintable() else _escaped(character) for character in text])


def as_name(text: str) -> str:
    r"""Return the name under which usage of any text is priced and owned: a valid name as it is, else an escaped one.

    Usage that was stored before the rule may have names that break it. Characters that cannot be printed, and blanks at the
    ends, are escaped; a text that is too long ends in a digest.

    >>> as_name("llama-3"), as_name("llama\n3"), as_name(" llama")
    ('llama-3', 'llama\\n3', '\\x20llama')
    """
    if name_problem(text) is None:
        return text
    inner = text.strip(" ")
    start = len(text) - len(text.lstrip(" "))
    name = "\\x20" * start + visible(inner) + "\\x20" * (len(text) - start - len(inner))
    octets = name.encode()
    if len(octets) <= MAX_NAME_BYTES:
        return name
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=_DIGEST_CHARACTERS // 2).hexdigest()
    return octets[: MAX_NAME_BYTES - _DIGEST_CHARACTERS - 1].decode(errors="ignore").rstrip() + f"~{digest}"


def _unprintable(character: str) -> Message:
    if character == "\0":
        return Message("contains a NUL character")
    code = f"U+{ord(character):04X}"
    if ord(character) in _HALF_CHARACTERS:
        return Message("contains half a character (%(code)s)", code=code)
    return Message(
        "contains the character %(character)s (%(code)s), which cannot be printed", character=_escaped(character), code=code
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
