"""What requests are made of that are sent to a real server: its records, their names, and values that nobody expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: What policy there is; ``prefix`` is that of reserved ids, ``cloud`` the name of the cloud's authenticator.
POLICY: Final = """
- !user alice
- !user bob
- !host {{ id: shop, annotations: {{ authn-jwt/ci/project: acme/shop }} }}
- !policy
  id: app
  body:
    - !host web
    - !user carol
    - &variables [ !variable password, !variable url, !variable old ]
    - !group {{ id: readers, annotations: {{ note: reads }} }}
    - !layer machines
    - !host-factory {{ id: machines, layers: [ !layer machines ] }}
    - !permit {{ role: !group readers, privileges: [ read, execute ], resources: *variables }}
    - !grant {{ role: !group readers, members: [ !host web, !user /alice ] }}
- !policy {{ id: team, annotations: {{ owner: red }} }}
- !policy {prefix}/authn-jwt
- !policy
  id: {prefix}/authn-jwt/ci
  body:
    - !webservice
    - !webservice status
    - !variable public-keys
    - !variable token-app-property
    - !variable issuer
    - !group apps
    - !permit {{ role: !group apps, privileges: [ read, authenticate ], resource: !webservice }}
- !grant {{ role: !group {prefix}/authn-jwt/ci/apps, member: !host shop }}
- !policy {{ id: {prefix}/authn-jwt/new, body: [ !webservice , !variable jwks-uri ] }}
- !webservice {prefix}/authn-gcp
- !policy {{ id: {prefix}/authn-iam/prod, body: [ !webservice , !variable server-id, !group apps ] }}
- !policy
  id: {prefix}/authn-ldap/corp
  body:
    - !webservice
      annotations:
        ldap-authn/uri: ldap://127.0.0.1:9
        ldap-authn/base_dn: ou=people,dc=example
        ldap-authn/group_base_dn: ou=groups,dc=example
    - !permit {{ role: !user /alice, privileges: [ read, authenticate ], resource: !webservice }}
- !policy
  id: {prefix}/authn-oidc/corp
  body: [ !webservice , !variable provider-uri, !variable client-id, !variable id-token-user-property ]
