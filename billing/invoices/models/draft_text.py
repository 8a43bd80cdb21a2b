"""A field for what a document will say: the database keeps the text of it, and neither reads nor rearranges that."""

from typing import Any

import msgspec
from django.db import models

from billing.runtime.canonical_json import canonical_json


class DraftField(models.TextField):
    """A JSON object, kept as its canonical text.

    No query looks into a draft, and parsing the drafts of a month would cost the database more than storing them.
    """

    _pyi_private_set_type: Any  # the stubs of Django read these two: the field takes and gives an object, not its text
    _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, *_: Any) -> Any:
        """The object that was kept."""
        return None if value is None else msgspec.json.decode(value)

    def to_python(self, value: Any) -> Any:
        """The object itself, also of its text."""
        return msgspec.json.decode(value) if isinstance(value, str) else value

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else canonical_json(value)

    def value_to_string(self, obj: models.Model) -> str:
        """For serialisers of Django: the text."""
        return canonical_json(self.value_from_object(obj))
