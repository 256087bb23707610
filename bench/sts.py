"""AWS's Security Token Service, as it identifies the signer: ``python -m bench.sts`` prints its address, and answers.

The caller is derived from the access key, and the signature isn't checked: the measured part is the calling service.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

ACCOUNT: Final = "123456789012"

_BODY: Final = (
    '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    "<Arn>arn:aws:sts::{account}:assumed-role/app-{number}/i-0123456789abcdef0</Arn><UserId>AROA:i-0123456789abcdef0</UserId>"
    "<Account>{account}</Account></GetCallerIdentityResult><ResponseMetadata><RequestId>0</RequestId></ResponseMetadata>"
    "</GetCallerIdentityResponse>"
)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"Credential=ASIABENCH0*([0-9]+)/", head)
        assert found is not None
        body = _BODY.format(account=ACCOUNT, number=found[1].decode()).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await reader.read()
    except (asyncio.IncompleteReadError, ConnectionError):
        """The server has left."""
    finally:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=512)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
