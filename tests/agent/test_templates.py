"""Tests of ``svc.agent.templates``."""

from __future__ import annotations

import base64
import shlex

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.agent.faults import TemplateFault
from svc.agent.templates import OUTPUT_LIMIT, SecretTemplate, ValueMissing, ValueRefused

VALUES = {"a/b": b"s3cr3t", "name": b"a/b", "raw": b"\xff\x00", "odd": b"<&\"'>\n"}


def render(text: str) -> str:
    """Render a template with ``VALUES``."""
    return SecretTemplate.parse("it", text).render(VALUES).decode()


class TemplatesTests(SynchronousTestCase):
    """What a template can say."""

    def fault(self, text: str) -> str:
        """Read and render a template that fails, and return the message, in which no value is."""
        message = str(self.assertRaises(TemplateFault, render, text))
        self.assertNotIn("s3cr3t", message)
        return message

    def test_values(self) -> None:
        """Values stand as they are, in base64, quoted for a shell or within a line, and the last line end stays (AGT-10)."""
        self.assertEqual(render('p = {{ secret("a/b") }}\n'), "p = s3cr3t\n")
        self.assertEqual(render('{{ secret("odd") }}'), "<&\"'>\n")
        self.assertEqual(render('{{ secret_base64("raw") }}'), "/wA=")
        self.assertEqual(shlex.split(render('P={{ secret("odd")|shell }}')), ["P=<&\"'>\n"])
        self.assertEqual(render('P={{ secret("odd")|trim|line }}'), "P=<&\"'>")
        self.assertEqual(render('{% if secret("a/b") %}yes{% endif %}'), "yes")
        self.assertIn("(MultilineValue)", self.fault('P={{ secret("odd")|line }}'))
        self.assertIn("(MultilineValue)", self.fault("{{ '\x1b[1m'|line }}"))
        self.assertEqual(render("{{ 'a\tb \xe9'|line }}"), "a\tb \xe9")
        self.assertIn("the value of raw is not text", self.fault('{{ secret("raw") }}'))

    @given(st.binary(), st.text(st.characters(exclude_categories=["Cs"])))
    def test_values_are_no_templates(self, value: bytes, text: str) -> None:
        """Whatever a value says, it is put in as it is (AGT-10)."""
        template = SecretTemplate.parse("it", '{{ secret("a") }}|{{ secret_base64("b") }}')
        for spoken in (text, "{{ secret('b') }}{% raw %}", "{{ 7 * 7 }}"):
            made = template.render({"a": spoken.encode(), "b": value})
            self.assertEqual(made, spoken.encode() + b"|" + base64.b64encode(value))

    def test_ids(self) -> None:
        """Ids that stand in it are known at once, and others are asked for when they are needed (AGT-13)."""
        never = '{% if secret("a/b") == "" %}{{ secret_base64("c") }}{% endif %}'
        text = '{{ secret("a/b") }}' + never + '{% for each in ["xy"] %}{{ secret(each) }}{% endfor %}'
        template = SecretTemplate.parse("it", text)
        self.assertEqual(template.variables, {"a/b", "c"})
        wanted = self.assertRaises(ValueMissing, template.render, VALUES)
        self.assertEqual(wanted.variable, "xy")
        refused = self.assertRaises(ValueRefused, template.render, {"a/b": b"1"}, frozenset({"xy", "c"}))
        self.assertEqual(refused.variable, "xy")
        used: set[str] = set()
        self.assertEqual(template.render({"a/b": b"1", "xy": b"2"}, used=used), b"12")
        self.assertEqual(used, {"a/b", "xy"})
        self.assertEqual(render('{{ secret(secret("name")) }}'), "s3cr3t")

    def test_bad_templates(self) -> None:
        """What can't be read, and unknown names, are refused before anything is rendered, undefined things then (AGT-11)."""
        for text, told in (
            ("{{ secret('a/b' }}", "it, line 1:"),
            ("\n\n{% if %}", "it, line 3:"),
            ("{{ secrt('a/b') }}", "nothing is called secrt"),
            ("{{ self.x }}", "fails with these values (UndefinedError)"),
            ("{{ 'a'.nothing }}", "it, line 1: it fails with these values (UndefinedError)"),
            ("{{ 'a'|nothing }}", "No filter named"),
            ("{% include 'x' %}", "can't include"),
            ("{% import 'x' as y %}", "can't include"),
            ("{% extends 'x' %}", "can't include"),
            ("{{ " + "(" * 3000, "it"),
        ):
            self.assertIn(told, self.fault(text), text)

    def test_no_code(self) -> None:
        """The ways out of a sandbox that are known lead nowhere (AGT-12)."""
        for text in (
            "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            "{{ secret.__globals__ }}",
            "{{ secret.__closure__ }}",
            "{{ secret.__code__.co_consts }}",
            "{{ secret['__globals__'] }}",
            "{{ secret|attr('__globals__') }}",
            "{{ secret|attr('__glo' ~ 'bals__') }}",
            "{{ ['a']|map(attribute='__class__')|join }}",
            "{{ '{0.__class__.__init__.__globals__}'.format(secret) }}",
            "{{ ('{0.__class__}').format_map({'0': secret}) }}",
            "{% set f = '{0.__class__}'.format %}{{ f(secret) }}",
            "{{ self.__init__.__globals__ }}",
            "{{ self._TemplateReference__context }}",
            "{{ range.__init__ }}",
            "{{ (1).real.__class__ }}",
            "{{ [].append(1) }}",
            "{{ {}.update(a=1) }}",
            "{{ dict(a=1).clear() }}",
            "{% for x in range(10**9) %}{% endfor %}",
            "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
            "{{ secret.func_globals.x }}",
            "{% set x = secret('a/b') %}{{ x.__class__.__base__ }}",
        ):
            self.fault(text)

    def test_nothing_else_is_there(self) -> None:
        """Of Jinja's own functions few are left, and none of the program's (AGT-12)."""
        for name in (
            "lipsum",
            "cycler",
            "joiner",
            "namespace",
            "config",
            "request",
            "os",
            "open",
            "__import__",
            "environment",
        ):
            self.assertIn(f"nothing is called {name}", self.fault(f"{{{{ {name} }}}}"))

    def test_failures_quote_nothing(self) -> None:
        """Failures that Jinja tells with a value are told without it, with their line (AGT-14)."""
        for text in (
            "{{ {}[secret('a/b')] }}",
            "{{ {}[secret('a/b')].x }}",
            "{{ secret('a/b').nothing.x }}",
            "{{ 1 + secret('a/b') }}",
            "{{ secret('a/b')|round }}",
            "{{ ''|attr(secret('a/b')) }}",
            "{{ secret(7) }}",
        ):
            self.assertIn("it, line 2: it fails with these values", self.fault("\n" + text))

    def test_too_long(self) -> None:
        """A text that grows beyond all measure fails (AGT-14)."""
        many = "{% for x in range(90000) %}" + "x" * (OUTPUT_LIMIT // 90000 + 1) + "{% endfor %}"
        self.assertIn("more than", self.fault(many))
