"""Field of a draft document: stored as text that the database neither parses nor rearranges."""

from typing import Any

import msgspec
from django.db import models

from billing.runtime.canonical_json import canonical_json


class DraftField(models.TextField):
    """JSON object, stored as its canonical text.

    No query looks into a draft, and parsing the drafts of a month would cost the database more than storing them.
    """

    _pyi_private_set_type: Any  # read by Django's type stubs: the Python value is an object, not its text
    _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, *_: Any) -> Any:
        """Return the stored object."""
        return None if value is None else msgspec.json.decode(value)

    def to_python(self, value: Any) -> Any:
        """Return the object, also from its text."""
        return msgspec.json.decode(value) if isinstance(value, str) else value

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else canonical_json(value)

    def value_to_string(self, obj: models.Model) -> str:
        """Return the canonical text for Django's serialisers."""
        return canonical_json(self.value_from_object(obj))
