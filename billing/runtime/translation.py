"""Translation of messages of services to the language of a page. Other users show them in English."""

from django.utils.translation import gettext, ngettext

from metering.messages import Message


def translated(text: object) -> str:
    """Translate a message, or that of an error, to the active language, with its values; return other text unchanged.

    A sentence missing from the catalogue stays English.
    """
    message = Message.of(text)
    if message.singular:
        template = ngettext(message.singular, message.template, message.number)
    else:
        template = gettext(message.template) if message.template else ""
    values = {name: translated(value) if isinstance(value, Message) else value for name, value in message.values.items()}
    return template % values if values else template
