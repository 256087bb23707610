"""Memberships that mappings made, as others find them (``svc/model/ldap_directories.py``, Note [Granted by nobody])."""

from __future__ import annotations

from typing import Final

from svc.storage.driver.columns import rows_of
from svc.storage.driver.statements import Statement

#: The condition that a row of ``memberships`` doesn't come from mappings alone.
NOT_MAPPED: Final = """(memberships.ownership OR NOT EXISTS (
    SELECT FROM mapped_memberships AS mapped
    WHERE mapped.role_id = memberships.role_id AND mapped.member_id = memberships.member_id OFFSET 0
))"""

#: Takes columns of roles and members, and removes grants that come from mappings alone, so that others can grant them.
UNMAP: Final = Statement.with_name("memberships_unmap")(f"""
    DELETE FROM mapped_memberships AS mapped USING {rows_of("text", "text")} AS said (role_id, member_id)
    WHERE mapped.role_id = said.role_id AND mapped.member_id = said.member_id
""")
