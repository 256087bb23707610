"""Tests of ``svc.cli.ldap_mapping``: what is asked of the server, and what is said of its answers."""

from __future__ import annotations

import json

from tests.cli.test_authenticator import CommandsCase, Server


class MappingTests(CommandsCase):
    """Commands about mappings (LDAP-19)."""

    def test_map(self) -> None:
        """A group or a login is mapped to roles, which are told (LDAP-19)."""
        server = Server(201, {"ldap_group": "devs", "roles": ["a/b:group:x", "a/b:group:y"]})
        said = self.run_command(server, "map", "authn-ldap/c i", "--group", "cn=a/b, dc=x", "group:x", "group:y")
        path = "/authn-ldap/c%20i/a%2Fb/groups/cn%3Da%2Fb%2C%20dc%3Dx"
        self.assertEqual(server.asked, [("POST", path, b'{"roles": ["group:x", "group:y"]}')])
        self.assertEqual(said.stderr, "the group cn=a/b, dc=x is mapped to a/b:group:x, a/b:group:y.\n")
        self.run_command(server, "map", "authn-ldap/ci", "--user", "alice", "group:x")
        self.assertEqual(server.asked[-1][1], "/authn-ldap/ci/a%2Fb/users/alice")

    def test_unmap(self) -> None:
        """It is mapped no longer; names that are words of logins are encoded (LDAP-5, LDAP-19)."""
        server = Server(204)
        said = self.run_command(server, "unmap", "authn-ldap/ci", "--group", "explain")
        self.assertEqual(server.asked, [("DELETE", "/authn-ldap/ci/a%2Fb/groups/%65xplain", None)])
        self.assertEqual(said.stderr, "the group explain is mapped no longer.\n")

    def test_list(self) -> None:
        """All are listed, with their roles (LDAP-19)."""
        answers = [
            (200, {"ldap_group": "devs", "roles": ["a:group:x", "a:group:y"]}),
            (200, {"keys": ["alice"]}),
            (200, {"ldap_username": "alice", "roles": ["a:group:x"]}),
        ]
        server = Server(200, {"keys": ["devs"]}, *answers)
        said = self.run_command(server, "mappings", "authn-ldap/ci").stdout
        self.assertEqual(said, "group\tdevs\ta:group:x, a:group:y\nuser\talice\ta:group:x\n")
        asked = [path.rpartition("a%2Fb/")[2] for _, path, _ in server.asked]
        self.assertEqual(asked, ["groups", "groups/devs", "users", "users/alice"])
        server = Server(200, {"keys": ["devs"]}, *answers)
        told = json.loads(self.run_command(server, "mappings", "authn-ldap/ci", "--json").stdout)
        self.assertEqual(told, {"groups": {"devs": ["a:group:x", "a:group:y"]}, "users": {"alice": ["a:group:x"]}})

    def test_usage(self) -> None:
        """Only LDAP authenticators map, one name at a time, to a role at least."""
        for line in (
            ("map", "authn-jwt/ci", "--group", "a", "group:x"),
            ("map", "authn-ldap/ci", "group:x"),
            ("map", "authn-ldap/ci", "--group", "a", "--user", "b", "group:x"),
            ("map", "authn-ldap/ci", "--group", "a"),
            ("unmap", "authn-ldap/ci"),
            ("mappings", "authn-ldap"),
        ):
            server = Server(200)
            self.run_command(server, *line, code=2)
            self.assertEqual(server.asked, [])
