"""Decisions on a standing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.authorization import (
    Allowed,
    Denial,
    Denied,
    require,
    require_ownership,
    require_role_visible,
    require_value,
    require_visible,
    role_sight,
    sight,
    use,
)
from svc.model.dialect import CONJUR, NATIVE
from svc.model.errors import Forbidden, NotFound, NoValue
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import Standing

CALLER = RoleName("acct", "user", "alice")
VARIABLE = ResourceName("acct", "variable", "db/password")
GROUP = RoleName("acct", "group", "ops")
FOREIGN = RoleName("other", "group", "ops")

OWNER = Standing(caller_exists=True, exists=True, owns=True)
READER = Standing(caller_exists=True, exists=True, privileges=frozenset({"read"}))
STRANGER = Standing(caller_exists=True, exists=True)
HOLDER = Standing(caller_exists=True, exists=True, holds=True)
NOTHING = Standing(caller_exists=True, exists=False)
BARE = Standing(caller_exists=True, exists=False, holds=True)

STANDINGS = st.builds(
    Standing,
    caller_exists=st.booleans(),
    exists=st.booleans(),
    owns=st.booleans(),
    privileges=st.frozensets(st.sampled_from(["read", "update", "execute", "x"])),
    holds=st.booleans(),
)


class DecisionTests(SynchronousTestCase):
    """Values with reasons."""

    def test_owners_have_every_privilege(self) -> None:
        """Who holds the owner's role may do anything, by whatever name (ROLE-2)."""
        for privilege in ("read", "execute", "anything"):
            self.assertEqual(use(OWNER, privilege), Allowed())

    def test_a_privilege_is_what_was_given(self) -> None:
        """One privilege implies no other (ROLE-3)."""
        self.assertEqual(use(READER, "read"), Allowed())
        self.assertEqual(use(READER, "execute"), Denied(Denial.PRIVILEGE_MISSING))

    def test_any_privilege_shows_the_resource(self) -> None:
        """A resource is visible to who has any privilege on it, also one that the service doesn't know (ROLE-4)."""
        self.assertEqual(sight(Standing(caller_exists=True, exists=True, privileges=frozenset({"juggle"}))), Allowed())

    def test_to_others_it_is_invisible(self) -> None:
        """A resource is invisible to who has nothing on it, and to a mere member of the role of its name (ROLE-4)."""
        self.assertEqual(sight(STRANGER), Denied(Denial.INVISIBLE))
        self.assertEqual(sight(HOLDER), Denied(Denial.INVISIBLE))
        self.assertEqual(role_sight(HOLDER), Denied(Denial.INVISIBLE))

    def test_a_role_without_resource_is_seen_by_its_holders(self) -> None:
        """A role without a resource is visible to those who hold it, as a role and not as a resource (ROLE-5)."""
        self.assertEqual(role_sight(BARE), Allowed())
        self.assertEqual(sight(BARE), Denied(Denial.MISSING))

    @given(STANDINGS, st.sampled_from(["read", "execute"]))
    def test_what_may_be_used_may_be_seen(self, standing: Standing, privilege: str) -> None:
        """Nothing can be used that can't be seen, and a role is seen wherever its resource is."""
        if use(standing, privilege) == Allowed():
            self.assertEqual(sight(standing), Allowed())
        if sight(standing) == Allowed():
            self.assertEqual(role_sight(standing), Allowed())

    @given(STANDINGS.filter(lambda standing: not standing.caller_exists), st.sampled_from(["read", "execute"]))
    def test_who_is_gone_may_nothing(self, standing: Standing, privilege: str) -> None:
        """A caller whose role no longer exists is denied for that reason, before any other is looked at (ROLE-8)."""
        gone = Denied(Denial.CALLER_GONE)
        self.assertEqual([use(standing, privilege), sight(standing), role_sight(standing)], [gone] * 3)
        for attempt in (
            lambda: require(standing, privilege, VARIABLE),
            lambda: require_value(standing, privilege, VARIABLE),
            lambda: require_visible(standing, VARIABLE),
            lambda: require_role_visible(standing, FOREIGN, CALLER, CONJUR),
        ):
            self.assertEqual(self.assertRaises(Forbidden, attempt).why, "role of the token no longer exists")


