"""The API server of Kubernetes on an etcd: it takes our manifests, and serves the keys of service accounts."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from OpenSSL import crypto

from tests.authn.providers.authority import Authority
from tests.manifests import KUBERNETES, manifests
from tests.negotiation import CASES
from tests.neighbours.jwt_logins import JwtLogins, free_port
from tests.neighbours.server import Server, ask, start_program, wait_until
from tests.neighbours.table import Answer, Row

SUMMARY = "kube-apiserver 1.37.2, built from its Go modules, on Debian's etcd 3.4.23"

#: The variable that names the program where it isn't in PATH.
PROGRAM = "KUBE_APISERVER"

_BUILD = """apt-get install etcd-server golang, then in an empty folder:
  go mod init kube; in go.mod `require k8s.io/kubernetes v1.37.2` and a line `replace k8s.io/NAME => k8s.io/NAME v0.37.2`
  for each module that its own go.mod replaces by ./staging;
  go build -mod=mod -o kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
and put the program in PATH, or its path into KUBE_APISERVER"""

#: The interfaces of the manifests that are extensions' own, which a plain API server doesn't have.
_EXTENSIONS = {"external-secrets.io/v1", "secrets-store.csi.x-k8s.io/v1"}

_NAMESPACE = "svc-system"
#: The label of a namespace in which nothing runs that needs more than the standard "restricted" allows.
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}

_ADMIN = "admins-token"
_AUDIENCE = "https://svc.example.org"

_POLICY = """
- !policy
  id: svc/authn-jwt/k8s
  body:
    - !webservice
    - !webservice status
    - !variable audience
    - !variable token-app-property
    - !variable identity-path
    - !variable ca-cert
    - !group apps
    - !permit { role: !group apps, privileges: [ read, authenticate ], resource: !webservice }
- !policy
  id: k8s
  body:
    - !host
      id: system:serviceaccount:default:billing
      annotations: { authn-jwt/k8s/sub: "system:serviceaccount:default:billing" }
- !grant { role: !group svc/authn-jwt/k8s/apps, member: !host k8s/system:serviceaccount:default:billing }
"""


def _program() -> str | None:
    return os.environ.get(PROGRAM) or shutil.which("kube-apiserver")


def missing() -> str | None:
    """Return how to get what isn't here."""
    return None if _program() is not None and shutil.which("etcd") is not None else _BUILD


@attrs.frozen
class Cluster:
    """An API server with a certificate of its own authority; it is started, and stopped, with each set of signing keys."""

    directory: Path
    port: int
    etcd: str
    authority: Authority

    @property
    def url(self) -> str:
        """Its address, which is its issuer too."""
        return f"https://127.0.0.1:{self.port}"

    def serve(self, stack: ExitStack, *keys: str, signing: str) -> None:
        """Start it with these files of keys, of which one signs, and wait until it is ready."""
        tokens = self.directory / "tokens.csv"
        tokens.write_text(f"{_ADMIN},admin,admin,system:masters\n")
        program = _program()
        assert program is not None
        start_program(
            stack,
            [
                program,
                f"--etcd-servers={self.etcd}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self.port}",
                f"--cert-dir={self.directory}",
                f"--tls-cert-file={self.directory / 'tls.pem'}",
                f"--tls-private-key-file={self.directory / 'tls.pem'}",
                f"--service-account-issuer={self.url}",
                f"--service-account-jwks-uri={self.url}/openid/v1/jwks",
                f"--service-account-signing-key-file={self.directory / signing}",
                *(f"--service-account-key-file={self.directory / key}" for key in keys),
                "--service-cluster-ip-range=10.0.0.0/24",
                "--authorization-mode=RBAC",
                f"--token-auth-file={tokens}",
            ],
            self.directory / "apiserver.log",
        )
        wait_until(self._is_ready, f"the API server isn't ready: see {self.directory / 'apiserver.log'}", 300)

    def _is_ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz").status == 200
        except (OSError, ssl.SSLError, urllib.error.URLError):
            return False

    def ask(
        self, method: str, path: str, body: object = None, token: str | None = _ADMIN, accept: str | None = None
    ) -> Answer:
        """Make a request, as the administrator unless another token, or none, is given."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        headers |= {} if accept is None else {"Accept": accept}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        return ask(method, f"{self.url}{path}", data, headers, str(self.directory / "authority.pem"))

    def make(self, document: dict[str, Any], parameters: str = "") -> Answer:
        """Make what a manifest says, if the API server knows each of its fields."""
        version, kind = document["apiVersion"], document["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        kinds = json.loads(self.ask("GET", root).text)["resources"]
        (found,) = (each for each in kinds if each["kind"] == kind and "/" not in each["name"])
        place = f"/namespaces/{document['metadata'].get('namespace', _NAMESPACE)}" if found["namespaced"] else ""
        return self.ask("POST", f"{root}{place}/{found['name']}?fieldValidation=Strict{parameters}", document)

    def make_account(self, name: str) -> None:
        """Make a service account, unless it is there."""
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        made = self.ask("POST", accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
        if made.status not in {201, 409}:
            raise RuntimeError(f"there is no service account: {made}")

    def token(self, account: str, *audiences: str) -> str:
        """Return a token of a service account, for the cluster itself unless for others."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": list(audiences)}}
        path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
        return str(json.loads(self.ask("POST", path, body).text)["status"]["token"])

    def read_by_all(self) -> Answer:
        """Let everybody read the keys."""
        kind, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
        return self.ask(
            "POST",
            f"/apis/{kind}/clusterrolebindings",
            {
                "apiVersion": kind,
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "oidc-reviewer"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:service-account-issuer-discovery"},
                "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:unauthenticated"}],
            },
        )


