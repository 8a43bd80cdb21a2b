"""PURE: tags of a request that an allow-list names: `request_tags`, `metadata.KEY`, `tags.KEY`.

Reporters that reduce a payload keep only these tags: a tag that no choice names reaches no spool, quarantine or log.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from metering.messages import Message
from metering.record_checks import RecordError

REQUEST_TAGS: Final = "request_tags"
METADATA: Final = "metadata."
OWN: Final = "tags."
ORIGINS: Final = (REQUEST_TAGS, f"{METADATA}KEY", f"{OWN}KEY")
LONGEST: Final = 512
NOT_KEPT: Final = True
"""Mark for a tag's value that is no text, or too long for any rule: the platform shows that there was one."""
KEY: Final = re.compile(r"[\w./-]{1,64}\Z")


class TagChoice(Protocol):
    """Tag that is kept, and the place where a request states it."""

    @property
    def key(self) -> str: ...

    @property
    def origin(self) -> str: ...


class Choice(msgspec.Struct, frozen=True):
    """Tag that a reporter forwards."""

    key: str
    origin: str


def read_choices(configured: str) -> tuple[Choice, ...]:
    """Parse a comma separated list of `key=origin`; the default origin is `tags.KEY`.  Raises RecordError.

    >>> [(choice.key, choice.origin) for choice in read_choices("product=request_tags, customer=metadata.client, team")]
    [('product', 'request_tags'), ('customer', 'metadata.client'), ('team', 'tags.team')]
    """
    found: dict[str, Choice] = {}
    for part in filter(None, (part.strip() for part in configured.split(","))):
        key, _, origin = (text.strip() for text in part.partition("="))
        choice = Choice(key, origin or f"{OWN}{key}")
        if not KEY.match(key) or not is_origin(choice.origin):
            raise RecordError(Message(
                "tags: %(part)s must be KEY=ORIGIN: a key of up to 64 letters, digits and any of _ . / -, from %(origins)s",
                part=part, origins=", ".join(ORIGINS),
            ))
        if key in found:
            raise RecordError(Message("tags: %(key)s is named twice", key=key))
        found[key] = choice
    return tuple(found.values())


def is_origin(origin: str) -> bool:
    """Return True if a request may state a tag at this origin."""
    return origin == REQUEST_TAGS or any(origin.startswith(kind) and origin != kind for kind in (METADATA, OWN))


def reported_name(choice: TagChoice) -> str:
    """Return the name under which a record has the tag in `tags`.

    >>> reported_name(Choice("product", "request_tags")), reported_name(Choice("customer", "tags.client"))
    ('product', 'client')
    """
    return choice.origin.removeprefix(OWN) if choice.origin.startswith(OWN) else choice.key


def chosen_tags(
    choices: Iterable[TagChoice], *, tags: Any = None, metadata: Sequence[Any] = (), request_tags: Any = None
) -> dict[str, Any]:
    """Return the tags that choices name, by their `reported_name`.

    `tags`: an object; `metadata`: objects, of which the first that has the key counts; `request_tags`: texts `key:value`.

    >>> chosen_tags(read_choices("product=request_tags,customer=metadata.client"), request_tags=["product:chat", "x:y"],
    ...             metadata=[{"client": "acme", "note": "secret"}])
    {'product': 'chat', 'customer': 'acme'}
    """
    found: dict[str, Any] = {}
    for choice in choices:
        if choice.origin == REQUEST_TAGS:
            value = _listed(request_tags, choice.key)
        elif choice.origin.startswith(METADATA):
            steps = choice.origin.removeprefix(METADATA)
            value = next((value for place in metadata if (value := _at(place, steps)) is not None), None)
        else:
            value = _at(tags, choice.origin.removeprefix(OWN))
        if value is not None:
            found[reported_name(choice)] = value if isinstance(value, str) and len(value) <= LONGEST else NOT_KEPT
    return found


def _listed(request_tags: Any, key: str) -> str | None:
    """Return the value of the first text `key:value`, or None."""
    for text in request_tags if isinstance(request_tags, list | tuple) else ():
        name, colon, value = text.partition(":") if isinstance(text, str) else ("", "", "")
        if colon and name.strip() == key:
            return value.strip()
    return None


def _at(place: Any, name: str) -> Any:
    """Return the value under a name, or under the name's steps between dots."""
    if not isinstance(place, Mapping):
        return None
    if (value := place.get(name)) is not None:
        return value
    first, dot, rest = name.partition(".")
    return _at(place.get(first), rest) if dot else None
