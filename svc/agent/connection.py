"""The agent's connection to the server: the client for asyncio, logged in as the configuration says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs

from svc.agent.configuration import API_KEY, JWT, AgentConfiguration, LoginSettings
from svc.agent.faults import BadConfiguration, SourceFault
from svc.agent.source import VariableBatch
from svc.client.asynchronous import AsyncClient
from svc.client.platforms import AwsWorkload, AzureMachine, GoogleWorkload, Proof
from svc.workload.batches import SecretFault
from svc.workload.evidence import ApiKey, Jwt
from svc.workload.evidence import Login as LoginRequest
from svc.workload.faults import BadAddress, Fault, NoEvidence
from svc.workload.machine import RESOURCE

#: The longest list of ids of one watch, in characters, and the most watches: ids beyond these are polled alone.
_LIST_LIMIT: Final = 6 * 1024
_WATCHES: Final = 16

#: The longest API key that is read from a file, in bytes.
_KEY_LIMIT: Final = 4096


@attrs.frozen
class KeyFile:
    """The API key in a file, which is read again for each login: the key may have been rotated."""

    login_settings: LoginSettings

    @property
    def what(self) -> str:
        """See ``Evidence``."""
        return f"the API key in {self.login_settings.file}, for {self.login_settings.host}"

    async def login(self, account: str) -> LoginRequest:
        """See ``Evidence``."""
        path = self.login_settings.file
        assert path is not None
        try:
            with path.open("rb") as file:
                key = file.read(_KEY_LIMIT + 1).decode("ascii").strip()
        except OSError as error:
            raise NoEvidence(f"the API key in {path} can't be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise NoEvidence(f"{path} holds something else than an API key") from None
        if not key or len(key) > _KEY_LIMIT:
            raise NoEvidence(f"{path} holds no API key")
        return await ApiKey(f"{self.login_settings.host}", key).login(account)


def proof_of(login: LoginSettings) -> Proof:
    """Return the proof of identity that a configuration names."""
    host, service_id = f"{login.host}", f"{login.service_id}"
    match login.kind:
        case "azure":
            return AzureMachine(service_id, host, login.client_id, login.resource or RESOURCE, login.metadata_url)
        case "google":
            return GoogleWorkload(host, login.audience_prefix, login.metadata_url)
        case "aws":
            return AwsWorkload(service_id, host, login.server_id, login.region, login.metadata_url)
        case kind if kind == JWT:
            assert login.file is not None
            return Jwt(service_id, login.file, login.host)
    assert login.kind == API_KEY
    return KeyFile(login)


class HttpVariableClient:
    """A server, as ``VariableClient``."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def read(self, ids: Sequence[str], tag: str | None) -> VariableBatch | None:
        """See ``VariableClient``."""
        try:
            found = await self._client.batch(ids, partial=True, tag=tag)
        except Fault as fault:
            raise SourceFault(str(fault)) from None
        if found.unchanged:
            return None
        return VariableBatch(found.values, {each: _describe_fault(why) for each, why in found.errors.items()}, found.tag)

    async def watch(self, ids: Sequence[str]) -> AsyncIterator[None]:
        """See ``VariableClient``."""
        faults: asyncio.Queue[Fault | None] = asyncio.Queue()
        tasks = [asyncio.ensure_future(self._forward_changes(part, faults)) for part in _split_ids(ids)]
        try:
            while (fault := await faults.get()) is None:
                yield None
            raise SourceFault(str(fault))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward_changes(self, ids: Sequence[str], faults: asyncio.Queue[Fault | None]) -> None:
        try:
            async with self._client.watch(ids) as events:
                async for _ in events:
                    faults.put_nowait(None)
        except Fault as fault:
            faults.put_nowait(fault)


@asynccontextmanager
async def open_client(configuration: AgentConfiguration) -> AsyncIterator[HttpVariableClient]:
    """Have a client for a configuration.

    :raises BadConfiguration: there can be none: a bad address, or a bad file of authorities.
    """
    try:
        client = AsyncClient(
            configuration.url, configuration.account, proof_of(configuration.login), ca_file=configuration.ca_file
        )
    except (BadAddress, NoEvidence) as fault:
        raise BadConfiguration(str(fault)) from None
    async with client:
        yield HttpVariableClient(client)


def _describe_fault(why: SecretFault) -> str:
    return "the role may not read it" if why.code == "forbidden" else why.message


def _split_ids(ids: Sequence[str]) -> Iterator[list[str]]:
    """Divide ids into lists that fit into an address; of very many the first."""
    parts: list[list[str]] = []
    size = _LIST_LIMIT
    for each in ids:
        added = 3 * len(each.encode()) + 64
        if size + added > _LIST_LIMIT:
            if len(parts) == _WATCHES:
                break
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += added
    yield from parts
