"""Branches over HTTP: policies in the newer interface (NEWER-10 to NEWER-17)."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.names import root_policy
from svc.services.branch_rules import branch_around, is_root, path_of
from svc.services.branches import BranchEntries, BranchEntry
from svc.services.login import AccessTokenService
from svc.web.http.messages import Json
from svc.web.http.shapes import TEXT, object_shape
from svc.web.routes.entries import EntryKind, entry_routes
from svc.web.routes.v2_requests import ANNOTATIONS_SHAPE, OWNER_SHAPE

_GIVEN: Final = {"owner": OWNER_SHAPE, "annotations": ANNOTATIONS_SHAPE}


def _branch_json(entry: BranchEntry) -> dict[str, Json]:
    name = entry.name
    place = root_policy(name.account) if is_root(name) else branch_around(name.account, name.identifier)
    return {
        "name": name.identifier.rpartition("/")[2],
        "branch": path_of(place),
        "owner": {"kind": entry.owner.kind, "id": entry.owner.identifier},
        "annotations": entry.annotations,
    }


@attrs.frozen
class Branches:
    """The routes of branches."""

    routes = entry_routes(
        EntryKind(
            kind="policy",
            label="branch",
            plural="branches",
            shape=object_shape({"name": TEXT, "branch": TEXT, **_GIVEN}),
            optional=_GIVEN,
            changes=object_shape({}, _GIVEN),
            write_entry=_branch_json,
            updating="Set annotations, and the owner.",
            update_privileges="read and update on the branch; for its owner, the branch's own owner",
            deleting="Delete a branch with everything in it.",
            deleted="the branch and everything in it is gone",
        )
    )

    entries: BranchEntries
    tokens: AccessTokenService
