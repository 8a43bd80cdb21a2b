"""PURE: sentences for people. A `Message` is an English sentence that keeps its template and its values.

It is a `str`: answers of the API, commands, logs and stored rows take it as it is and stay English, whatever language a
thread works in. A page renders the same template in the language of its reader (`billing.runtime.translation`). The
template is the msgid of the catalogue, and so the code by which a sentence is found; nothing reads a finished sentence.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self


class Message(str):
    """`template` with named placeholders and its values, which may be messages themselves.

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
        """The sentence; where there are values, `%` itself is written `%%`."""
        plain = {name: _plain(value) for name, value in values.items()}
        message = super().__new__(cls, template % plain if plain else template)
        message.template, message.values, message.singular, message.number = template, plain, "", 0
        return message

    @classmethod
    def counted(cls, singular: str, plural: str, number: int, /, **values: Any) -> Self:
        """A sentence about `number` things. Pages say it in the right number; API and commands always in the plural."""
        message = cls(plural, **values)
        message.singular, message.number = singular, number
        return message

    @classmethod
    def of(cls, text: object) -> "Message":
        """The message of an error or a message; any other text as one that reads the same in every language."""
        if isinstance(text, UserError):
            return text.message
        return text if isinstance(text, Message) else cls("%(text)s", text=text)

    @classmethod
    def joined(cls, parts: Iterable[object], separator: str = "; ") -> Self:
        """Several sentences in a row, each still a message.

        >>> Message.joined([Message("%(n)s hours", n=3), "ok"]), Message.joined([])
        ('3 hours; ok', '')
        """
        values = {f"part_{index}": part for index, part in enumerate(parts)}
        return cls(separator.replace("%", "%%").join(f"%({name})s" for name in values), **values)

    def as_json(self) -> dict[str, Any]:
        """For a JSON field, from which `from_json` reads it again."""
        values = {name: value.as_json() if isinstance(value, Message) else value for name, value in self.values.items()}
        return {"template": self.template, "values": values, "singular": self.singular, "number": self.number}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | str) -> "Message":
        """A stored message; a text that was stored before there were messages stays as it is."""
        if isinstance(stored, str):
            return cls.of(stored)
        values = {
            name: cls.from_json(value) if isinstance(value, dict) else value for name, value in stored["values"].items()
        }
        return cls.counted(stored["singular"], stored["template"], stored["number"], **values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _message, (self.template, self.values, self.singular, self.number)


def _plain(value: object) -> str:
    """A value as it is written, a message or the message of an error as a message."""
    if isinstance(value, UserError):
        return value.message
    return value if isinstance(value, Message) else str(value)


def _message(template: str, values: dict[str, Any], singular: str, number: int) -> Message:
    return Message.counted(singular, template, number, **values)


class UserError(Exception):
    """What a person asked for and cannot have. `code` names the kind of the refusal and stays when its words change."""

    code: ClassVar[str]

    def __init__(self, message: Message) -> None:
        super().__init__(Message.of(message))

    @property
    def message(self) -> Message:
        """Why, and what can be done instead."""
        message: Message = self.args[0]
        return message


def as_text(value: object) -> str:
    """For encoders that know no subclass of `str`, such as a message.  Raises NotImplementedError for all else."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON")
