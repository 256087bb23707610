"""``svc login --oidc``: a person signs in at a provider of OpenID Connect, in a browser here or on another device."""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import webbrowser
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import click

from svc.cli.connection import ApiConnection, build_query
from svc.cli.oidc_callback import CallbackHandler, RedirectUri, is_loopback, listen_for_code
from svc.cli.table import escape_text
from svc.workload.faults import Unreachable, refusal_log_hint
from svc.workload.requester import Requester

#: Seconds that a person has to sign in in a browser here.
BROWSER_TIMEOUT: Final = 300.0

#: Seconds that a person has on another device at most, whatever the provider says; between questions, where it doesn't say.
DEVICE_TIMEOUT: Final = 1800.0
POLL_INTERVAL: Final = 5.0

#: Seconds for one answer of a provider.
_DEADLINE: Final = 10.0

_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
#: The errors of a provider that has no tokens yet.
_PENDING: Final = ("authorization_pending", "slow_down")
_WELL_KNOWN: Final = "/.well-known/openid-configuration"

#: Opens an address in a browser, and returns whether there is one.
OpenUrl = Callable[[str], bool]


def has_browser() -> bool:
    """Return whether there is a browser with windows: one that runs in this terminal would take it from the command."""
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False


def open_browser(url: str) -> bool:
    """Open an address in a browser with windows; return whether there is one."""
    return has_browser() and webbrowser.get().open(url)


async def find_provider(connection: ApiConnection, name: str) -> Mapping[str, Any]:
    """Return the server's document about a provider."""
    path = connection.encode_path("authn-oidc", connection.account, "providers")
    found = (await connection.request("GET", path)).expect(200).json()
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    for entry in entries:
        if entry.get("service_id") == name:
            return entry
    others = ", ".join(sorted(escape_text(str(entry.get("service_id"))) for entry in entries)) or "none"
    raise click.ClickException(
        f"account {connection.account} at {connection.url} offers no login by {escape_text(name)}; it offers: {others}."
        f" `svc authenticator status authn-oidc/{escape_text(name)}` tells an operator why"
    )


async def sign_in(
    connection: ApiConnection,
    name: str,
    *,
    device: bool,
    opening: OpenUrl = open_browser,
    is_browser_here: Callable[[], bool] = has_browser,
) -> str:
    """Return an access token for the person who signs in, base64 as it stands in the ``Authorization`` header.

    On another device if ``device`` says so, or where there is no browser here and the provider can do it (OIDC-33).
    """
    entry = await find_provider(connection, name)
    by_device, by_browser = "device_endpoint" in entry, "redirect_uri" in entry
    if device and by_browser and not by_device:
        raise click.ClickException(f"{escape_text(name)} has no login on another device: leave out --device")
    if device or not by_browser or (by_device and not is_browser_here()):
        return await _sign_in_by_device(connection, name, entry, connection.elsewhere or connection.requester)
    return await _sign_in_by_browser(connection, name, entry, opening)


# -- in a browser ----------------------------------------------------------------------------------------------------


async def _sign_in_by_browser(connection: ApiConnection, name: str, entry: Mapping[str, Any], opening: OpenUrl) -> str:
    """Sign in in a browser on this machine (OIDC-31, OIDC-32)."""
    url = str(entry["redirect_uri"])
    if urlsplit(url).scheme not in {"https", "http"} or not url.isascii() or not url.isprintable():
        raise click.ClickException(f"the server names an odd address to sign in at: {escape_text(url)}")
    callback, state = RedirectUri.from_login_url(url), secrets.token_urlsafe(24)
    answers = CallbackHandler(callback, state, entry.get("issuer"))
    async with listen_for_code(callback, answers) as code:
        begin = f"{url}&state={quote(state, safe='')}"
        opened = opening(begin)
        click.echo(
            "Sign in in the browser." if opened else "Sign in at this address, in a browser on this machine:", err=True
        )
        if not opened:
            click.echo(begin, err=True)
        try:
            given = build_query(
                code=await asyncio.wait_for(code, BROWSER_TIMEOUT),
                nonce=entry["nonce"],
                code_verifier=entry["code_verifier"],
            )
        except TimeoutError:
            raise click.ClickException(
                f"nobody signed in within {BROWSER_TIMEOUT / 60:g} minutes; if the provider showed an error instead, an"
                " operator compares client-id and redirect-uri with what it has"
            ) from None
    path = connection.encode_path("authn-oidc", name, connection.account, "authenticate")
    return await _request_token(connection, name, "GET", path + given)


async def _request_token(connection: ApiConnection, name: str, method: str, path: str, body: bytes | None = None) -> str:
    more: dict[str, Any] = {} if body is None else {"Content_Type": "application/x-www-form-urlencoded"}
    answer = await connection.request(method, path, body, Accept_Encoding="base64", **more)
    if answer.status == 503:
        way = "" if answer.request_id is None else f" by `svc explain-request {escape_text(shlex.quote(answer.request_id))}`"
        raise click.ClickException(
            f"not possible now (status 503): the provider {escape_text(name)}, or this server's settings for it, are at"
            f" fault, or the server is; an operator finds out{way}"
        )
    if answer.status in {400, 401, 403}:
        raise click.ClickException(
            f"the server refuses the login by {escape_text(name)} (account {escape_text(connection.account)},"
            f" status {answer.status}); {refusal_log_hint(answer.request_id)}"
        )
    return answer.expect(200).body.decode("ascii")


