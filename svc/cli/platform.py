"""A cloud platform in small: a stand-in, for the quickstart and for tests, that shares nothing with the real one.

It has the metadata service of a virtual machine, the identity endpoint of an app service, and a tenant whose keys are found
by discovery. A published client of the platform confirms the form of the answers (``tests/integration/test_platform.py``).
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

KEY_ID: Final = "platform-1"

#: The ``X-IDENTITY-HEADER`` that an app service must send: the platform would make one for each of its instances.
IDENTITY_HEADER: Final = "stand-in-identity-header"

APP_SERVICE_PATH: Final = "/msi/token"
METADATA_PATH: Final = "/metadata/identity/oauth2/token"

#: A body, at once or later.
ResponseBody = bytes | Awaitable[bytes]

_APP_SERVICE_VERSION: Final = "2019-08-01"
_FIRST_VERSION: Final = "2018-02-01"


@attrs.frozen
class Identity:
    """A managed identity of the machine: the claims ``xms_mirid`` and ``oid``; a system-assigned one has no client id."""

    resource_id: str
    object_id: str
    client_id: str | None = None


@attrs.define(eq=False, slots=False)
class Platform:
    """One tenant, and one machine with these identities; the address is the one that a request names."""

    _key: rsa.RSAPrivateKey = attrs.field(repr=False)
    _wall: WallClock
    identities: Sequence[Identity]
    tenant: str = attrs.field(default="5d7a1c3e-0000-4000-8000-000000000001", kw_only=True)
    lifetime: int = attrs.field(default=3600, kw_only=True)

    def issuer_url(self, base: str) -> str:
        """Return the ``provider-uri`` of the tenant, and the ``iss`` of its tokens; ``base`` is the platform's address."""
        return f"{base}/{self.tenant}/"

    def sign_token(self, base: str, identity: Identity, resource: str, **claims: object) -> str:
        """Sign a token of an identity for ``resource``; ``claims`` replace those of their names, ``None`` leaves one out."""
        now = int(self._wall.seconds())
        client = identity.client_id or str(uuid.uuid5(uuid.NAMESPACE_OID, identity.object_id))
        times = {"iat": now, "nbf": now, "exp": now + self.lifetime}
        tenant = {"iss": self.issuer_url(base), "tid": self.tenant, "ver": "1.0", **times}
        who = {"oid": identity.object_id, "sub": identity.object_id, "xms_mirid": identity.resource_id, "appid": client}
        usual = {"aud": resource, **tenant, **who}
        payload = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(payload, self._key, algorithm="RS256", headers={"kid": KEY_ID})

    def build_app(self) -> Klein:
        """Return the web application."""
        app = Klein()
        app.route(METADATA_PATH, methods=["GET"])(self.serve_metadata)
        app.route(APP_SERVICE_PATH, methods=["GET"])(self.serve_app_service)
        app.route(f"/{self.tenant}/.well-known/openid-configuration", methods=["GET"])(self.serve_discovery)
        app.route(f"/{self.tenant}/discovery/keys", methods=["GET"])(self.serve_keys)
        return app

    def serve_metadata(self, request: Request) -> ResponseBody:
        """Answer as the metadata service of a virtual machine does."""
        version = _query_argument(request, "api-version") or ""
        if request.getHeader("metadata") != "true":
            return _json_response(
                request, {"error": "bad_request_102", "error_description": "Required metadata header missing"}, 400
            )
        if request.getHeader("x-forwarded-for") is not None or version < _FIRST_VERSION:
            return _json_response(
                request, {"error": "invalid_request", "error_description": "Bad api-version, or forwarded"}, 400
            )
        identity, resource = self._find_identity(request), _query_argument(request, "resource")
        if identity is None or not resource:
            return _json_response(request, {"error": "invalid_request", "error_description": "Identity not found"}, 400)
        now, life = int(self._wall.seconds()), str(self.lifetime)
        ends = str(now + self.lifetime)
        times = {"expires_in": life, "ext_expires_in": life, "expires_on": ends, "not_before": str(now)}
        return _json_response(request, {**self._token_members(request, identity, resource), **times})

    def serve_app_service(self, request: Request) -> ResponseBody:
        """Answer as the identity endpoint of an app service does."""
        if request.getHeader("x-identity-header") != IDENTITY_HEADER:
            return _json_response(request, {"statusCode": 401, "message": "The identity header is wrong"}, 401)
        identity, resource = self._find_identity(request), _query_argument(request, "resource")
        if _query_argument(request, "api-version") != _APP_SERVICE_VERSION or identity is None or not resource:
            return _json_response(
                request, {"statusCode": 400, "message": "No Managed Identity found for specified ClientId"}, 400
            )
        ends = str(int(self._wall.seconds()) + self.lifetime)
        return _json_response(request, {**self._token_members(request, identity, resource), "expires_on": ends})

    def serve_discovery(self, request: Request) -> ResponseBody:
        """Answer where the tenant's keys are."""
        base = _base_url(request)
        where = {"issuer": self.issuer_url(base), "jwks_uri": f"{base}/{self.tenant}/discovery/keys"}
        return _json_response(request, {**where, "id_token_signing_alg_values_supported": ["RS256"]})

    def serve_keys(self, request: Request) -> ResponseBody:
        """Answer the tenant's keys."""
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return _json_response(
            request, {"keys": [{"kty": "RSA", "use": "sig", "kid": KEY_ID, "n": public["n"], "e": public["e"]}]}
        )

    def _find_identity(self, request: Request) -> Identity | None:
        """Return the identity that a request names, or the machine's own, or the only one, a user-assigned one too."""
        wanted = _query_argument(request, "client_id")
        found = [identity for identity in self.identities if identity.client_id == wanted]
        if wanted is None and not found and len(self.identities) == 1:
            found = list(self.identities)
        return found[0] if found else None

    def _token_members(self, request: Request, identity: Identity, resource: str) -> dict[str, str]:
        token = self.sign_token(_base_url(request), identity, resource)
        return {"access_token": token, "resource": resource, "token_type": "Bearer", "client_id": identity.client_id or ""}


def _base_url(request: Request) -> str:
    return f"http://{request.getHeader('host')}"


def _query_argument(request: Request, name: str) -> str | None:
    values = request.args.get(name.encode("ascii"))
    return values[0].decode("utf-8", "replace") if values else None


def _json_response(request: Request, document: Mapping[str, object], status: int = 200) -> bytes:
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"application/json; charset=utf-8")
    return json.dumps(document).encode("ascii")
