"""The token that Kubernetes projects into a pod for its service account, as a file that the kubelet replaces (CLI-45)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs

from svc.model.clocks import MachineClock, WallClock
from svc.workload.evidence import TOKEN_LIMIT
from svc.workload.faults import NoIdentity
from svc.workload.machine import claims_within

#: Where a pod's token is by default.
TOKEN_FILE: Final = Path("/var/run/secrets/tokens/svc")

#: The folder of the token that every pod gets for the cluster's own API.
_API_TOKEN_FOLDER: Final = ("kubernetes.io", "serviceaccount")

_SUBJECT: Final = re.compile(r"system:serviceaccount:[a-z0-9-]+:[a-z0-9.-]+", re.ASCII)

_REMEDY: Final = "mount a projected service account token there, with this server's audience"


@attrs.frozen
class ProjectedToken:
    """The token in ``file``, read at each call; the ``token`` of a ``Jwt``."""

    file: Path = TOKEN_FILE
    wall: WallClock = attrs.field(factory=MachineClock)

    def __call__(self) -> str:
        """Return a token that has not expired.

        :raises NoIdentity: there is none, or it is for the cluster's own API, where it must not leave the pod.
        """
        if self.file.parts[-3:-1] == _API_TOKEN_FOLDER:
            raise NoIdentity(f"{self.file} is for the cluster's own API, and is shown to nobody else", _REMEDY)
        try:
            with self.file.open("rb") as file:
                text = file.read(TOKEN_LIMIT + 1)
        except OSError as error:
            raise NoIdentity(f"the token in {self.file} cannot be read: {error.strerror}", _REMEDY) from None
        if len(text) > TOKEN_LIMIT or not text.isascii():
            raise NoIdentity(f"{self.file} holds no token", _REMEDY)
        token = text.decode("ascii").strip()
        try:
            claims = claims_within(token)
        except NoIdentity:
            raise NoIdentity(f"{self.file} holds no token", _REMEDY) from None
        if not claims.get("aud"):
            raise NoIdentity(f"the token in {self.file} is for no audience, and so for everybody", _REMEDY)
        ends_at = claims.get("exp")
        if isinstance(ends_at, int | float) and ends_at <= self.wall.seconds():
            remedy = "mount the whole volume: a file that is mounted by subPath is never replaced; or set the clock right"
            raise NoIdentity(f"the token in {self.file} has expired", remedy)
        return token


@attrs.frozen
class Pod:
    """The unverified claims of a token about its pod; absent ones are missing in ``about``."""

    subject: str
    about: dict[str, str]

    @classmethod
    def of(cls, token: str) -> Pod:
        """Read a token.

        :raises NoIdentity: it names no service account.
        """
        claims = claims_within(token)
        subject = claims.get("sub")
        if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
            raise NoIdentity("the token names no service account in its claim sub", _REMEDY)
        audience, inner = claims.get("aud"), claims.get("kubernetes.io")
        audiences = audience if isinstance(audience, list) else [audience]
        inner = inner if isinstance(inner, dict) else {}
        about: dict[str, object] = {
            "issuer": claims.get("iss"),
            "audience": ", ".join(each for each in audiences if isinstance(each, str)),
            "namespace": inner.get("namespace"),
        }
        for name in ("serviceaccount", "pod", "node"):
            part = inner.get(name)
            if isinstance(part, dict):
                about |= {f"{name}_name": part.get("name"), f"{name}_uid": part.get("uid")}
        return cls(subject, {name: value for name, value in about.items() if isinstance(value, str) and value})
