"""The tokens that ``svc login`` keeps, by server and account: an access token, and the refresh token of a session.

All of it is in one file of mode 0600, which is replaced as a whole: an access token and the refresh token that came with it
are kept together, or neither is.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import click
import platformdirs

from svc.workload.faults import NoEvidence


@attrs.frozen
class SavedSession:
    """The session of a login, with the refresh token for its next renewal; ``id`` is empty where it wasn't kept."""

    login: str
    refresh_token: str = attrs.field(repr=False)
    id: str = attrs.field(default="", eq=False)


@attrs.define
class SavedTokenSource:
    """The kept token as a ``TokenSource``: when it is refused it is renewed, unless another login has replaced it.

    ``load_token`` returns it, ``renew_token`` another in its place, if there is a session, and ``explain_refusal`` says why
    it is no longer valid.
    """

    _load_token: Callable[..., Awaitable[str]]
    _renew_token: Callable[..., Awaitable[str | None]]
    _explain_refusal: Callable[[str], str]
    _refused_token: str | None = attrs.field(default=None, init=False, repr=False)

    async def access_token(self) -> str:
        """See ``TokenSource``."""
        token = await self._load_token(waits=True)
        if token != self._refused_token:
            return token
        if (renewed := await self._renew_token(token, waits=True)) is None:
            raise NoEvidence(self._explain_refusal(token))
        return renewed

    def refused(self, token: str) -> None:
        """See ``TokenSource``."""
        self._refused_token = token


def token_file() -> Path:
    """Return the file in which ``svc login`` keeps tokens."""
    return Path(platformdirs.user_state_dir("svc")) / "tokens.json"


def save_login(url: str, account: str, token: str, session: SavedSession | None = None) -> Path:
    """Keep an access token, and the session that renews it if there is one, in place of others; return the file."""
    path = token_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = _load_others(url, account)
    kept[_token_key(url, account)] = token
    if session is not None:
        kept[_session_key(url, account)] = f"{session.refresh_token} {session.login}"
        kept[_session_id_key(url, account)] = session.id
    write_private(path, json.dumps(kept).encode())
    return path


def forget_login(url: str, account: str) -> None:
    """Remove the access token and the session that are kept for a server and account."""
    others, path = _load_others(url, account), token_file()
    if others:
        write_private(path, json.dumps(others).encode())
    else:
        path.unlink(missing_ok=True)


def has_saved_login(url: str, account: str) -> bool:
    """Return whether an access token is kept for this server and account."""
    return _token_key(url, account) in _load_tokens()


def load_saved_token(url: str, account: str) -> str:
    """Return the access token that ``svc login`` kept for this server and account."""
    try:
        return _load_tokens()[_token_key(url, account)]
    except KeyError:
        message = f"not logged in to account {account} at {url}: run `svc login`, or set SVC_LOGIN and SVC_API_KEY"
        raise click.ClickException(message) from None


def load_saved_session(url: str, account: str) -> SavedSession | None:
    """Return the session that is kept with it, ``None`` where the login was for one access token."""
    kept = _load_tokens()
    token, _, login = kept.get(_session_key(url, account), "").partition(" ")
    return SavedSession(login, token, kept.get(_session_id_key(url, account), "")) if login else None


def write_private(path: Path, contents: bytes) -> None:
    """Write a file of mode 0600, whole or not at all."""
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(contents)
        Path(fresh).replace(path)
    except BaseException:  # an interrupt leaves no secret behind, either
        Path(fresh).unlink(missing_ok=True)
        raise


# Neither an address nor an account has a blank.
def _token_key(url: str, account: str) -> str:
    return f"{url} {account}"


def _session_key(url: str, account: str) -> str:
    return f"{url} {account} session"


def _session_id_key(url: str, account: str) -> str:
    return f"{url} {account} session-id"


def _load_others(url: str, account: str) -> dict[str, str]:
    """Return what is kept for other servers and accounts."""
    own = {key(url, account) for key in (_token_key, _session_key, _session_id_key)}
    return {name: text for name, text in _load_tokens().items() if name not in own}


def _load_tokens() -> dict[str, str]:
    try:
        tokens = json.loads(token_file().read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return tokens if isinstance(tokens, dict) else {}
