"""A cloud platform in small: a stand-in, for the quickstart and for tests, that shares nothing with the real one.

It has what a workload and a server see of such a platform: the metadata service of a virtual machine, the identity endpoint
of an app service, and a tenant whose keys are found by discovery. All are one web application. Its answers have the form of
the real ones, which a published client of the platform confirms (``tests/integration/test_platform.py``).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

import attrs
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from klein import Klein
from twisted.web.server import Request

from svc.model.clocks import WallClock

#: The ``kid`` of the only key.
KEY_ID: Final = "platform-1"

#: What an app service must send as ``X-IDENTITY-HEADER``: the platform would make one for each of its instances.
IDENTITY_HEADER: Final = "stand-in-identity-header"

#: The path of the app service's endpoint.
APP_SERVICE_PATH: Final = "/msi/token"

#: The path of the virtual machine's metadata service.
METADATA_PATH: Final = "/metadata/identity/oauth2/token"

#: A body, at once or later.
Answered = bytes | Awaitable[bytes]

_APP_SERVICE_VERSIONS: Final = frozenset({"2019-08-01"})
_FIRST_VERSION: Final = "2018-02-01"


@attrs.frozen
class Identity:
    """A managed identity of the machine: the claims ``xms_mirid`` and ``oid`` of its tokens.

    ``client_id`` is by what a user-assigned identity is asked for; the system-assigned one has none.
    """

    resource_id: str
    object_id: str
    client_id: str | None = None


class Platform:
    """One tenant, and one machine with these identities.

    It has no address of its own: it is wherever it is asked, and its tokens are issued there.
    """

    def __init__(
        self,
        key: rsa.RSAPrivateKey,
        wall: WallClock,
        identities: Sequence[Identity],
        *,
        tenant: str = "5d7a1c3e-0000-4000-8000-000000000001",
        lifetime: int = 3600,
    ) -> None:
        self.identities = tuple(identities)
        self.tenant = tenant
        self.lifetime = lifetime
        self._key = key
        self._wall = wall

    def issuer(self, base: str) -> str:
        """The ``provider-uri`` of the tenant, and the ``iss`` of its tokens, where ``base`` is the platform's address."""
        return f"{base}/{self.tenant}/"

    def token(self, base: str, identity: Identity, resource: str, **claims: object) -> str:
        """Sign a token of an identity for ``resource``; ``claims`` replace those of their names, ``None`` leaves one out."""
        now = int(self._wall.seconds())
        usual = {
            "aud": resource,
            "iss": self.issuer(base),
            "iat": now,
            "nbf": now,
            "exp": now + self.lifetime,
            "appid": identity.client_id or str(uuid.uuid5(uuid.NAMESPACE_OID, identity.object_id)),
            "oid": identity.object_id,
            "sub": identity.object_id,
            "tid": self.tenant,
            "ver": "1.0",
            "xms_mirid": identity.resource_id,
        }
        told = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(told, self._key, algorithm="RS256", headers={"kid": KEY_ID})

    def site(self) -> Klein:
        """Return the web application."""
        app = Klein()

        @app.route(METADATA_PATH, methods=["GET"])
        def machine(request: Request) -> Answered:
            return self.metadata(request)

        @app.route(APP_SERVICE_PATH, methods=["GET"])
        def app_service(request: Request) -> Answered:
            return self.endpoint(request)

        @app.route(f"/{self.tenant}/.well-known/openid-configuration", methods=["GET"])
        def discovery(request: Request) -> Answered:
            return self.discovery(request)

        @app.route(f"/{self.tenant}/discovery/keys", methods=["GET"])
        def keys(request: Request) -> Answered:
            return self.keys(request)

        return app

    def metadata(self, request: Request) -> Answered:
        """Answer as the metadata service of a virtual machine does."""
        version = _argument(request, "api-version") or ""
        if request.getHeader("metadata") != "true":
            return _told(request, {"error": "bad_request_102", "error_description": "Required metadata header missing"}, 400)
        if request.getHeader("x-forwarded-for") is not None or version < _FIRST_VERSION:
            return _told(request, {"error": "invalid_request", "error_description": "Bad api-version, or forwarded"}, 400)
        identity, resource = self._asked_for(request), _argument(request, "resource")
        if identity is None or not resource:
            return _told(request, {"error": "invalid_request", "error_description": "Identity not found"}, 400)
        now = int(self._wall.seconds())
        times = {
            "expires_in": str(self.lifetime),
            "ext_expires_in": str(self.lifetime),
            "expires_on": str(now + self.lifetime),
            "not_before": str(now),
        }
        return _told(request, {**self._granted(request, identity, resource), **times})

    def endpoint(self, request: Request) -> Answered:
        """Answer as the identity endpoint of an app service does."""
        if request.getHeader("x-identity-header") != IDENTITY_HEADER:
            return _told(request, {"statusCode": 401, "message": "The identity header is wrong"}, 401)
        identity, resource = self._asked_for(request), _argument(request, "resource")
        if _argument(request, "api-version") not in _APP_SERVICE_VERSIONS or identity is None or not resource:
            return _told(request, {"statusCode": 400, "message": "No Managed Identity found for specified ClientId"}, 400)
        ends = str(int(self._wall.seconds()) + self.lifetime)
        return _told(request, {**self._granted(request, identity, resource), "expires_on": ends})

    def discovery(self, request: Request) -> Answered:
        """Tell where the tenant's keys are."""
        base = _base(request)
        document = {
            "issuer": self.issuer(base),
            "jwks_uri": f"{base}/{self.tenant}/discovery/keys",
            "id_token_signing_alg_values_supported": ["RS256"],
        }
        return _told(request, document)

    def keys(self, request: Request) -> Answered:
        """Tell the tenant's keys."""
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return _told(request, {"keys": [{"kty": "RSA", "use": "sig", "kid": KEY_ID, "n": public["n"], "e": public["e"]}]})

    def _asked_for(self, request: Request) -> Identity | None:
        """The identity that a request names, or the machine's own; the only one, where that is a user-assigned one."""
        wanted = _argument(request, "client_id")
        found = [identity for identity in self.identities if identity.client_id == wanted]
        if wanted is None and not found and len(self.identities) == 1:
            found = list(self.identities)
        return found[0] if found else None

    def _granted(self, request: Request, identity: Identity, resource: str) -> dict[str, str]:
        token = self.token(_base(request), identity, resource)
        return {"access_token": token, "resource": resource, "token_type": "Bearer", "client_id": identity.client_id or ""}


def _base(request: Request) -> str:
    return f"http://{request.getHeader('host')}"


def _argument(request: Request, name: str) -> str | None:
    values = request.args.get(name.encode("ascii"))
    return values[0].decode("utf-8", "replace") if values else None


def _told(request: Request, document: Mapping[str, object], status: int = 200) -> bytes:
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"application/json; charset=utf-8")
    return json.dumps(document).encode("ascii")
