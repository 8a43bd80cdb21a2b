"""OpenAPI parts made from the contract's own records, so that the two cannot diverge."""

from threading import Lock
from typing import Any, ClassVar

import msgspec
from django.utils.translation import override
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularAPIView

INGEST_ANSWER: dict[str, Any] = {
    "type": "object",
    "required": ["accepted", "duplicates", "conflicts", "rejected"],
    "properties": {
        "accepted": {"type": "integer"},
        "duplicates": {"type": "integer"},
        "conflicts": {"type": "integer"},
        "rejected": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["index", "key", "error"],
                "properties": {
                    "index": {"type": "integer"},
                    "key": {"type": "string"},
                    "error": {"type": "string"},
                },
            },
        },
    },
}


PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


def record_schema(kind: type[msgspec.Struct], **items: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the self-contained JSON schema of a record; `items` gives the element type of lazily read fields."""
    schema = _inlined(kind)
    for name, element in items.items():
        schema["properties"][name] = {"type": "array", "items": _inlined(element)}
    return schema


def _inlined(kind: type[msgspec.Struct]) -> dict[str, Any]:
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="#/{name}", schema_hook=_raw)
    resolved: dict[str, Any] = _resolve(schema, parts)
    return resolved


def _raw(kind: type) -> dict[str, Any]:
    if kind is msgspec.Raw:
        return {"type": "object"}
    raise TypeError(f"no schema for {kind}")


def _resolve(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_resolve(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolve(parts[schema["$ref"].removeprefix("#/")], parts)
    if {"type": "null"} in schema.get("anyOf", ()):
        return _nullable(schema, parts)
    return {key: _resolve(value, parts) for key, value in schema.items()}


def _nullable(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Convert a nullable type to OpenAPI 3.0, which has no type `null` but a flag beside the type."""
    kinds = [_resolve(kind, parts) for kind in schema["anyOf"] if kind != {"type": "null"}]
    rest = {key: _resolve(value, parts) for key, value in schema.items() if key != "anyOf"}
    shape = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return {**shape, **rest, "nullable": True}


REPORTING = ("/api/v1/usage/", "/api/v1/events", "/v1/")
REFUSALS = {
    "400": "the body is not as described",
    "401": "no valid token",
    "403": "the token may not do this",
    "413": "larger than the limit, packed or unpacked, or too many records",
    "415": "a Content-Type or Content-Encoding that this endpoint does not take",
    "429": "too many tokens from this address are not valid: send again after Retry-After seconds",
    "503": "busy, or the database is away: nothing is acknowledged, send the same again after Retry-After seconds",
}


def reporting_endpoints(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the common parts of all endpoints for reports; a hook of the generator."""
    for path, operations in result["paths"].items():
        operation = operations.get("post")
        if operation is None or not path.startswith(REPORTING):
            continue
        operation["requestBody"]["required"] = True
        for status, description in REFUSALS.items():
            operation["responses"].setdefault(status, {"description": description})
        for status, response in operation["responses"].items():
            if status >= "400":
                response["content"] = {"application/problem+json": {"schema": PROBLEM}}
    return result


class OneDescription(SchemaGenerator):
    """OpenAPI description, made once per process: that takes long, and is not safe in several threads."""

    _making = Lock()
    _made: ClassVar[dict[str, Any]] = {}

    def get_schema(self, request: Any = None, public: bool = False) -> dict[str, Any]:
        """Return the cached description, in English whatever language the first reader uses."""
        with self._making, override("en"):
            if not self._made:
                self._made.update(super().get_schema(request, public))
        return self._made


class Description(SpectacularAPIView):
    """OpenAPI description."""

    generator_class = OneDescription
