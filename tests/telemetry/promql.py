"""The names in a query of Prometheus: which metrics it asks for, and by which labels."""

from __future__ import annotations

import re
from typing import Final

#: Words of the language that stand where a name may.
_WORDS: Final = frozenset({"and", "or", "unless", "on", "ignoring", "group_left", "group_right", "bool", "offset"})

#: What makes a list of labels of the parentheses behind it.
_LISTS: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR: Final = re.compile(r"\{([^}]*)\}")
_RANGE: Final = re.compile(r"\[[^\]]*\]")
_NAME: Final = re.compile(r"(?<![a-zA-Z0-9_:.])[a-zA-Z_:][a-zA-Z0-9_:]*")

#: Labels and metrics that Prometheus itself adds.
OWN_LABELS: Final = frozenset({"job", "instance", "le"})
OWN_METRICS: Final = frozenset({"up"})


def names(query: str) -> tuple[set[str], set[str]]:
    """Return the metrics and the labels of a query."""
    bare = _RANGE.sub("", _STRINGS.sub('""', query))
    labels = {name for within in _LISTS.findall(bare) for name in _NAME.findall(within)}
    labels |= {name for within in _SELECTOR.findall(bare) for name in _NAME.findall(within)}
    bare = _SELECTOR.sub("", _LISTS.sub("", bare))
    metrics = {
        found[0]
        for found in _NAME.finditer(bare)
        if not bare[found.end() :].lstrip().startswith("(") and found[0] not in _WORDS | {"by", "without"}
    }
    return metrics, labels
