"""Decisions on a standing."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.authorization import (
    Allowed,
    Denial,
    Denied,
    decide_privilege,
    decide_role_visibility,
    decide_visibility,
    require_ownership,
    require_privilege,
    require_role_visible,
    require_value,
    require_visible,
)
from svc.model.dialect import CONJUR, NATIVE
from svc.model.errors import Forbidden, NoValue, RecordNotFound
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import AccessFacts

CALLER = RoleName("acct", "user", "alice")
VARIABLE = ResourceName("acct", "variable", "db/password")
GROUP = RoleName("acct", "group", "ops")
FOREIGN = RoleName("other", "group", "ops")

OWNER = AccessFacts(caller_exists=True, exists=True, owns=True)
READER = AccessFacts(caller_exists=True, exists=True, privileges=frozenset({"read"}))
STRANGER = AccessFacts(caller_exists=True, exists=True)
HOLDER = AccessFacts(caller_exists=True, exists=True, holds=True)
INSPECTOR = AccessFacts(caller_exists=True, exists=True, inspects=True)
NOTHING = AccessFacts(caller_exists=True, exists=False)
BARE = AccessFacts(caller_exists=True, exists=False, holds=True)

STANDINGS = st.builds(
    AccessFacts,
    caller_exists=st.booleans(),
    exists=st.booleans(),
    owns=st.booleans(),
    privileges=st.frozensets(st.sampled_from(["read", "update", "execute", "x"])),
    holds=st.booleans(),
    inspects=st.booleans(),
)


class DecisionTests(SynchronousTestCase):
    """Values with reasons."""

    def test_owners_have_every_privilege(self) -> None:
        """Who holds the owner's role may do anything, by whatever name (ROLE-2)."""
        for privilege in ("read", "execute", "anything"):
            self.assertEqual(decide_privilege(OWNER, privilege), Allowed())

    def test_a_privilege_is_what_was_given(self) -> None:
        """One privilege implies no other (ROLE-3)."""
        self.assertEqual(decide_privilege(READER, "read"), Allowed())
        self.assertEqual(decide_privilege(READER, "execute"), Denied(Denial.PRIVILEGE_MISSING))

    def test_any_privilege_shows_the_resource(self) -> None:
        """A resource is visible to who has any privilege on it, also one that the service doesn't know (ROLE-4)."""
        self.assertEqual(
            decide_visibility(AccessFacts(caller_exists=True, exists=True, privileges=frozenset({"juggle"}))), Allowed()
        )

    def test_who_inspects_sees(self) -> None:
        """Who inspects a resource sees it, and has no privilege on it; so too a role without a resource (INS-1, INS-4)."""
        self.assertEqual([decide_visibility(INSPECTOR), decide_role_visibility(INSPECTOR)], [Allowed(), Allowed()])
        for privilege in ("read", "inspect", "update"):
            self.assertEqual(decide_privilege(INSPECTOR, privilege), Denied(Denial.PRIVILEGE_MISSING))
        self.assertRaises(Forbidden, require_value, INSPECTOR, "execute", VARIABLE)
        self.assertRaises(Forbidden, require_ownership, INSPECTOR, VARIABLE)
        bare = attrs.evolve(NOTHING, inspects=True)
        self.assertEqual([decide_visibility(bare), decide_role_visibility(bare)], [Denied(Denial.MISSING), Allowed()])

    @given(STANDINGS, st.sampled_from(["read", "update", "execute", "inspect"]))
    def test_inspection_is_no_privilege(self, access_facts: AccessFacts, privilege: str) -> None:
        """Whatever else a caller has, what it may do is the same whether it inspects the thing or not (INS-4)."""
        given_, not_ = (
            decide_privilege(attrs.evolve(access_facts, inspects=value), privilege) == Allowed() for value in (True, False)
        )
        self.assertEqual(given_, not_)

    def test_to_others_it_is_invisible(self) -> None:
        """A resource is invisible to who has nothing on it, and to a mere member of the role of its name (ROLE-4)."""
        self.assertEqual(decide_visibility(STRANGER), Denied(Denial.INVISIBLE))
        self.assertEqual(decide_visibility(HOLDER), Denied(Denial.INVISIBLE))
        self.assertEqual(decide_role_visibility(HOLDER), Denied(Denial.INVISIBLE))

    def test_a_role_without_resource_is_seen_by_its_holders(self) -> None:
        """A role without a resource is visible to those who hold it, as a role and not as a resource (ROLE-5)."""
        self.assertEqual(decide_role_visibility(BARE), Allowed())
        self.assertEqual(decide_visibility(BARE), Denied(Denial.MISSING))

    @given(STANDINGS, st.sampled_from(["read", "execute"]))
    def test_what_may_be_used_may_be_seen(self, access_facts: AccessFacts, privilege: str) -> None:
        """Nothing can be used that can't be seen, and a role is seen wherever its resource is."""
        if decide_privilege(access_facts, privilege) == Allowed():
            self.assertEqual(decide_visibility(access_facts), Allowed())
        if decide_visibility(access_facts) == Allowed():
            self.assertEqual(decide_role_visibility(access_facts), Allowed())

    @given(STANDINGS.filter(lambda access_facts: not access_facts.caller_exists), st.sampled_from(["read", "execute"]))
    def test_who_is_gone_may_nothing(self, access_facts: AccessFacts, privilege: str) -> None:
        """A caller whose role no longer exists is denied for that reason, before any other is looked at (ROLE-8)."""
        gone = Denied(Denial.CALLER_GONE)
        self.assertEqual(
            [
                decide_privilege(access_facts, privilege),
                decide_visibility(access_facts),
                decide_role_visibility(access_facts),
            ],
            [gone] * 3,
        )
        for attempt in (
            lambda: require_privilege(access_facts, privilege, VARIABLE),
            lambda: require_value(access_facts, privilege, VARIABLE),
            lambda: require_visible(access_facts, VARIABLE),
            lambda: require_role_visible(access_facts, FOREIGN, CALLER, CONJUR),
        ):
            self.assertEqual(self.assertRaises(Forbidden, attempt).why, "role of the token no longer exists")


