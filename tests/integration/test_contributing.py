"""The worked example of ``CONTRIBUTING.md`` that adds a table, on PostgreSQL."""

from __future__ import annotations

from svc.storage.driver.migrations import Migration, load_migrations, migrate
from tests.integration.postgres import DatabaseTestCase
from tests.test_contributing import build, files


class TableTests(DatabaseTestCase):
    """The migration, the store and its test."""

    async def test_table(self) -> None:
        """The example's migration runs after those that there are, and its test passes on what it made."""
        sources = files("How to add a table")
        [schema] = [source for path, source in sources.items() if path.endswith(".sql")]
        present = load_migrations()
        await migrate(self.database, [*present, Migration(len(present) + 1, "mottos", schema)])
        modules = build(self, sources)
        case = modules["tests/integration/test_mottos.py"].MottoStoreTests("test_kept")
        case.database = self.database
        await case.test_kept()
