"""A judge of answers: whether an OpenAPI document tells of them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs
import jsonschema_rs
from jsonschema import Draft202012Validator

_MAY_BE_EMPTY: Final = "The body may be empty."

_VALUE: Final = re.compile(r"\{([a-z_]+)\}")

#: An authenticator's name with its slash encoded.
_ENCODED: Final = re.compile("^(/authn-(?:[^/%]|%(?!2[Ff]))+)%2[Ff]")

#: What begins the descriptions of values that have one segment or more, and of those that have no slash in any form.
_TAIL: Final = "one or more segments"
_FLAT: Final = "one segment, which may not have a slash"

#: What a path that no operation has is answered with (OAS-7), and what is no request.
_NOWHERE: Final = frozenset({400, 404, 408, 413, 414, 431, 503})


@attrs.frozen(eq=False)
class _Expected:
    """What the document tells of one status of an operation."""

    required: tuple[str, ...]
    content: Mapping[str, Any]
    may_be_empty: bool


@attrs.frozen(eq=False)
class Fitting:
    """A path of the document, and the expression of the raw paths that fit it, with their values by their names."""

    path: str
    methods: frozenset[str]
    expression: re.Pattern[str]
    #: Which of its segments are fixed: of several paths that fit, the one with the first of them is meant.
    rank: tuple[int, ...]


@attrs.frozen(eq=False)
class Judge:
    """What one document says."""

    document: Mapping[str, Any]
    _expectations: dict[tuple[str, str, int], _Expected | None] = attrs.field(factory=dict, init=False)
    #: The paths, the most specific first.
    paths: tuple[Fitting, ...] = attrs.field(init=False)

    @paths.default
    def _every_path(self) -> tuple[Fitting, ...]:
        paths = self.document["paths"]
        found = (_fitting(path, self._longer(path, methods), methods) for path, methods in paths.items())
        return tuple(sorted(found, key=lambda each: each.rank))

    def _longer(self, path: str, methods: Mapping[str, Any]) -> str:
        """Return the path with the value that this one leaves out (OAS-4), if it does."""
        _, without, name = next(iter(methods.values()))["operationId"].partition("_without_")
        same = (each for each in self.document["paths"] if each.replace(f"/{{{name}}}", "") == path and each != path)
        return next(same, path) if without else path

    def resolved(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an object of the document, or that which it refers to."""
        place: Any = self.document
        for name in found["$ref"].split("/")[1:] if "$ref" in found else ():
            place = place[name]
        return place if "$ref" in found else found

    def path_of(self, method: str, raw: str) -> str | None:
        """Return the path of the document that a request is about, ``None`` if no operation has it.

        :param raw: as it stands on the wire, without a query; a slash at its end is dropped (WIRE-8).
        """
        raw = raw if raw == "/" else raw.removesuffix("/")
        wanted = "GET" if method == "HEAD" else method
        if found := next(
            (each.path for each in self.paths if wanted in each.methods and each.expression.fullmatch(raw)), None
        ):
            return found
        # This one slash may be encoded (WIRE-15).
        spelled = _ENCODED.sub(r"\1/", raw)
        return None if wanted != "PATCH" or spelled == raw else self.path_of(method, spelled)

    def values_of(self, path: str, raw: str) -> dict[str, str]:
        """Return the values that a raw path has, undecoded, by their names in a path of the document."""
        found = next(each for each in self.paths if each.path == path).expression.fullmatch(raw.removesuffix("/"))
        return {} if found is None else found.groupdict()

    def untold(
        self,
        path: str | None,
        method: str,
        status: int,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        quickly: bool = False,
    ) -> str | None:
        """Return what the document doesn't tell of an answer, ``None`` when it tells all.

        ``path`` is ``None`` for one that no operation has. ``headers`` have names in lower case; ``body`` is ``None`` for an
        answer to ``HEAD``. With ``quickly`` the validator is a compiled one.
        """
        key = (path or "", "get" if method == "HEAD" else method.lower(), status)
        if key not in self._expectations:
            self._expectations[key] = self._expected(*key)
        expected = self._expectations[key]
        if expected is None:
            return f"the status {status}"
        missing = [name for name in expected.required if name not in headers]
        if missing:
            return f"that {missing[0]} is missing"
        content, given = expected.content, headers.get("content-type")
        if given is None:
            return None if expected.may_be_empty and not body else f"that {status} has no content type"
        media_type = next((each for each in (given.partition(";")[0], given, "*/*") if each in content), None)
        if media_type is None:
            # The newer interface returns the text of Accept, which has its media type somewhere.
            media_type = next((each for each in content if each in given), None)
        if media_type is None:
            return f"that {status} is {given}"
        if body is None or not media_type.endswith("json"):
            return None
        try:
            value = json.loads(body, parse_constant=_no_number)
        except ValueError as error:
            return f"that {status} is no JSON, {error}"
        return self.misfit(content[media_type]["schema"], value, quickly=quickly)

    def misfit(self, schema: Mapping[str, Any], value: Any, *, quickly: bool = False) -> str | None:
        """Return where a value doesn't fit a schema of the document."""
        if quickly:
            compiled = self._compiled(_Key(schema))
            found = None if compiled.is_valid(value) else next(compiled.iter_errors(value))
            return None if found is None else f"{found.instance_path}: {found.message[:500]}"
        error = next(iter(self._validator(_Key(schema)).iter_errors(value)), None)
        return None if error is None else f"{error.json_path}: {error.message[:500]}"

    @functools.lru_cache(10_000)  # noqa: B019 (there are few judges)
    def _validator(self, schema: _Key) -> Draft202012Validator:
        return Draft202012Validator(self._whole(schema))

    @functools.lru_cache(10_000)  # noqa: B019
    def _compiled(self, schema: _Key) -> jsonschema_rs.Draft202012Validator:
        return jsonschema_rs.Draft202012Validator(self._whole(schema))

    def _whole(self, schema: _Key) -> dict[str, Any]:
        return {**schema.schema, "components": self.document["components"]}

    def _expected(self, path: str, method: str, status: int) -> _Expected | None:
        if not path:
            refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
            return _Expected((), refusal, may_be_empty=False) if status in _NOWHERE else None
        responses = self.document["paths"][path][method]["responses"]
        if str(status) not in responses:
            return None
        response = self.resolved(responses[str(status)])
        content = response.get("content", {})
        return _Expected(
            required=tuple(name.lower() for name, its in response.get("headers", {}).items() if its.get("required")),
            content=content,
            may_be_empty=not content or _MAY_BE_EMPTY in response["description"],
        )


