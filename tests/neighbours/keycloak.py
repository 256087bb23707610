"""Keycloak, whose realms sign with the algorithms that they are set to, and make their keys when they need them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import attrs

from tests.neighbours.jwt_logins import JwtLogins, free_port
from tests.neighbours.server import Server, ask, start_program, wait_until
from tests.neighbours.table import Answer, Row

SUMMARY = "Keycloak 26.7.3, from Maven (org.keycloak:keycloak-quarkus-dist)"

#: The variable that names the folder into which the distribution was unpacked.
HOME = "KEYCLOAK_HOME"

_INSTALL = """apt-get install maven openjdk-17-jre-headless unzip, then
  mvn dependency:copy -Dartifact=org.keycloak:keycloak-quarkus-dist:26.7.3:zip -DoutputDirectory=. && unzip -q keycloak-*.zip
and put the path of the folder keycloak-26.7.3 into KEYCLOAK_HOME"""

_SECRET = "workload-secret"
_AUDIENCE = "https://svc.example.org"

_POLICY = """
- !policy
  id: svc/authn-jwt/kc
  body:
    - !webservice
    - !webservice status
    - !group apps
    - !permit { role: !group apps, privileges: [ read, authenticate ], resource: !webservice }
- !policy
  id: kc
  body:
    - !host
      id: workload
      annotations: { authn-jwt/kc/azp: workload }
- !grant { role: !group svc/authn-jwt/kc/apps, member: !host kc/workload }
"""


def missing() -> str | None:
    """Return how to get what isn't here."""
    home = os.environ.get(HOME)
    return None if home and (Path(home) / "bin/kc.sh").exists() and shutil.which("java") else _INSTALL


def _realm(name: str, algorithm: str) -> dict[str, object]:
    mapper = {
        "name": "audience",
        "protocol": "openid-connect",
        "protocolMapper": "oidc-audience-mapper",
        "config": {"included.custom.audience": _AUDIENCE, "access.token.claim": "true"},
    }
    client = {
        "clientId": "workload",
        "secret": _SECRET,
        "serviceAccountsEnabled": True,
        "standardFlowEnabled": False,
        "protocolMappers": [mapper],
    }
    return {
        "realm": name,
        "enabled": True,
        "defaultSignatureAlgorithm": algorithm,
        "sslRequired": "none",
        "clients": [client],
    }


@attrs.frozen
class Realms:
    """A Keycloak with realms that are signed for differently."""

    url: str

    def token(self, realm: str) -> str:
        """Return a token of the workload."""
        form = {"grant_type": "client_credentials", "client_id": "workload", "client_secret": _SECRET}
        path = f"{self.url}/realms/{realm}/protocol/openid-connect/token"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = ask("POST", path, urlencode(form).encode(), headers)
        if answer.status != 200:
            raise RuntimeError(f"there is no token: {answer}")
        return str(json.loads(answer.text)["access_token"])

    def keys(self, realm: str) -> str:
        """Return the address of its key set."""
        return f"{self.url}/realms/{realm}/protocol/openid-connect/certs"


