"""PURE: messages for people. A `Message` is an English sentence that keeps its template and its values.

It is a `str`: answers of the API, commands, logs and stored rows use it as it is and stay English, whatever the language of
the thread. A page renders the same template in the language of its reader (`billing.runtime.translation`). The template is
the msgid of the catalogue, and so the key of the translation; no code parses a finished sentence.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self


class Message(str):
    """Sentence from a `template` with named placeholders and its values, which may be messages themselves.

    >>> message = Message("team %(code)s: there is no such team", code="nlp")
    >>> message, message.template, message.values
    ('team nlp: there is no such team', 'team %(code)s: there is no such team', {'code': 'nlp'})
    """

    __slots__ = ("number", "singular", "template", "values")
    template: str
    values: dict[str, str]
    singular: str
    number: int

    def __new__(cls, template: str, /, **values: Any) -> Self:
        """Return the sentence; a template that has values writes `%` itself as `%%`."""
        plain = {name: _plain(value) for name, value in values.items()}
        message = super().__new__(cls, template % plain if plain else template)
        message.template, message.values, message.singular, message.number = template, plain, "", 0
        return message

    @classmethod
    def counted(cls, singular: str, plural: str, number: int, /, **values: Any) -> Self:
        """Return a sentence about `number` things. Pages choose singular or plural; API and commands use the plural."""
        message = cls(plural, **values)
        message.singular, message.number = singular, number
        return message

    @classmethod
    def of(cls, text: object) -> "Message":
        """Return the message of an error, a message itself, or any other text as a message that is never translated."""
        if isinstance(text, UserError):
            return text.message
        return text if isinstance(text, Message) else cls("%(text)s", text=text)

    @classmethod
    def joined(cls, parts: Iterable[object], separator: str = "; ") -> Self:
        """Join several sentences; each stays a message of its own.

        >>> Message.joined([Message("%(n)s hours", n=3), "ok"]), Message.joined([])
        ('3 hours; ok', '')
        """
        values = {f"part_{index}": part for index, part in enumerate(parts)}
        return cls(separator.replace("%", "%%").join(f"%({name})s" for name in values), **values)

    def as_json(self) -> dict[str, Any]:
        """Return a dictionary for a JSON field, which `from_json` reads again."""
        values = {name: value.as_json() if isinstance(value, Message) else value for name, value in self.values.items()}
        return {"template": self.template, "values": values, "singular": self.singular, "number": self.number}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | str) -> "Message":
        """Restore a stored message; a plain text, from before there were messages, stays as it is."""
        if isinstance(stored, str):
            return cls.of(stored)
        values = {
            name: cls.from_json(value) if isinstance(value, dict) else value for name, value in stored["values"].items()
        }
        return cls.counted(stored["singular"], stored["template"], stored["number"], **values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _message, (self.template, self.values, self.singular, self.number)


def _plain(value: object) -> str:
    """Return a message or an error's message as it is, any other value as text."""
    if isinstance(value, UserError):
        return value.message
    return value if isinstance(value, Message) else str(value)


def _message(template: str, values: dict[str, Any], singular: str, number: int) -> Message:
    return Message.counted(singular, template, number, **values)


class UserError(Exception):
    """Refusal of a person's request. `code` names the kind of refusal and stays when the words change."""

    code: ClassVar[str]

    def __init__(self, message: Message) -> None:
        super().__init__(Message.of(message))

    @property
    def message(self) -> Message:
        """Return the reason for the refusal, and the alternative if there is one."""
        message: Message = self.args[0]
        return message


def as_text(value: object) -> str:
    """Encode a subclass of `str`, such as a message, as plain text.  Raises NotImplementedError for all else."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON")
