"""The two vocabularies."""

from __future__ import annotations

import attrs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import CONJUR, NATIVE, find_dialect
from svc.model.errors import ConfigurationInvalid


class DialectTests(SynchronousTestCase):
    """Choosing a dialect, and what it says."""

    def test_by_name(self) -> None:
        """A dialect is had by its name."""
        self.assertIs(find_dialect("native"), NATIVE)
        self.assertIs(find_dialect("conjur"), CONJUR)

    def test_unknown_names_are_refused(self) -> None:
        """A dialect that doesn't exist is refused by the name of the setting, with those that do."""
        for name in ("", "Native", "conjur ", "other"):
            refusal = self.assertRaises(ConfigurationInvalid, find_dialect, name)
            self.assertEqual(refusal.key, "dialect")
            self.assertIn("native, conjur", refusal.message)

    def test_every_field_tells_them_apart(self) -> None:
        """There is no field in which the dialects agree: what doesn't differ is no matter of dialect (CFG-26)."""
        for field in attrs.fields(type(NATIVE)):
            self.assertNotEqual(getattr(NATIVE, field.name), getattr(CONJUR, field.name), field.name)

    def test_a_dialect_does_not_change(self) -> None:
        """A dialect is a frozen value."""
        with self.assertRaises(attrs.exceptions.FrozenInstanceError):
            NATIVE.prefix = "other"  # type: ignore[misc] # the point of the test

    def test_native_names(self) -> None:
        """The native dialect speaks the service's own names (CFG-26)."""
        self.assertEqual(NATIVE.cloud, "authn-cloud")
        self.assertEqual((NATIVE.prefix, NATIVE.replication_prefix, NATIVE.reported_version), ("svc", "db_", None))
        self.assertEqual((NATIVE.hides_roles, NATIVE.reveals_missing_privilege), (False, False))
        self.assertEqual(NATIVE.authenticators_environment, ("SERVICE_AUTHENTICATORS",))

    def test_conjur_names(self) -> None:
        """The conjur dialect speaks those of the installed base, and the service's own list of authenticators goes first
        (CFG-26).
        """
        self.assertEqual(CONJUR.cloud, "authn-azure")
        self.assertEqual((CONJUR.prefix, CONJUR.replication_prefix, CONJUR.reported_version), ("conjur", "pg_", "1.23.0"))
        self.assertEqual((CONJUR.hides_roles, CONJUR.reveals_missing_privilege), (True, True))
        self.assertEqual(CONJUR.authenticators_environment, ("SERVICE_AUTHENTICATORS", "CONJUR_AUTHENTICATORS"))