def _start(stack: ExitStack, directory: Path) -> Realms:
    home, port = directory / "keycloak", free_port()
    shutil.copytree(os.environ[HOME], home)
    folder = home / "data/import"
    folder.mkdir(parents=True, exist_ok=True)
    for name, algorithm in (("corp", "RS256"), ("elliptic", "ES256"), ("edwards", "EdDSA")):
        (folder / f"{name}-realm.json").write_text(json.dumps(_realm(name, algorithm)))
    options = ["start-dev", "--import-realm", "--http-host=127.0.0.1", f"--http-port={port}", "--cache=local"]
    start_program(stack, [str(home / "bin/kc.sh"), *options], directory / "keycloak.log")
    realms = Realms(f"http://127.0.0.1:{port}")

    def is_ready() -> bool:
        try:
            return ask("GET", realms.keys("edwards")).status == 200
        except OSError:
            return False

    wait_until(is_ready, f"Keycloak isn't ready: see {directory / 'keycloak.log'}", 600)
    return realms


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Yield what becomes of logins with the tokens of its realms."""
    realms = _start(stack, directory)
    options = ("--allow-http-providers", "--allow-private-providers=127.0.0.0/8", "--jwks-refetch-interval=0")
    server = Server(stack, directory, "--authenticators=authn,authn-jwt/kc", *options)
    logins = JwtLogins(server, "kc")
    if (loaded := server.load(_POLICY)).status != 201:
        raise RuntimeError(f"the policy isn't loaded: {loaded}")
    logins.set(audience=_AUDIENCE, token_app_property="azp", identity_path="kc")
    issuer, login = f"{realms.url}/realms/corp", partial(logins.login, realms.token("corp"))
    accept = {"Accept": "application/jwk-set+json, application/json, */*;q=0.1"}
    for path in ("protocol/openid-connect/certs", ".well-known/openid-configuration"):
        yield Row(f"{path} by its types", Answer(200), partial(ask, "GET", f"{issuer}/{path}", None, accept))
    for uri in (issuer, f"{issuer}/", issuer.replace("http", "HTTP")):
        logins.declare(provider_uri=uri)
        yield Row(f"provider-uri {uri}", Answer(0, "status"), logins.status)
        yield Row(f"a login by {uri}", Answer(200), login)
    logins.declare(provider_uri=f"{realms.url}/realms/My Realm")
    yield Row("a realm's name as a browser shows it", Answer(1, "percent-encoded"), logins.status)
    yield Row("is a fault of the settings", Answer(401), login)
    logins.declare(provider_uri=f"{realms.url}/realms/none")
    yield Row("a realm that isn't there", Answer(1, "the answer has status 404."), logins.status)
    logins.declare(provider_uri=f"{realms.url}/realms/elliptic")
    yield Row("the token of another realm", Answer(401), login)
    logins.declare(jwks_uri=realms.keys("corp"), issuer=issuer)
    yield Row("jwks-uri", Answer(0, "status"), logins.status)
    yield Row("a login by jwks-uri", Answer(200), login)
    logins.declare(jwks_uri=realms.keys("corp"), issuer=f"{issuer}/")
    yield Row("another issuer", Answer(401), login)
    document = json.loads(ask("GET", realms.keys("corp")).text)
    logins.declare(public_keys=json.dumps({"type": "jwks", "value": document}), issuer=issuer)
    yield Row("its key set as public-keys", Answer(0, "status"), logins.status)
    yield Row("a login by public-keys", Answer(200), login)
    for realm, algorithm, name in (("elliptic", "ES256", "ES256"), ("edwards", "EdDSA", "Ed25519")):
        yield from _of_other_keys(realms, logins, realm, algorithm, name)


def _of_other_keys(realms: Realms, logins: JwtLogins, realm: str, algorithm: str, name: str) -> Iterator[Row]:
    issuer, token = f"{realms.url}/realms/{realm}", realms.token(realm)
    logins.declare(provider_uri=issuer)
    yield Row(f"{algorithm} that isn't allowed", Answer(401), partial(logins.login, token))
    entries = json.loads(ask("GET", realms.keys(realm)).text)["keys"]
    value = {"keys": [entry for entry in entries if entry["alg"] == algorithm]}
    logins.declare(public_keys=json.dumps({"type": "jwks", "value": value}), issuer=issuer)
    why = f"it is for {algorithm}, not for RS256, RS384 or RS512"
    yield Row(f"a set of {algorithm} alone", Answer(1, why), logins.status)
    remedy = f"Declare the variable algorithms and set it to what the provider signs with: {algorithm}."
    yield Row("with the remedy", Answer(1, remedy), logins.status)
    logins.declare(provider_uri=issuer, algorithms=name)
    yield Row(f"algorithms {name}", Answer(0, "status"), logins.status)
    yield Row(f"a login with {algorithm}", Answer(200), partial(logins.login, token))
