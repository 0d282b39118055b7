"""What people declare: types say once what each member must be; checks, fault messages and JSON schemas follow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.json_schema import GenerateJsonSchema


class _Untitled(GenerateJsonSchema):
    """Without titles that are names in other letters: those that there are say what is wanted."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


class Declared(BaseModel):
    """Base of everything that is declared as JSON data: strict about types, and about names that nobody knows."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @classmethod
    def describe(cls) -> dict[str, Any]:
        """Its JSON schema."""
        return cls.model_json_schema(schema_generator=_Untitled)


def faults_of(kind: type[Declared], given: Mapping[str, object], error: ValidationError) -> Iterator[tuple[str, str]]:
    """Each member that is wrong (empty: all together) and what is wrong with it, in the order of the declaration.

    A member that is unknown or missing has no text: which ones there are is for the caller to say.
    """
    found = error.errors(include_url=False)
    for name in dict.fromkeys(str(item["loc"][0]) if item["loc"] else "" for item in found):
        mine = [item for item in found if (str(item["loc"][0]) if item["loc"] else "") == name]
        if any(item["type"] in ("missing", "extra_forbidden") and len(item["loc"]) == 1 for item in mine):
            yield name, ""
        elif all(item["type"] == "value_error" for item in mine):
            for item in mine:
                yield from ((name, line) for line in str(item["ctx"]["error"]).splitlines())
        else:
            yield name, f"must be {words_of(kind, name)}, not {given.get(name)!r}"


def words_of(kind: type[Declared], name: str) -> str:
    """What a member must be, in words."""
    schema = kind.describe()
    return words(schema["properties"][name], schema.get("$defs", {}))


def words(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """What a JSON schema of this module asks for, in words: "an integer from 1 to 10"."""
    if "$ref" in schema:
        return words(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return _either([text for choice in schema["anyOf"] for text in _choices(choice, definitions)])
    if "enum" in schema or "const" in schema:
        return _either(_choices(schema, definitions))
    if schema["type"] == "object":
        members = ((name, words(inner, definitions)) for name, inner in schema["properties"].items())
        return "{" + ", ".join(f'"{name}": {text}' for name, text in members) + "}"
    if schema["type"] == "array":
        most = f" of at most {schema['maxItems']}" if "maxItems" in schema else ""
        return f"a list{most}, each {words(schema['items'], definitions)}"
    names = {
        "boolean": "true or false",
        "integer": "an integer",
        "number": "a number",
        "string": "a text",
    }
    return f"{schema.get('title', names[schema['type']])}{_range(schema)}"


def _choices(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[str]:
    if "enum" in schema or "const" in schema:
        return [json.dumps(choice) for choice in schema.get("enum", [schema.get("const")])]
    return [words(schema, definitions)]


def _range(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f" from {least:.12g} to {most:.12g}"
    return f" of at least {least:.12g}" if least is not None else ""


def _either(choices: list[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last
