"""Warnings about privileges and annotations that can't mean what their author may think."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.authn import cloud, gcp
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.policy import meaning_warnings
from svc.policy.resolved_policy import PermitProduct
from svc.rotation.postgresql import PostgresPasswordRotator
from tests.policy.world import resolved

#: Statements, each with a part of each warning.
CASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("!permit { role: !user u, privileges: [ read, execute, update, inspect ], resource: !variable v }", ()),
    ("!permit { role: !user u, privilege: exceute, resource: !variable v }", ("'exceute' is none", "mean 'execute'?")),
    ("!permit { role: !user u, privilege: Read, resource: !variable v }", ("'Read' is none", "mean 'read'?")),
    ("!permit { role: !user u, privilege: zzz, resource: !variable v }", ("'zzz' is none that this service checks.",)),
    ("!permit { role: !user u, privilege: zzz, resource: !webservice w }", ()),
    ("!permit { role: !user u, privilege: autenticate, resource: !webservice w }", ("mean 'authenticate'?",)),
    ("!deny { role: !user u, privilege: exceute, resource: !variable v }", ()),
    ("!variable { id: v, annotations: { expiration/ttl: P30D } }", ()),
    ("!variable { id: v, annotations: { expiration/ttl: 30d } }", ("'expiration/ttl' of Variable 'v' must be a duration",)),
    ("!variable { id: v, annotations: { rotation/ttl: P } }", ("'rotation/ttl' of Variable 'v' must be a duration",)),
    ("!variable { id: v, annotations: { rotation/rotator: postgresql/password } }", ()),
    (
        "!variable { id: v, annotations: { rotation/rotator: postgres/pasword } }",
        ("names no rotator", "postgresql/password'?"),
    ),
    ("!host { id: h, annotations: { authn/api-key: false, authn-gcp/project-id: p } }", ()),
    (
        "!host { id: h, annotations: { authn/api-key: false, authn-gcp/proyect: p } }",
        ("'authn-gcp/proyect' of Host 'h' is none that authn-gcp reads.", "mean 'authn-gcp/project-id'?"),
    ),
    ("!host { id: h, annotations: { authn/api-key: false, authn-jwt/ci/anything: p } }", ()),
    ("!host { id: h, annotations: { authn-jwt/ci/sub: p } }", ("Host 'h' has claims to check, and an API key besides",)),
    ("!host { id: h, annotations: { authn/api-key: true, authn-jwt/ci/sub: p } }", ("and an API key besides",)),
    ("!host { id: h, annotations: { note: p } }", ()),
)


class WarningTests(SynchronousTestCase):
    """All kinds of warnings."""

    def warnings(self, text: str, dialect: Dialect = NATIVE) -> tuple[str, ...]:
        """The warnings about a document."""
        return resolved(text, dialect=dialect).warnings

    def test_cases(self) -> None:
        """What can't be meant has a warning, in both dialects, and all else none (POL-107 to POL-110)."""
        for dialect in (NATIVE, CONJUR):
            for statement, parts in CASES:
                found = " ".join(self.warnings(f"- {statement}\n", dialect))
                self.assertEqual(bool(found), bool(parts), (statement, found))
                for part in parts:
                    self.assertIn(part, found)

    def test_cloud(self) -> None:
        """The cloud authenticator has its name, and its services their annotations (POL-109)."""
        for dialect in (NATIVE, CONJUR):
            for under in (dialect.cloud, f"{dialect.cloud}/prod"):
                for name, meant in (("resource-group", ""), ("resourcegroup", f"mean '{under}/resource-group'?")):
                    text = f"- !host {{ id: h, annotations: {{ authn/api-key: false, {under}/{name}: p }} }}\n"
                    self.assertEqual(meant in " ".join(self.warnings(text, dialect)), True)
                    self.assertEqual(bool(self.warnings(text, dialect)), bool(meant))

    def test_most(self) -> None:
        """Of one kind there are 100 at most, and the number of the others (POL-111)."""
        text = "".join(f"- !host {{ id: h{number}, annotations: {{ authn-jwt/ci/sub: p }} }}\n" for number in range(130))
        found = self.warnings(text)
        self.assertEqual((len(found), found[-1]), (101, "There are 30 other warnings of this kind."))

    def test_cost(self) -> None:
        """Each text is compared once, and 100 of a kind at most, whatever a document is made of (POL-113)."""
        many = [f"rd{number}" for number in range(300)]
        on_variable = f"- !permit {{ role: !user u, privileges: [ {', '.join(many)} ], resource: !variable v }}\n"
        hosts = [f"- !host {{ id: h{name}, annotations: {{ authn-gcp/{name}: p }} }}\n" for name in many]
        same = [f"- !host {{ id: h{name}, annotations: {{ authn-gcp/proyect: p }} }}\n" for name in many]
        rotators = [f"- !variable {{ id: v{name}, annotations: {{ rotation/rotator: {name} }} }}\n" for name in many]
        for text, compared in (
            (on_variable, 100),
            (on_variable.replace("variable", "webservice"), 100),
            (f"{on_variable}{on_variable}", 100),
            ("".join(hosts), 100),
            ("".join(same), 1),
            ("".join(rotators), 100),
        ):
            calls: list[str] = []

            def count_call(word: str, *others: Any, calls: list[str] = calls) -> list[str]:
                calls.append(word)
                return get_close_matches(word, *others)

            self.patch(meaning_warnings, "get_close_matches", count_call)
            self.warnings(text)
            self.assertEqual(len(calls), compared, text[:80])

    def test_kinds_of_products(self) -> None:
        """The kinds of the resources of a statement are found once, not for each of its privileges (POL-113)."""
        passes: list[None] = []

        class Resources(list[str]):
            def __iter__(self) -> Iterator[str]:
                passes.append(None)
                return super().__iter__()

        resources = Resources([f"acme:variable:v{number}" for number in range(50)])
        product = PermitProduct(resources, [f"p{number}" for number in range(50)], ["acme:user:u"])
        self.assertEqual(len([*meaning_warnings.warn_of_privileges([product])]), 50)
        self.assertEqual(len(passes), 1)

    def test_others(self) -> None:
        """Beyond the most warnings and comparisons the others are counted, all (POL-111, POL-113)."""
        names = ", ".join(f"reed{number}" for number in range(130))
        for kind, last in (
            ("variable", "There are 30 other warnings of this kind."),
            ("webservice", "30 other privileges were not compared with those that this service checks."),
        ):
            found = self.warnings(f"- !permit {{ role: !user u, privileges: [ {names} ], resource: !{kind} v }}\n")
            self.assertEqual((len(found), found[-1]), (101, last))
            self.assertIn("Did you mean 'read'?", found[99])

    def test_names(self) -> None:
        """The names are those that authenticators and rotators have (POL-108, POL-109)."""
        self.assertEqual(meaning_warnings.GOOGLE, gcp.NAME)
        self.assertEqual(meaning_warnings.GOOGLE_ANNOTATIONS, tuple(gcp._CLAIMS))
        self.assertEqual(meaning_warnings.CLOUD_ANNOTATIONS, cloud._PERMITTED)
        self.assertEqual(meaning_warnings.ROTATORS, (PostgresPasswordRotator.name,))
