"""The large document, and the floor below which no load of it can be: reading its YAML, and copying its rows.

``python -m bench.floor DOCUMENT`` reads a document with PyYAML's C loader, into Python's own types, and prints from when
until when, by the monotonic clock.
"""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import psycopg2
import yaml

from bench import settings
from bench.probe import Span
from bench.server import ACCOUNT
from svc.storage.driver.migrations import load_migrations
from svc.storage.embedded.cluster import DATABASE, SUPERUSER


def document() -> str:
    """The large document: ``LARGE_VARIABLES`` variables, each with ``LARGE_ANNOTATIONS`` annotations."""
    lines = []
    for identifier, annotated in _variables():
        lines += ["- !variable", f"  id: {identifier}", "  annotations:"]
        lines += [f"    {name}: {value}" for name, value in annotated]
    return "\n".join(lines)


def _variables() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for number in range(settings.LARGE_VARIABLES):
        annotations = [(f"note-{n}", f"remark {n} on password {number % 10}") for n in range(settings.LARGE_ANNOTATIONS)]
        yield f"app-{number // 10}/password-{number % 10}", annotations


class _Loader(yaml.CSafeLoader):
    """Makes of a tagged node a pair of its tag and what it would be without."""


def _tagged(loader: Any, suffix: str, node: yaml.Node) -> tuple[str, Any]:
    if isinstance(node, yaml.MappingNode):
        return suffix, loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return suffix, loader.construct_sequence(node, deep=True)
    return suffix, loader.construct_scalar(node)


_Loader.add_multi_constructor("!", _tagged)


def reading_span(path: Path) -> Span:
    """The begin and the end of the C loader's reading of a document, in a process of its own, whose start doesn't count."""
    command = [sys.executable, "-m", "bench.floor", str(path)]
    begin, end = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(begin), float(end)


@attrs.frozen
class Scratch:
    """A database beside the service's, in the same PostgreSQL, with the same schema."""

    connection: Any

    @classmethod
    def beside(cls, dsn: str) -> Scratch:
        """Make it where ``dsn`` leads."""
        maker = psycopg2.connect(dsn, user=SUPERUSER, dbname=SUPERUSER)
        maker.autocommit = True
        maker.cursor().execute(f"CREATE DATABASE scratch TEMPLATE template0 OWNER {DATABASE}")
        maker.close()
        connection = psycopg2.connect(dsn, user=SUPERUSER, dbname="scratch")
        with connection, connection.cursor() as cursor:
            for migration in load_migrations():
                cursor.execute(migration.sql)
        return cls(connection)

    def copying_span(self, policy: str) -> Span:
        """From when until when the rows of the large document in a policy are copied: resources and annotations."""
        owner = f"{ACCOUNT}:policy:{policy}"
        resources, annotations = io.StringIO(), io.StringIO()
        for identifier, annotated in _variables():
            resource = f"{ACCOUNT}:variable:{policy}/{identifier}"
            resources.write(f"{resource}\t{owner}\t{owner}\n")
            annotations.writelines(f"{resource}\t{name}\t{value}\t{owner}\n" for name, value in annotated)
        resources.seek(0)
        annotations.seek(0)
        with self.connection, self.connection.cursor() as cursor:
            cursor.execute("INSERT INTO roles (role_id) VALUES (%s)", (owner,))
        begin = time.monotonic()
        with self.connection, self.connection.cursor() as cursor:
            cursor.copy_expert("COPY resources (resource_id, owner_id, policy_id) FROM STDIN", resources)
            cursor.copy_expert("COPY annotations (resource_id, name, value, policy_id) FROM STDIN", annotations)
        return begin, time.monotonic()


def main(path: str) -> None:
    """Read a document, and print when."""
    text = Path(path).read_bytes()
    begin = time.monotonic()
    yaml.load(text, _Loader)
    print(begin, time.monotonic())


if __name__ == "__main__":
    main(*sys.argv[1:])