def _start_etcd(stack: ExitStack, directory: Path) -> str:
    clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    start_program(
        stack,
        [
            "etcd",
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ],
        directory / "etcd.log",
    )
    return clients


def _write_keys(directory: Path, authority: Authority) -> None:
    private: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey] = {
        name: rsa.generate_private_key(65537, 2048) for name in ("old.pem", "new.pem")
    }
    private["elliptic.pem"] = ec.generate_private_key(ec.SECP256R1())
    for name, key in private.items():
        # It reads an EC key that verifies in this form alone.
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        (directory / name).write_bytes(pem)
    issued = authority.issue("127.0.0.1")
    (directory / "tls.pem").write_bytes(
        issued.dumpPEM() + crypto.dump_privatekey(crypto.FILETYPE_PEM, issued.privateKey.original)
    )
    (directory / "authority.pem").write_text(authority.pem)


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Yield what the API server answers, and what becomes of logins by it."""
    authority = Authority()
    _write_keys(directory, authority)
    cluster = Cluster(directory, free_port(), _start_etcd(stack, directory), authority)
    options = ("--authenticators=authn,authn-jwt/k8s", "--allow-private-providers=127.0.0.0/8", "--jwks-refetch-interval=0")
    server = Server(stack, directory, *options)
    logins = JwtLogins(server, "k8s")
    if (loaded := server.load(_POLICY)).status != 201:
        raise RuntimeError(f"the policy isn't loaded: {loaded}")
    for name, value in (
        ("audience", _AUDIENCE),
        ("token-app-property", "sub"),
        ("identity-path", "k8s"),
        ("ca-cert", authority.pem),
    ):
        server.set(f"svc/authn-jwt/k8s/{name}", value)
    with ExitStack() as running:
        cluster.serve(running, "old.pem", signing="old.pem")
        for name in ("billing", "svc-keys"):
            cluster.make_account(name)
        reader, token = cluster.token("svc-keys"), cluster.token("billing", _AUDIENCE)
        yield from _of_manifests(cluster)
        yield from _of_old_key(cluster, logins, reader, token)
    with ExitStack() as running:
        cluster.serve(running, "new.pem", signing="new.pem")
        yield Row("the rotated cluster refuses the old reader's token", Answer(1, "status 401"), logins.refresh)
        yield Row(
            "status says that the last fetch failed",
            Answer(1, "The last fetch of the keys failed: "),
            logins.status,
        )
        yield Row("and logins with the removed key go on", Answer(200), partial(logins.login, token))
        reader = cluster.token("svc-keys")
        server.set("svc/authn-jwt/k8s/jwks-token", reader)
        yield Row("a new reader's token mends it", Answer(0), logins.refresh)
        yield Row("the removed key admits nobody", Answer(401), partial(logins.login, token))
        newer = cluster.token("billing", _AUDIENCE)
        yield Row("the new key does", Answer(200), partial(logins.login, newer))
    with ExitStack() as running:
        cluster.serve(running, "elliptic.pem", signing="elliptic.pem")
        reader, token = cluster.token("svc-keys"), cluster.token("billing", _AUDIENCE)
        logins.declare(provider_uri=cluster.url, jwks_token=reader)
        yield Row("a cluster of an EC key", Answer(1, "it is for ES256, not for RS256, RS384 or RS512"), logins.status)
        yield Row("is told the remedy", Answer(1, "Declare the variable algorithms and set it to"), logins.status)
        logins.declare(provider_uri=cluster.url, jwks_token=reader, algorithms="ES256")
        yield Row("with algorithms it is well", Answer(0, "status"), logins.status)
        yield Row("and logs in", Answer(200), partial(logins.login, token))


def _of_manifests(cluster: Cluster) -> Iterator[Row]:
    """Yield that every manifest is made as it is, and that pods of the deployments are admitted."""
    shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": _RESTRICTED}}
    yield Row("the namespace of workloads", Answer(201), partial(cluster.make, shop))
    order = ("Namespace", "ServiceAccount", "ConfigMap", "Service")
    own = [(path, document) for path, document in manifests() if document["apiVersion"] not in _EXTENSIONS]
    own.sort(key=lambda each: order.index(each[1]["kind"]) if each[1]["kind"] in order else len(order))
    for path, document in own:
        name = f"{path.relative_to(KUBERNETES)}: {document['kind']}"
        yield Row(name, Answer(201), partial(cluster.make, document))
        if document["kind"] == "Deployment":
            template = document["spec"]["template"]
            metadata = {"generateName": "one-", "namespace": document["metadata"].get("namespace", _NAMESPACE)}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | template["metadata"], "spec": template["spec"]}
            yield Row(f"{name}, a pod of it", Answer(201), partial(cluster.make, pod, "&dryRun=All"))
            free = pod | {"spec": template["spec"] | {"hostNetwork": True}}
            refused = Answer(403, "violates PodSecurity")
            yield Row(f"{name}, one that may do more", refused, partial(cluster.make, free, "&dryRun=All"))
    odd = shop | {"spec": {"finalisers": []}}
    yield Row("a field that is no field", Answer(400, 'unknown field \\"spec.finalisers\\"'), partial(cluster.make, odd))


def _of_old_key(cluster: Cluster, logins: JwtLogins, reader: str, token: str) -> Iterator[Row]:
    keys, document = "/openid/v1/jwks", "/.well-known/openid-configuration"
    for accept, has_keys, has_document in CASES:
        for path, fits in ((keys, has_keys), (document, has_document)):
            asked = partial(cluster.ask, "GET", path, accept=accept)
            yield Row(f"{path} for Accept: {accept}", Answer(200 if fits else 406), asked)
    logins.declare(jwks_uri=f"{cluster.url}{keys}")
    yield Row("keys without a token", Answer(1, "status 403: perhaps a token is wanted"), logins.status)
    yield Row("and logins meanwhile", Answer(503), partial(logins.login, token))
    logins.declare(jwks_uri=f"{cluster.url}{keys}", jwks_token="not-a-token")
    yield Row("keys with a wrong token", Answer(1, "status 401: the token that was shown is not accepted"), logins.status)
    logins.declare(jwks_uri=f"{cluster.url}/openid/v1/none", jwks_token=_ADMIN)
    yield Row("keys where there are none", Answer(1, "the answer has status 404"), logins.status)
    logins.declare(jwks_uri=f"{cluster.url}{keys}", jwks_token=reader)
    yield Row("keys with a token", Answer(0, "status"), logins.status)
    yield Row("a login with them", Answer(200), partial(logins.login, token))
    yield Row("the token for the cluster's own API", Answer(401), partial(logins.login, reader))
    logins.declare(provider_uri=f"{cluster.url}/", jwks_token=reader)
    yield Row("keys by discovery, with a final slash", Answer(0, "status"), logins.status)
    yield Row("a login by discovery", Answer(200), partial(logins.login, token))
    logins.declare(provider_uri=cluster.url)
    yield Row("everybody may read the keys", Answer(201), cluster.read_by_all)
    yield Row("keys by discovery, without a token", Answer(0, "status"), logins.status)
    yield Row("a login without a token", Answer(200), partial(logins.login, token))
    logins.declare(jwks_uri=f"{cluster.url}{keys}", jwks_token=reader)
    yield Row("keys with a token again", Answer(0, ": ok"), logins.refresh)