# -- on another device -----------------------------------------------------------------------------------------------


async def _sign_in_by_device(connection: ApiConnection, name: str, entry: Mapping[str, Any], requester: Requester) -> str:
    """Sign in on another device, as a public client, and show the id token to the server (OIDC-34; RFC 8628)."""
    issuer = _demand_trusted_url(entry, "issuer")
    about = await _fetch_json(requester, f"{issuer.removesuffix('/')}{_WELL_KNOWN}")
    if str(about.get("issuer")).removesuffix("/") != issuer.removesuffix("/"):
        raise click.ClickException(f"{issuer} says that it is {escape_text(str(about.get('issuer')))}")
    device = _demand_trusted_url(about, "device_authorization_endpoint")
    tokens = _demand_trusted_url(about, "token_endpoint")
    client = {"client_id": str(entry.get("client_id"))}
    begun = await _fetch_json(requester, device, {**client, "scope": str(entry.get("scope", "openid"))})
    if "verification_uri" not in begun and "verification_url" in begun:  # as Google's and others of before RFC 8628
        begun = {**begun, "verification_uri": begun["verification_url"]}
    for name_of in ("device_code", "user_code", "verification_uri"):
        if not isinstance(begun.get(name_of), str):
            why = f": {escape_text(str(begun['error']))}" if begun.get("error") else ""
            raise click.ClickException(f"{device} gives no {name_of}{why}")
    click.echo(
        f"Sign in at {escape_text(begun['verification_uri'])} on any device, with the code"
        f" {escape_text(begun['user_code'])}",
        err=True,
    )
    pause, ends = (
        _read_seconds(begun.get("interval"), POLL_INTERVAL),
        requester.seconds() + min(_read_seconds(begun.get("expires_in"), DEVICE_TIMEOUT), DEVICE_TIMEOUT),
    )
    fields = {**client, "grant_type": _DEVICE_GRANT, "device_code": begun["device_code"]}
    fault = None
    while requester.seconds() + pause < ends:
        await requester.sleep(pause)
        found, fault = await _poll_tokens(requester, tokens, fields)
        match found.get("id_token"), found.get("error"):
            case str(id_token), None:
                path = connection.encode_path("authn-oidc", name, connection.account, "authenticate")
                return await _request_token(
                    connection, name, "POST", path, urlencode({"id_token": id_token}).encode("ascii")
                )
            case _, "authorization_pending":
                pass
            case _, error if fault is not None or error == "slow_down":
                pause += POLL_INTERVAL
            case _, error:
                raise click.ClickException(f"the provider refused: {escape_text(str(error or 'it gave no id token'))}")
    raise click.ClickException("nobody signed in in time" if fault is None else f"nobody signed in in time: {fault}")


def _read_seconds(value: object, otherwise: float) -> float:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 1e6 else otherwise
    )


def _demand_trusted_url(members: Mapping[str, Any], name: str) -> str:
    """Return an address of a provider that a secret may be sent to: over TLS, or on this machine."""
    value = members.get(name)
    if not value:
        raise click.ClickException(f"the provider names no {name}, without which there is no login on another device")
    parts = urlsplit(value) if isinstance(value, str) and value.isascii() and value.isprintable() else urlsplit("")
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return str(value)
    raise click.ClickException(f"the provider's {name} is no address that can be trusted: {escape_text(str(value))}")


async def _poll_tokens(requester: Requester, url: str, fields: Mapping[str, str]) -> tuple[Mapping[str, Any], str | None]:
    """Return what a provider answers about the tokens, and the fault for which it may be asked again, if any."""
    try:
        status, found = await _ask_json(requester, url, fields)
    except Unreachable as error:
        return {}, escape_text(str(error))
    if (found is None or found.get("error") not in _PENDING) and (status >= 500 or status in {408, 429}):
        return {}, f"the answer of {escape_text(url)} has status {status}"
    return _demand_json(url, status, found), None


async def _fetch_json(requester: Requester, url: str, fields: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """Return the JSON object that a provider answers, whatever the status."""
    return _demand_json(url, *await _ask_json(requester, url, fields))


def _demand_json(url: str, status: int, found: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if found is None:
        raise click.ClickException(f"the answer of {escape_text(url)} (status {status}) is no JSON object")
    return found


async def _ask_json(
    requester: Requester, url: str, fields: Mapping[str, str] | None
) -> tuple[int, Mapping[str, Any] | None]:
    """Return the status and the JSON object that a provider answers, ``None`` where it is none."""
    body = None if fields is None else urlencode(fields).encode("ascii")
    headers = {"Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    reply = await requester.ask("GET" if body is None else "POST", url, body, headers, within=_DEADLINE)
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        found = None
    return reply.status, found if isinstance(found, dict) else None