@attrs.frozen(hash=True)
class _Key:
    """A schema of the document, which nobody changes, as a key."""

    schema: Mapping[str, Any] = attrs.field(eq=id)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _fitting(path: str, longer: str, methods: Mapping[str, Any]) -> Fitting:
    """Return a path; ``longer`` is the one that has the value which this path leaves out, or the same."""
    about = {
        parameter["name"]: parameter["description"]
        for operation in methods.values()
        for parameter in operation["parameters"]
        if parameter.get("in") == "path"
    }
    pieces, end = [], 0
    for value in _VALUE.finditer(longer):
        before = longer[end : value.start()]
        if value[1] in about:
            pieces += [re.escape(before), f"(?P<{value[1]}>{_expression(about[value[1]])})"]
        else:
            # It is left out, with its slash or without (WIRE-14).
            pieces += [re.escape(before.removesuffix("/")), "/?"]
        end = value.end()
    tails = {name for name, description in about.items() if description.startswith(_TAIL)}
    segments = [_VALUE.findall(segment) for segment in path.split("/")]
    # Behind a tail, what goes on comes before what ends.
    rank = (*(2 if tails & {*names} else min(len(names), 1) for names in segments), 3)
    expression = re.compile("".join([*pieces, re.escape(longer[end:])]))
    return Fitting(path, frozenset(method.upper() for method in methods), expression, rank)


def _expression(description: str) -> str:
    if description.startswith(_TAIL):
        return ".+"
    return "(?:[^/%]|%(?!2[Ff]))+" if description.startswith(_FLAT) else "[^/]+"
