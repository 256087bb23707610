"""The objects that a dump of this program's database may hold, and the code in one that was restored (DATA-39).

Note [Altered dumps]. PostgreSQL runs the definitions in a dump as they are. So before anything of it is run, each object
that a dump lists must be one that a migration makes; and after that, before a row is written, functions must have the text
of the migrations, and triggers must call them. This detects the dump of a database in which somebody has planted code. It
doesn't detect every dump that was forged by hand: definitions of tables, views and conditions aren't compared, and rows
can't be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Final

from svc.model.errors import StartRefused
from svc.storage.driver.migrations import Migration
from svc.storage.driver.statements import ReadSource, Statement

#: The kinds of objects that migrations make.
KINDS: Final = ("CONSTRAINT", "FK CONSTRAINT", "FUNCTION", "INDEX", "SEQUENCE", "TABLE", "TRIGGER", "VIEW")

#: Entries of dumps that are no object of this program: privileges, which aren't restored, comments, extensions and schemas.
_OTHERS: Final = ("ACL ", "DEFAULT ACL ", "COMMENT ", "EXTENSION - ", "SCHEMA - ")

#: The rows that belong to an object.
_ROWS: Final = {"TABLE": "TABLE DATA", "SEQUENCE": "SEQUENCE SET"}

#: How many unexpected objects are named.
_NAMED: Final = 3

_VERSIONS: Final = re.compile(r"TABLE (?!DATA )(.+?) schema_versions ")
_FUNCTION: Final = re.compile(r"(?ms)^CREATE (?:OR REPLACE )?FUNCTION ([a-z0-9_]+)\(.*?\$\$(.*?)\$\$")

_CODE: Final = Statement.with_name("restoring_code")("""
    SELECT 'FUNCTION', proname::text, prosrc
    FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
    WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND NOT starts_with(nspname, 'pg_')
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e')
    UNION ALL
    SELECT 'TRIGGER', relname || ' ' || tgname, proname
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE NOT tgisinternal
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = tgrelid AND deptype = 'e')
    UNION ALL
    SELECT 'RULE', relname || ' ' || rulename, ''
    FROM pg_rewrite JOIN pg_class ON pg_class.oid = ev_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE rulename <> '_RETURN' AND nspname NOT IN ('pg_catalog', 'information_schema')
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = ev_class AND deptype = 'e')
""")


@cache
def known_objects() -> frozenset[tuple[str, str]]:
    """Return the kinds and names of all objects that this program's migrations have ever made."""
    text = (resources.files("svc.storage") / "schema" / "objects.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return frozenset(
        next((kind, line.removeprefix(f"{kind} ")) for kind in KINDS if line.startswith(f"{kind} ")) for line in lines
    )


def require_own_objects(entries: Sequence[str]) -> tuple[str, frozenset[tuple[str, str, str]]]:
    """Return the schema of a dump that holds objects of this program alone, and their kinds, schemas and names.

    :param entries: kind, schema, name and owner of each, as a dump lists them.
    :raises StartRefused: it holds others, or none of this program; the message names them.
    """
    found = next(filter(None, map(_VERSIONS.match, entries)), None)
    if found is None:
        raise StartRefused("it holds no database of this program")
    schema = found[1]
    own = {
        f"{each} {schema} {name}": (kind, schema, name.partition("(")[0])
        for kind, name in known_objects()
        for each in (kind, _ROWS.get(kind))
        if each
    }
    missing = set(own)
    _refuse_unexpected(_unexpected_entries(entries, missing))
    return schema, frozenset(own[entry] for entry in own.keys() - missing)


def _unexpected_entries(entries: Iterable[str], expected: set[str]) -> Iterator[str]:
    """Yield the entries that aren't expected, or come twice."""
    for entry in entries:
        if entry.startswith(_OTHERS):
            continue
        # An owner may have blanks in its name, and a name of ours may be followed by more: then it comes a second time.
        # With quote_all_identifiers, the types of a function's arguments have quotes.
        start, opening, arguments = entry.partition("(")
        words = (start + opening + arguments.replace('"', "")).split(" ")
        known = next((name for end in range(3, len(words)) if (name := " ".join(words[:end])) in expected), None)
        if known is None:
            yield " ".join(words[:-1])
        else:
            expected.remove(known)


async def require_own_code(database: ReadSource, migrations: Sequence[Migration]) -> None:
    """Return if the functions of a restored database are those of the migrations, and nothing else runs by itself.

    :raises StartRefused: there is other code; the message names it.
    """
    bodies = {body for each in migrations for body in _FUNCTION.findall(each.sql)}
    functions = {name for name, _ in bodies}

    def is_own(kind: str, name: str, text: str) -> bool:
        return (name, text) in bodies if kind == "FUNCTION" else (kind, name) in known_objects() and text in functions

    _refuse_unexpected(f"{kind} {name}" for kind, name, text in await database.fetch(_CODE) if not is_own(kind, name, text))


def _refuse_unexpected(strange: Iterable[str]) -> None:
    names = sorted(strange)
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise StartRefused(
            f"it holds {', '.join(map(repr, names[:_NAMED]))}{more}, which this program doesn't make: it was altered, or"
            " is of a newer program, or of a database that isn't this program's alone"
        )
