"""PURE: buckets of prompt lengths in which the tokens of a model have their own prices.

Long prompts cost more per token than short ones. A model's prices may therefore be in buckets of the input tokens of a
request (cached tokens included): a bucket ends with its last length, the next begins one token later, the last is open.
A token class in a bucket is a class with its own price: `input@32769+`, in lists, charges and lines alike.

Source: FT2 (a bucket where prices differ by more than 20 %), FS10b (attention grows with the length).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

SEPARATOR: Final = "@"
LONGEST: Final = 99_999_999
"""Longest prompt that a bucket may end with: no engine takes a hundredth of it."""


@dataclass(frozen=True, slots=True, order=True)
class Context:
    """Bucket of requests of `first` to `last` input tokens, both included; `last` None: no upper end."""

    first: int
    last: int | None

    def __str__(self) -> str:
        return f"{self.first}+" if self.last is None else f"{self.first}-{self.last}"

    def holds(self, input_tokens: int) -> bool:
        """Return True if a request of so many input tokens is priced in this bucket."""
        return self.first <= input_tokens and (self.last is None or input_tokens <= self.last)


def contexts_of(bounds: Iterable[int]) -> tuple[Context, ...]:
    """Return the buckets that end with `bounds` (ascending), and the open one after them; () where there is no bound.

    >>> [str(context) for context in contexts_of([8192, 32768])]
    ['0-8192', '8193-32768', '32769+']
    """
    ends: list[int | None] = [*bounds]
    if not ends:
        return ()
    firsts = [0, *(end + 1 for end in ends if end is not None)]
    return tuple(Context(first, last) for first, last in zip(firsts, [*ends, None], strict=True))


def priced_class(token_class: str, context: str) -> str:
    """Return a token class with the bucket in which it is priced, if any.

    >>> priced_class("input", "32769+"), priced_class("input", "")
    ('input@32769+', 'input')
    """
    return f"{token_class}{SEPARATOR}{context}" if context else token_class


def class_and_context(priced: str) -> tuple[str, str]:
    """Split a priced class into token class and bucket; the bucket is "" where there is none.

    >>> class_and_context("output@0-8192"), class_and_context("output")
    (('output', '0-8192'), ('output', ''))
    """
    token_class, _, context = priced.partition(SEPARATOR)
    return token_class, context


def parse_context(text: str) -> Context:
    """Parse a bucket.  Raises ValueError for any other text.

    >>> parse_context("32769+")
    Context(first=32769, last=None)
    """
    first, _, last = text.removesuffix("+").partition("-")
    found = Context(int(first), int(last) if last else None)
    if str(found) != text:
        raise ValueError(f"{text!r} is no bucket of prompt lengths such as 0-8192 or 8193+")
    return found


def in_order(priced: str) -> str:
    """Return a sort key of a priced class: by the first length of its bucket, not by the digits of it.

    >>> sorted(["input@131073+", "input@0-8192", "input@8193-131072"], key=in_order)
    ['input@0-8192', 'input@8193-131072', 'input@131073+']
    """
    token_class, context = class_and_context(priced)
    return f"{token_class}{SEPARATOR}{parse_context(context).first:08}" if context else token_class


def bounds_by_model(priced: Iterable[tuple[str, str]]) -> dict[str, tuple[int, ...]]:
    """Return the ends of the buckets of each model, ascending, from (model, priced class); models without are left out.

    >>> bounds_by_model([("a", "input@0-8192"), ("a", "input@8193+"), ("b", "input")])
    {'a': (8192,)}
    """
    ends: dict[str, set[int]] = {}
    for model, name in priced:
        context = class_and_context(name)[1]
        if context:
            last = parse_context(context).last
            ends.setdefault(model, set()).update([] if last is None else [last])
    return {model: tuple(sorted(found)) for model, found in ends.items()}