class DemandTests(SynchronousTestCase):
    """What the client learns of a denial."""

    def test_missing_and_invisible_look_alike(self) -> None:
        """A resource that is missing and one that can't be seen are not found, with the same words (ROLE-6)."""
        for standing in (NOTHING, STRANGER):
            refusal = self.assertRaises(NotFound, require, standing, "read", VARIABLE)
            self.assertEqual(str(refusal), "NotFound: acct: variable: db/password")

    def test_seen_without_privilege_is_forbidden(self) -> None:
        """A resource that the caller sees, without the privilege asked for, is forbidden; the log learns which one
        (ROLE-7).
        """
        require(READER, "read", VARIABLE)
        refusal = self.assertRaises(Forbidden, require, READER, "update", VARIABLE)
        self.assertEqual(refusal.why, "lacks update on acct:variable:db/password")

    def test_ownership(self) -> None:
        """What takes ownership is forbidden to whoever sees the thing and doesn't own it, and not found for all others."""
        require_ownership(OWNER, VARIABLE)
        refusal = self.assertRaises(Forbidden, require_ownership, READER, VARIABLE)
        self.assertEqual(refusal.why, "doesn't own acct:variable:db/password")
        for standing in (NOTHING, STRANGER):
            self.assertRaises(NotFound, require_ownership, standing, VARIABLE)

    def test_a_hidden_variable_has_no_value(self) -> None:
        """A variable that is missing or can't be seen is one without a value, by its full id (SEC-9)."""
        for standing in (NOTHING, STRANGER):
            refusal = self.assertRaises(NoValue, require_value, standing, "execute", VARIABLE)
            self.assertEqual(refusal.name, "acct:variable:db/password")

    def test_a_value_needs_its_privilege(self) -> None:
        """A variable that is visible without the privilege is forbidden; its owner and who was permitted may (SEC-9)."""
        self.assertRaises(Forbidden, require_value, READER, "execute", VARIABLE)
        require_value(OWNER, "execute", VARIABLE)
        require_value(Standing(caller_exists=True, exists=True, privileges=frozenset({"execute"})), "execute", VARIABLE)


class SeeTests(SynchronousTestCase):
    """The resource routes."""

    def test_what_is_visible_is_seen(self) -> None:
        """Owners and holders of any privilege see a resource; to others, mere holders of its role too, it is not found."""
        for standing in (OWNER, READER):
            require_visible(standing, VARIABLE)
        for standing in (NOTHING, STRANGER, HOLDER, BARE):
            self.assertEqual(
                self.assertRaises(NotFound, require_visible, standing, VARIABLE).name, "acct:variable:db/password"
            )


class SeeRoleTests(SynchronousTestCase):
    """The role routes."""

    def test_a_visible_role_is_seen(self) -> None:
        """Owners, holders of a privilege on its resource, and holders of a role without resource see it in both dialects."""
        for dialect in (NATIVE, CONJUR):
            for standing in (OWNER, READER, BARE):
                require_role_visible(standing, GROUP, CALLER, dialect)

    def test_a_missing_role_is_not_found(self) -> None:
        """A role that doesn't exist is not found in both dialects."""
        for dialect in (NATIVE, CONJUR):
            refusal = self.assertRaises(NotFound, require_role_visible, NOTHING, GROUP, CALLER, dialect)
            self.assertEqual(refusal.name, "acct:group:ops")

    def test_a_hidden_role_is_forbidden_in_the_native_dialect(self) -> None:
        """A role of the caller's own account that exists and can't be seen is forbidden in the native dialect (ROLE-10)."""
        self.assertRaises(Forbidden, require_role_visible, STRANGER, GROUP, CALLER, NATIVE)

    def test_a_hidden_role_is_missing_in_the_conjur_dialect(self) -> None:
        """The same role is as if missing in the conjur dialect (ROLE-10)."""
        self.assertRaises(NotFound, require_role_visible, STRANGER, GROUP, CALLER, CONJUR)

    def test_a_foreign_role_is_missing(self) -> None:
        """A hidden role of another account is as if missing in both dialects (ROLE-10)."""
        for dialect in (NATIVE, CONJUR):
            self.assertRaises(NotFound, require_role_visible, STRANGER, FOREIGN, CALLER, dialect)
