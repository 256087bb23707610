"""Tests of the choice of users."""

from __future__ import annotations

import os
import pwd

from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StartRefused
from svc.storage.embedded.users import UNPRIVILEGED, list_clients, postgres_user, user_name

AS_ROOT = None if os.geteuid() == 0 else "only root may choose"


class RootTests(SynchronousTestCase):
    """The user that root runs PostgreSQL as."""

    skip = AS_ROOT

    def test_unprivileged(self) -> None:
        """It is the first of the unprivileged users that exists (DATA-22)."""
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = postgres_user(None)
        self.assertEqual(user.name, next(name for name in UNPRIVILEGED if name in names))
        self.assertEqual(user.uid, pwd.getpwnam(user.name).pw_uid)

    def test_owner(self) -> None:
        """It is the owner of the cluster, where there is one (DATA-22)."""
        nobody = pwd.getpwnam("nobody")
        user = postgres_user(nobody.pw_uid)
        self.assertEqual((user.name, user.uid, user.gid), ("nobody", nobody.pw_uid, nobody.pw_gid))

    def test_impossible_owner(self) -> None:
        """A cluster of root's, or of a user without a name, can't be run."""
        for uid in (0, 54321):
            self.assertRaises(StartRefused, postgres_user, uid)

    def test_clients(self) -> None:
        """Only root may connect."""
        self.assertEqual(set(list_clients()), {user_name(0)})


class OtherTests(SynchronousTestCase):
    """The user that anybody else runs PostgreSQL as."""

    def setUp(self) -> None:
        """Be somebody else than root for a while."""
        if os.geteuid() == 0:
            os.seteuid(pwd.getpwnam("nobody").pw_uid)
            self.addCleanup(os.seteuid, 0)

    def test_self(self) -> None:
        """It is himself."""
        for owner in (None, os.geteuid()):
            user = postgres_user(owner)
            self.assertEqual((user.uid, user.gid), (os.geteuid(), os.getegid()))

    def test_foreign_cluster(self) -> None:
        """A cluster of another user's can't be run."""
        self.assertRaises(StartRefused, postgres_user, os.geteuid() + 1)

    def test_clients(self) -> None:
        """That user and root may connect (DATA-21)."""
        self.assertEqual(set(list_clients()), {user_name(0), user_name(os.geteuid())})


class NameTests(SynchronousTestCase):
    """Names of users."""

    def test_nameless(self) -> None:
        """A user may have no name."""
        self.assertIsNone(user_name(54321))
