"""OpenBao as a source: its policies and secrets as the import reads them, compared with its own answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from svc.client.async_exchange import AsyncExchange, async_transport
from svc.importing.hcl import HclInvalid
from svc.importing.inventory import Inventory
from svc.importing.vault_http import VaultConnection
from svc.importing.vault_rules import RuleSet, read_rules
from svc.importing.vault_source import VaultSource
from tests.neighbours.table import Answer, Row

#: Makes a request that must succeed, and returns what it answers.
Demand = Callable[..., Any]

#: How many sets of policies are compared.
_SETS: Final = 200

#: Texts of policies about ``secret/data/x``, which both take or both refuse, and with the same rights.
_TEXTS: Final = (
    'path "secret/data/x" { capabilities=["read"] capabilities=["list"] }',
    'path "secret/data/x" { capabilities=["read"], policy="read", }',
    'path "secret/data/x" { policy="write" }',
    'path "secret/data/x" { policy="deny" capabilities=["read"] }',
    'path "secret/data/x" { policy="other" }',
    'path "secret/data/x" { capabilities="read" }',
    'path "secret/data/x" { capabilities=["READ"] }',
    'path "secret/data/x" { capabilities=["patch", "scan"] }',
    'path "secret/data/x" { capabilities=["read"] other="x" }',
    'name = "q" path "secret/data/x" { capabilities=["read"] }',
    'path "secret/data/x" = { capabilities=["read"] }',
    '"path" "secret/data/x"\n{\n"capabilities"\n=\n["read"]\n}',
    '{"path":{"secret/data/x":{"capabilities":["read"]}}}',
    '{"path":[{"secret/data/x":{"capabilities":["read"]}}]}',
    'path "/secret/data/x" { capabilities=["read"] }',
    'path "//secret/data/x" { capabilities=["read"] }',
    'path "secret/+*" { capabilities=["read"] }',
    'path "secret/data/x" { capabilities=["read" "list"] }',
    '# c\n// d\n/* e */ path "secret/data/x" { # x\n capabilities=["read" /*u*/] }',
    r'path "secret/data/\u0078" { capabilities=["read"] }',
    r'path "secret/data/\q" { capabilities=["read"] }',
    'path "secret/data/${x}" { capabilities=["read"] }',
    'path "secret/data/x" { comment = <<-E\n   y\n   E\n capabilities=["read"] }',
    'path "secret/data/x" { capabilities=["read"]',
    'path "secret/data/x" { capabilities=["read"] }}',
    'path "secret/data/{{identity.entity.name" { capabilities=["read"] }',
    "path 'secret/data/x' { capabilities=['read'] }",
)


def rows(url: str, token: str, demand: Demand, try_policy: Callable[[str], bool]) -> Iterator[Row]:
    """Yield what the import reads, beside what OpenBao answers.

    :param try_policy: writes the policy ``compared``, and returns whether its text was taken.
    """

    def capabilities(names: list[str], paths: list[str]) -> dict[str, list[str]]:
        login = demand("POST", "auth/token/create", {"policies": names, "no_default_policy": True})["auth"]
        answer = demand("POST", "sys/capabilities", {"token": login["client_token"], "paths": paths})
        found: dict[str, list[str]] = answer["data"]
        return found

    def compare_text(text: str) -> Answer:
        taken = try_policy(text)
        theirs = capabilities(["compared"], ["secret/data/x"])["secret/data/x"] if taken else None
        return Answer(0 if theirs == _read(text) else 1, f"OpenBao {theirs}, here {_read(text)}")

    for text in _TEXTS:
        yield Row(f"the policy {text[:60]!r}", Answer(0), partial(compare_text, text))

    def compare_decisions() -> Answer:
        chance, wrong = random.Random(1), []
        for _ in range(_SETS):
            texts = [_some_policy(chance) for _ in range(chance.randint(1, 2))]
            for number, text in enumerate(texts):
                demand("POST", f"sys/policies/acl/compared{number}", {"policy": text})
            paths = [
                "/".join(["s", *chance.choices(["a", "b", "ab", "a+", "c", ""], k=chance.randint(1, 4))]) for _ in range(9)
            ]
            theirs = capabilities([f"compared{number}" for number in range(len(texts))], paths)
            rules = RuleSet(rule for text in texts for rule in read_rules(text))
            wrong += [f"{path} by {texts}" for path in paths if theirs[path] != _granted(rules, path)]
        return Answer(len(wrong), "; ".join(wrong[:3]))

    yield Row(f"which rule decides, in {_SETS} sets of policies", Answer(0), compare_decisions)
    names = ["a b", "a+b", "p%q", "q?x", "h#x", "*", "c:x", "b\\x", ".dot", "UP", "e\u0301", "a/deep/one", "a"]
    for name in names:
        quoted = "".join(char if char == "/" else "".join(f"%{byte:02X}" for byte in char.encode()) for char in name)
        demand("POST", f"secret/data/{quoted}", {"data": {"v": name}})

    def read_names() -> Answer:
        values = asyncio.run(_read_values(url, token))
        wrong = [name for name in names if values.get(f"secret/{name}/v") != [name.encode()]]
        return Answer(len(wrong), repr(wrong))

    yield Row("secrets by all names", Answer(0), read_names)


def _some_policy(chance: random.Random) -> str:
    rules = []
    for _ in range(chance.randint(1, 4)):
        segments = chance.choices(["a", "b", "ab", "+", "+", "", "a+", "+b"], k=chance.randint(1, 4))
        pattern = "/".join(["s", *segments]) + chance.choice(["", "", "*", "/*"])
        if "+*" not in pattern:
            capability = chance.choice(["read", "list", "update", "delete", "deny"])
            rules.append(f'path "{pattern}" {{ capabilities = ["{capability}"] }}')
    return "\n".join(rules) or "# none"


def _granted(rules: RuleSet, path: str) -> list[str]:
    decided = rules.decide(path, listing=path.endswith("/"))
    return (sorted(decided.granted()) if decided is not None else []) or ["deny"]


def _read(text: str) -> list[str] | None:
    try:
        return _granted(RuleSet(read_rules(text)), "secret/data/x")
    except HclInvalid:
        return None


async def _read_values(url: str, token: str) -> dict[str, list[bytes]]:
    exchange = AsyncExchange(async_transport(), 2**26)
    try:
        source = VaultSource(VaultConnection(url, exchange, token))
        inventory: Inventory = await source.read_inventory(lambda what, done, total: None)
        read = source.read_values(inventory.of_kind("variable"))
        return {each.variable.identifier: [version.value for version in each.versions] async for each in read}
    finally:
        await exchange.close()
