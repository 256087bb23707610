"""The documents of resources, and the pieces of SQL that statements with a search share (RES-10 to RES-13).

Note [Searches from both ends]

A search begins at the index (``search_documents``, see ``schema/0003_search.sql``), so that one that matches 50 of a million
reads 50. If a word matches everything, it is better to scan the list itself when that is short. So a statement has both
plans, and uses the second if the list has at most ``SHORT`` rows. The other is never begun: its condition doesn't depend on
any row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from svc.model.query_results import Search
from svc.storage.driver.columns import BATCH, fetch_for_rows, to_array
from svc.storage.driver.statements import Statement, Statements, Transaction

#: A list of at most as many rows is scanned itself (Note [Searches from both ends]).
SHORT: Final = 2000

#: A common table expression with one row: the query that ``text`` is, and all its words.
QUERY_WORDS: Final = """
    asked (query, words) AS MATERIALIZED (
        SELECT plainto_tsquery('english', phrase), tsvector_to_array(to_tsvector('english', phrase))
        FROM (VALUES (translate({text}, './-', '   '))) AS given (phrase)
    )
"""

#: Where ``asked`` is: the rows ``found (resource_id, document)`` that match, by the index; ``most`` of them, all for NULL.
FOUND: Final = "search_documents((SELECT query FROM asked), {split}, {most}) AS found (resource_id, document)"

#: Where ``asked`` is: the one row ``found (document)`` when the resource matches, none otherwise; for a ``LATERAL`` join.
MATCHING: Final = """(
    SELECT document FROM (
        SELECT CASE WHEN {split} THEN documents.split ELSE documents.plain END AS document
        FROM documents WHERE documents.resource_id = {resource_id} OFFSET 0
    ) AS described WHERE document @@ (SELECT query FROM asked)
) AS found (document)"""

#: Where ``asked`` is: the class of a matching document, the lowest weight at which any word of the query stands in it; 0 for
#: all where no classes are wanted.
CLASS: Final = """
    CASE
        WHEN NOT {by_class} THEN 0
        WHEN tsvector_to_array(ts_filter({document}, '{{a}}')) && (SELECT words FROM asked) THEN 0
        WHEN tsvector_to_array(ts_filter({document}, '{{b}}')) && (SELECT words FROM asked) THEN 1
        ELSE 2
    END
"""

# A document is made from all annotations of its resource: of two loads that annotate it, the second waits and looks again.
_LOCK: Final = Statement.with_name("documents_lock")("""
    SELECT FROM unnest($1::text[]) AS asked (resource_id), LATERAL (
        SELECT FROM documents WHERE documents.resource_id = asked.resource_id FOR NO KEY UPDATE
    ) AS locked
""")
_INDEX: Final = Statement.with_name("documents_index")("""
    INSERT INTO documents (resource_id, split, plain)
    SELECT described.resource_id, split, plain
    FROM unnest($1::text[]) AS asked (resource_id), LATERAL (
        SELECT * FROM searchable WHERE searchable.resource_id = asked.resource_id OFFSET 0
    ) AS described
    ON CONFLICT (resource_id) DO UPDATE SET split = excluded.split, plain = excluded.plain
""")
_RANKS: Final = Statement.with_name("documents_ranks")(f"""
    WITH {QUERY_WORDS.format(text="$2::text")}
    SELECT resource_id, {CLASS.format(by_class="$4::boolean", document="found.document")}
    FROM unnest($1::text[]) AS listed (resource_id),
        LATERAL {MATCHING.format(split="$3::boolean", resource_id="listed.resource_id")}
""")


async def index_documents(transaction: Transaction, resource_ids: Iterable[str]) -> None:
    """Bring the documents of resources up to date, after they or their annotations were changed; of those that exist."""
    asked = [(resource_id,) for resource_id in sorted(set(resource_ids))]
    await fetch_for_rows(transaction, _LOCK, asked)
    await fetch_for_rows(transaction, _INDEX, asked)


async def rank_matches(database: Statements, search: Search, resource_ids: Sequence[str]) -> dict[str, int]:
    """Return the class of each of the resources that match; 0 for all unless the search is by class."""
    batches = [resource_ids[start : start + BATCH] for start in range(0, len(resource_ids), BATCH)]
    rows = [await database.fetch(_RANKS, to_array(batch), search.text, search.split, search.by_class) for batch in batches]
    return dict(chain.from_iterable(rows))