- !policy {{ id: {prefix}/{cloud}/corp, body: [ !webservice , !variable provider-uri ] }}
"""

#: Names of records that there are, by the name of the value in the path or in the query.
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "account": ("acme",),
    "identifier": (
        "app",
        "app/password",
        "app/web",
        "app/readers",
        "app/machines",
        "bob@app",
        "root",
        "acme:user:admin",
    ),
    "login": ("admin", "host/app/web", "bob@app"),
    "kind": ("user", "host", "group", "variable", "policy", "jwt"),
    "service_id": ("ci", "corp", "prod"),
    "name": ("ci",),
    "member": ("app/web",),
    "privilege": ("read", "execute"),
    "role": ("acme:user:admin", "host:app/web"),
    "variable_ids": ("acme:variable:app/password", "acme:variable:app/password,acme:variable:app/url"),
    "secrets": ("acme:variable:app/password",),
    "host_factory": ("acme:host_factory:app/machines",),
}

#: Kinds and identifiers that belong together.
RECORDS: Final = (
    ("variable", "app/password"),
    ("variable", "app/old"),
    ("group", "app/readers"),
    ("host", "app/web"),
    ("user", "alice"),
    ("user", "bob"),
    ("policy", "app"),
    ("policy", "team"),
    ("layer", "app/machines"),
    ("host_factory", "app/machines"),
    ("webservice", "svc/authn-jwt/ci"),
)

#: Methods, and what is none.
METHODS: Final = ("GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "X-Y")

#: Media types, right and wrong ones.
TYPES: Final = (
    "*/*",
    "",
    "application/json",
    "application/json; charset=latin-1",
    "application/json;charset=utf-16",
    "application/x-yaml",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain",
    "application/octet-stream",
    "text/html,application/xhtml+xml;q=0.9,*/*;q=0.1",
    "text/event-stream",
    "a/b/c; =",
)

#: Text that is well formed, and seldom expected.
TEXTS: Final = (
    *("", " ", "0", "1", "-1", "3", "1000", "2147483648", "9223372036854775807", "9223372036854775808", "9" * 40),
    *("1e3", "1e309", "0x10", "1.5", "NaN", "-0", "٣", "true", "false", "TRUE", "null", "[]", "{}", "a\0b", "\0"),
    *("\t", "\n", "\r\n", "\x1b[31m", "\x7f", "é", "e\u0301", "ß", "\u202e", "\u2028", "\ufeff", "\uffff", "😀", "%"),
    *("%25", "%2F", "..", "../..", "/", "//", "a/b/", "/a", ":", "::", "a:b", "a:b:c", "a:b:c:d", "@", "*", "?", "#"),
    *("'", '"', "\\", "\\u0000", "--", ";", "&", "=", "$1", "%s", "{}", "{0}", "!variable", "*x", "&x", "<<", "|"),
    *(">", "- -", "acme", "ACME", "other", "!", "root", "user", "host", "variable", "host_factory", "webservice"),
    *("public_key", "layer", "acme:user:alice", "acme:host:app/web", "acme:group:app/readers"),
    *("acme:variable:app/old", "user:bob", "other:user:x", "acme:webservice:svc/authn-jwt/ci"),
    *("svc/authn-jwt/ci/jwks-uri", "svc/authn-jwt/ci", "team", "app/old", "carol@app", "2999-01-01T00:00:00Z"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999+14:00", "2024-02-30", "10000-01-01T00:00:00Z"),
    *("0000-01-01", "2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z", "1970-01-01", "294277-01-01", "1795369055073057"),
    *("PT0S", "P1D", "P1Y2M3DT4H5M6.7S", "P99999999999Y", "-P1D", "30 days", "90d", "1h", "99999999999d"),
    *("10.0.0.0/8", "0.0.0.0/0", "::/0", "::ffff:1.2.3.4", "fe80::1%eth0", "300.1.1.1", "10.0.0.1/33", "http://[::1"),
    *("https://x", "a" * 300, "a" * 1025, "é" * 700, "a/" * 400, "a," * 1100, "a" * 6000, "authn", "authn-jwt/ci"),
    *("rotation/rotator", "expiration/timer", "password", "read,execute", "all", "any"),
)

#: Pieces of a path or query as they stand on the wire, most of which decode to nothing.
RAW: Final = (
    *("%00", "%ff", "%c0%af", "%ED%A0%80", "%", "%2", "%zz", "%25", "%252F", "%2F", "%2f", "%0a", "%0d%0a", "%20"),
    *("+", "%2B", "%F4%90%80%80", "%EF%BF%BF", "%F0%9F%98%80", "%E2%80%AE", "%CC%81", "/", "//", ";", "&", "=", ":"),
    *("@", "~", "!", "'", "*", "a", "A", "-", ".", "..", "0", "9", ",", "$", "(", "[", "]", "|", '"', "<", "\\", "^"),
    *("`", "a" * 500),
)

#: Headers, and values that they may have beside others.
HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Accept-Encoding": ("base64", "BASE64", "gzip, base64;q=0", "identity", ""),
    "If-Match": ("*", '"x"', 'W/"1"', '"1", "2"', "", '"'),
    "If-None-Match": ("*", '"x"', 'W/"1"', '"1", "2"', "", '"'),
    "Last-Event-ID": ("x", "", "0", "é"),
    "Svc-At-Least": ("x", "", "0/0", "1,2,3,4,5"),
    "User-Agent": ("x", "Mozilla/5.0", ""),
    "X-Request-Id": ("x", "a" * 200, "a b", "é"),
    "X-Forwarded-For": ("10.0.0.1", "x", "::1, 10.0.0.1", ","),
    "Cookie": ("a=b", "svc_session=x", ";;"),
    "Origin": ("https://svc.example", "null"),
    "Range": ("bytes=0-1", "bytes=5-1"),
    "Connection": ("close", "keep-alive", "Upgrade"),
    "Upgrade": ("h2c", "websocket"),
    "X-Http-Method-Override": ("DELETE",),
    "Host": ("svc", "x:99999", "é", ""),
    "Content-Length": ("x", "-1", "9" * 25),
    "Transfer-Encoding": ("gzip", "chunked, chunked"),
    "Forwarded": ("for=10.0.0.1",),
    "X-Long": ("a" * 9000, "a" * 40_000),
}

#: Values of JSON, which take the place of any other.
JSON_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**40, 1.5, -0.0, 1e300, float("nan"), float("inf"), "", "\0"),
    *("\ud800", "\udfff\ud800", "a" * 3000, [], {}, [[]], [None], {"": ""}, {"a": {"b": []}}, ["a"] * 300),
)

#: Bodies as they are.
BODIES: Final = (
    *(b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf{}", b"{", b"[]", b"null", b'"x"', b"1", b'{"a":1,"a":2}'),
    *(b'{"a":"\xed\xa0\x80"}', b"[" * 5000, b'{"a":' * 3000, b"- " * 3000, b"[" * 300 + b"]" * 300, b"- &a [*a]"),
    *(b"a: &a [&b [*a, *b]]", b"? a\n: b", b"- !user\n  id: [", b"--- 1\n--- 2\n", b"%YAML 9.9\n---\n"),
    *(b"- !!python/object:os.system x\n", b"- !user \xc2\x85\n", b"a" * 70_000, b"a=1&a=2&a[]=3", b"=&=&="),
    *(b"&" * 1100, b"%00=%ff", b"jwt=", b"jwt=a.b.c", b"jwt=e30.e30.e30", b"value=true", b"enabled=false"),
)

#: Words of policies.
POLICY_WORDS: Final = (
    *("-", "!user", "!host", "!group", "!layer", "!policy", "!variable", "!webservice", "!host-factory", "!role"),
    *("!resource", "!grant", "!revoke", "!permit", "!deny", "!delete", "!member", "!managed-role", "!automatic-role"),
    *("!x", "!!str", "!", "id:", "body:", "owner:", "annotations:", "role:", "roles:", "member:", "members:"),
    *("privileges:", "resource:", "record:", "layers:", "restricted_to:", "public_keys:", "kind:", "mime_type:"),
    *("uidnumber:", "gidnumber:", "[", "]", "{", "}", "*variables", "alice", "/alice", "app/web", "password"),
    *("/app/password", "10.0.0.0/8", "&a", "*a", "|", ">-", "'", "#", ",", "<<:", "null", "expiration/timer: P1D"),
    *("rotation/ttl: P1D", "rotation/rotator: postgresql/password", "authn/api-key: true", "~", "true"),
)
