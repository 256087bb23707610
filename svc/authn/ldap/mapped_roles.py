"""The memberships that a login gives a person and takes, as mappings have it (LDAP-10 to LDAP-18).

The names that are compared with mappings are those of ``ldap_directories.list_directory_names``.

Note [Proven first]. Only somebody whose password the directory has taken gains or loses a membership, whether or not the
login is admitted: what the privilege ``authenticate`` followed from may be among what goes.

Note [Memberships, not claims]. The groups of a directory become memberships, so every decision and every list knows them,
and triggers remove them with their mappings (``storage/schema/0021_ldap_mappings.sql``). In an access token they would
outlive the mapping; if each request queried the directory for them, access would depend on it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

import attrs

from svc.authn.evaluation import Objection
from svc.authn.ldap.directory_settings import NAME
from svc.model.authentication import LoginRequest
from svc.model.errors import OutcomeUnknown, PolicyConflict, PrimaryContested, ReadOnlyStandby, StoreUnavailable
from svc.model.events import NOTICE, Event, EventBatch, IJournal, Outcome
from svc.model.ldap_directories import GROUP, MappingDifference, MappingPreview, list_directory_names
from svc.model.names import ResourceName, RoleName
from svc.model.reasons import Reason
from svc.storage.ldap_mappings import LdapMappingStore


@attrs.frozen
class ProvenPerson:
    """A person whom the directory has proven: its groups, if they were wanted, and below which entry plain names are."""

    groups: tuple[str, ...]
    group_base_dn: str | None


@attrs.frozen
class MappedOutcome:
    """The effect of mappings on a login: ``is_applied``, the memberships were changed; ``write_failure`` says why they
    weren't.
    """

    preview: MappingPreview
    groups: int
    is_applied: bool = False
    write_failure: Objection | None = None


@attrs.frozen
class MappedRoles:
    """Makes the memberships of people as mappings have them; ``ensure_writable`` is as ``Call`` has it."""

    store: LdapMappingStore
    journal: IJournal
    ensure_writable: Callable[[], Awaitable[None]]

    async def mapped_kinds(self, webservice: ResourceName) -> frozenset[str]:
        """Return of what kinds the names are that an authenticator maps."""
        return await self.store.list_kinds(webservice)

    async def group_names(self, webservice: ResourceName) -> Sequence[str]:
        """Return the names of groups that an authenticator maps, as they were written."""
        return await self.store.list_names(webservice, GROUP)

    async def preview_changes(self, webservice: ResourceName, role: RoleName, proven: ProvenPerson) -> MappedOutcome:
        """Return what a login would change, and whether its role could authenticate then."""
        names = list_directory_names(role.identifier, proven.groups, proven.group_base_dn)
        return MappedOutcome(await self.store.preview_changes(webservice, role, names), len(proven.groups))

    async def apply_mappings(
        self, request: LoginRequest, webservice: ResourceName, role: RoleName, proven: ProvenPerson
    ) -> MappedOutcome:
        """Make the memberships of a role as they are to be, and return how they are; nothing is written that is so already.

        :raises StoreUnavailable: the store can't be reached.
        :raises AuditUnavailable: the change can't be recorded.
        """
        outcome = await self.preview_changes(webservice, role, proven)
        if not outcome.preview.difference:
            return outcome
        service = f"{NAME}/{request.service_id}"

        def make_trail(difference: MappingDifference) -> EventBatch | None:
            return (
                None
                if request.origin is None
                else EventBatch(request.origin, tuple(_membership_events(role, service, difference)))
            )

        names = list_directory_names(role.identifier, proven.groups, proven.group_base_dn)
        try:
            await self.ensure_writable()
            difference, may = await self.store.apply_mappings(webservice, role, names, make_trail)
        except (ReadOnlyStandby, PrimaryContested):
            why = "its groups give it other roles than it has, and this server can't write that: the primary can"
            return attrs.evolve(outcome, write_failure=(Reason.LDAP_ROLES_UNWRITTEN, why))
        except (OutcomeUnknown, PolicyConflict):
            why = "its groups give it other roles than it has, and it isn't known that this was written"
            return attrs.evolve(outcome, write_failure=(Reason.LDAP_ROLES_UNWRITTEN, why))
        except StoreUnavailable as error:
            why = f"its groups give it other roles than it has, and that can't be written: {error}"
            return attrs.evolve(outcome, write_failure=(Reason.LDAP_ROLES_UNWRITTEN, why))
        if request.origin is not None and (events := tuple(_membership_events(role, service, difference))):
            await self.journal.record_events(request.origin, events, Outcome())
        foreseen = attrs.evolve(outcome.preview, difference=difference, may_authenticate=may)
        return attrs.evolve(outcome, preview=foreseen, is_applied=True)


def _membership_events(role: RoleName, service: str, difference: MappingDifference) -> Iterator[Event]:
    for operation, roles, did, does in (
        ("add", difference.gains, "became a member", "become a member"),
        ("remove", difference.loses, "ceased to be a member", "cease to be a member"),
    ):
        for granted in roles:
            words = f"of {granted} by the mappings of {service}"
            subject = (("role", granted), ("member", str(role)))
            yield Event(
                "membership",
                operation,
                subject,
                f"{did} {words}",
                f"{does} {words}",
                str(role),
                authenticator=NAME,
                service=service,
                severity=NOTICE,
            )