class DemandTests(SynchronousTestCase):
    """What the client learns of a denial."""

    def test_missing_and_invisible_look_alike(self) -> None:
        """A resource that is missing and one that can't be seen are not found, with the same words (ROLE-6)."""
        for access_facts in (NOTHING, STRANGER):
            refusal = self.assertRaises(RecordNotFound, require_privilege, access_facts, "read", VARIABLE)
            self.assertEqual(str(refusal), "RecordNotFound: acct: variable: db/password")

    def test_seen_without_privilege_is_forbidden(self) -> None:
        """A resource that the caller sees, without the privilege asked for, is forbidden; the log learns which one
        (ROLE-7).
        """
        require_privilege(READER, "read", VARIABLE)
        refusal = self.assertRaises(Forbidden, require_privilege, READER, "update", VARIABLE)
        self.assertEqual(refusal.why, "lacks update on acct:variable:db/password")

    def test_ownership(self) -> None:
        """What takes ownership is forbidden to a caller that sees the thing without owning it, and not found for others."""
        require_ownership(OWNER, VARIABLE)
        refusal = self.assertRaises(Forbidden, require_ownership, READER, VARIABLE)
        self.assertEqual(refusal.why, "doesn't own acct:variable:db/password")
        for access_facts in (NOTHING, STRANGER):
            self.assertRaises(RecordNotFound, require_ownership, access_facts, VARIABLE)

    def test_a_hidden_variable_has_no_value(self) -> None:
        """A variable that is missing or can't be seen is one without a value, by its full id (SEC-9)."""
        for access_facts in (NOTHING, STRANGER):
            refusal = self.assertRaises(NoValue, require_value, access_facts, "execute", VARIABLE)
            self.assertEqual(refusal.name, "acct:variable:db/password")

    def test_a_value_needs_its_privilege(self) -> None:
        """A variable that is visible without the privilege is forbidden; its owner and who was permitted may (SEC-9)."""
        self.assertRaises(Forbidden, require_value, READER, "execute", VARIABLE)
        require_value(OWNER, "execute", VARIABLE)
        require_value(AccessFacts(caller_exists=True, exists=True, privileges=frozenset({"execute"})), "execute", VARIABLE)


class SeeTests(SynchronousTestCase):
    """The resource routes."""

    def test_what_is_visible_is_seen(self) -> None:
        """Owners and holders of any privilege see a resource; to others, mere holders of its role too, it is not found."""
        for access_facts in (OWNER, READER):
            require_visible(access_facts, VARIABLE)
        for access_facts in (NOTHING, STRANGER, HOLDER, BARE):
            self.assertEqual(
                self.assertRaises(RecordNotFound, require_visible, access_facts, VARIABLE).name, "acct:variable:db/password"
            )


class SeeRoleTests(SynchronousTestCase):
    """The role routes."""

    def test_a_visible_role_is_seen(self) -> None:
        """Owners, holders of a privilege on its resource, and holders of a role without resource see it in both dialects."""
        for dialect in (NATIVE, CONJUR):
            for access_facts in (OWNER, READER, BARE):
                require_role_visible(access_facts, GROUP, CALLER, dialect)

    def test_a_missing_role_is_not_found(self) -> None:
        """A role that doesn't exist is not found in both dialects."""
        for dialect in (NATIVE, CONJUR):
            refusal = self.assertRaises(RecordNotFound, require_role_visible, NOTHING, GROUP, CALLER, dialect)
            self.assertEqual(refusal.name, "acct:group:ops")

    def test_a_hidden_role_is_forbidden_in_the_native_dialect(self) -> None:
        """A role of the caller's own account that exists and can't be seen is forbidden in the native dialect (ROLE-10)."""
        self.assertRaises(Forbidden, require_role_visible, STRANGER, GROUP, CALLER, NATIVE)

    def test_a_hidden_role_is_missing_in_the_conjur_dialect(self) -> None:
        """The same role is as if missing in the conjur dialect (ROLE-10)."""
        self.assertRaises(RecordNotFound, require_role_visible, STRANGER, GROUP, CALLER, CONJUR)

    def test_a_foreign_role_is_missing(self) -> None:
        """A hidden role of another account is as if missing in both dialects (ROLE-10)."""
        for dialect in (NATIVE, CONJUR):
            self.assertRaises(RecordNotFound, require_role_visible, STRANGER, FOREIGN, CALLER, dialect)
