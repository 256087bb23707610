"""Templates: text in which the values of variables stand, in the language of Jinja (AGT-10 to AGT-14).

Note [No code]. A template is text by the authors of the configuration, and values are put into it, never read as templates.
It is rendered by Jinja's sandbox all the same, with nothing to import, include or change: who may write a template may say
what is in one file, and shall not become the user that the agent runs as.

Note [Found by rendering]. The ids that stand in a template as they are, ``secret("ci/password")``, are known before anything
is read. Others are only known when the template asks for them, such as one that is put together: rendering then ends with
the id, which is read, and the template is rendered again. An id that no rendering asks for does no harm.

Note [Nothing quoted]. Jinja's message for a failure may quote a value: ``{}[secret("a")]`` fails with the key that is
missing. So a failure while rendering is reported by the line and the kind of the error alone. A template that can't be
parsed has seen no value, and is reported with Jinja's message.
"""

from __future__ import annotations

import base64
import re
import shlex
import traceback
from collections.abc import Mapping
from typing import Any, Final

import attrs
from jinja2 import StrictUndefined, Template, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from svc.agent.faults import TemplateFault

#: The longest text that a template may make, in bytes.
OUTPUT_LIMIT: Final = 16 * 1024 * 1024

#: The functions by which a template has a value.
FUNCTIONS: Final = frozenset({"secret", "secret_base64"})

#: Functions of Jinja that no template of a configuration needs.
_REMOVED_FUNCTIONS: Final = ("lipsum", "cycler", "joiner", "namespace")


#: Characters that end a line or control a terminal; a tab does neither.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


class ValueMissing(Exception):
    """A value is needed that hasn't been read; ``variable`` is its id."""

    def __init__(self, variable: str) -> None:
        super().__init__(variable)
        self.variable = variable


class ValueRefused(Exception):
    """A template needs a value that the role can't read; ``variable`` is its id."""

    def __init__(self, variable: str) -> None:
        super().__init__(variable)
        self.variable = variable


class MultilineValue(Exception):
    """A value that should be within a line holds a line end, or another control character."""


def _quote_for_shell(value: object) -> str:
    return shlex.quote(str(value))


def _require_one_line(value: object) -> str:
    text = str(value)
    if _CONTROL.search(text):
        raise MultilineValue
    return text


def _make_environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=None,
        extensions=(),
        cache_size=0,
    )
    for name in _REMOVED_FUNCTIONS:
        del made.globals[name]
    made.filters["shell"] = _quote_for_shell
    made.filters["line"] = _require_one_line
    made.policies["json.dumps_kwargs"] = {"sort_keys": True, "ensure_ascii": False}
    return made


_JINJA: Final = _make_environment()


@attrs.frozen(eq=False)
class SecretTemplate:
    """A template that was read; ``variables`` are the ids that stand in it as they are, ``name`` is for messages."""

    name: str
    variables: frozenset[str]
    _template: Template = attrs.field(repr=False)

    @classmethod
    def parse(cls, name: str, text: str) -> SecretTemplate:
        """Read a template.

        :raises TemplateFault: Jinja can't read it, or it uses a name that no template has (AGT-11).
        """
        try:
            tree = _JINJA.parse(text)
            unknown = sorted(meta.find_undeclared_variables(tree) - FUNCTIONS - _JINJA.globals.keys())
            if unknown:
                raise TemplateFault(f'{name}: nothing is called {unknown[0]}; a value is written {{{{ secret("its/id") }}}}')
            if any(True for _ in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends))):
                raise TemplateFault(f"{name}: a template can't include, import or extend another one")
            template = _JINJA.from_string(text)
        except TemplateSyntaxError as error:
            raise TemplateFault(f"{name}, line {error.lineno}: {error.message}") from None
        except RecursionError:
            raise TemplateFault(f"{name} is nested too deeply") from None
        return cls(name, frozenset(_constant_ids(tree)), template)

    def render(
        self, values: Mapping[str, bytes], refused: frozenset[str] = frozenset(), used: set[str] | None = None
    ) -> bytes:
        """Return the text with the values in it.

        :param refused: ids of the values that can't be had.
        :param used: the ids that the template asks for are added to it.
        :raises Wanted: it needs a value that is in neither.
        :raises Unreadable: it needs one of ``refused``.
        :raises TemplateFault: it fails with these values; the text has none of them (Note [Nothing quoted]).
        """

        def read_value(variable: object) -> bytes:
            if not isinstance(variable, str):
                raise TypeError("an id is a text")
            if used is not None:
                used.add(variable)
            if variable in values:
                return values[variable]
            raise (ValueRefused if variable in refused else ValueMissing)(variable)

        def secret(variable: object) -> str:
            try:
                return read_value(variable).decode("utf-8")
            except UnicodeDecodeError:
                raise TemplateFault(
                    f'{self.name}: the value of {variable} is not text: write secret_base64("{variable}"), or '
                    "make it a file of its own with variable = …"
                ) from None

        def secret_base64(variable: object) -> str:
            return base64.b64encode(read_value(variable)).decode("ascii")

        pieces: list[bytes] = []
        left = OUTPUT_LIMIT
        try:
            for piece in self._template.generate(secret=secret, secret_base64=secret_base64):
                pieces.append(piece.encode("utf-8"))
                left -= len(pieces[-1])
                if left < 0:
                    raise TemplateFault(f"{self.name} makes more than {OUTPUT_LIMIT} bytes")
        except (ValueMissing, ValueRefused, TemplateFault):
            raise
        except Exception as error:
            raise TemplateFault(
                f"{self.name}{_line_of_error(error)}: it fails with these values ({type(error).__name__})"
            ) from None
        return b"".join(pieces)


def _constant_ids(tree: nodes.Template) -> list[str]:
    """Return the ids that stand as they are in calls of the functions."""
    found = []
    for call in tree.find_all(nodes.Call):
        match call:
            case nodes.Call(node=nodes.Name(name=name), args=[nodes.Const(value=str(variable))]) if name in FUNCTIONS:
                found.append(variable)
    return found


def _line_of_error(error: BaseException) -> str:
    """Return where in the template a failure was, as Jinja has its lines in tracebacks."""
    frames: Any = traceback.walk_tb(error.__traceback__)
    lines = [number for frame, number in frames if frame.f_code.co_filename == "<template>"]
    return f", line {lines[-1]}" if lines else ""
