"""Sentences of services in the language of a page. Everything else shows them as they are, in English."""

from django.utils.translation import gettext, ngettext

from metering.messages import Message


def translated(text: object) -> str:
    """A message, or that of an error, in the language in force, its values too; any other text as it is.

    A sentence that the catalogue lacks stays English; it is never hidden.
    """
    message = Message.of(text)
    if message.singular:
        template = ngettext(message.singular, message.template, message.number)
    else:
        template = gettext(message.template) if message.template else ""
    values = {name: translated(value) if isinstance(value, Message) else value for name, value in message.values.items()}
    return template % values if values else template
