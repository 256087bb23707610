"""The two vocabularies of the service, each one frozen value.

``native`` speaks the service's own names; ``conjur`` those of the installed base, so that its clients and policies work
unchanged. Nothing else in the tree asks which dialect is in force by name: code reads a field.
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.errors import ConfigurationInvalid


@attrs.frozen(kw_only=True)
class Dialect:
    """What differs between the vocabularies (CFG-26)."""

    #: The name by which the configuration chooses it.
    name: str
    #: Reserved prefix of policy ids and of the annotations ``<prefix>/mime_type`` and ``<prefix>/kind``.
    prefix: str
    #: The name of the cloud authenticator: in policy ids, in routes, and in annotations.
    cloud: str
    #: Environment variables that list the enabled authenticators, the first one set wins.
    authenticators_environment: tuple[str, ...]
    #: Whether a role of the caller's own account that the caller may not see is like one that doesn't exist.
    hides_roles: bool
    #: Whether a proven role is told that it lacks the privilege ``authenticate``.
    tells_missing_privilege: bool
    #: Whether ``PATCH`` switches on an authenticator that the configuration doesn't list; otherwise it only switches off.
    switch_enables: bool
    #: Whether ``/`` in a claim name walks into nested claims.
    nested_claims: bool
    #: Whether a token must carry ``iss`` whenever an issuer can be determined from the configuration.
    issuer_mandatory: bool
    #: Whether the mere presence of ``count`` asks for a count, whatever its value.
    count_by_presence: bool
    #: Whether a search finds the parts of annotation values that ``.`` ``/`` ``-`` part, as it does those of identifiers.
    search_splits_values: bool
    #: Whether the records that a search finds come by class, then id; otherwise by id.
    search_by_class: bool
    #: Whether a dry run tells that the owner of a role that comes or goes has another role, or one less.
    dry_run_tells_owners: bool
    #: Whether a policy may declare public keys that are none, and several of one name, of which the last counts.
    lenient_public_keys: bool
    #: Beginning of the two field names in the health report's replication section.
    replication_prefix: str
    #: The version that ``GET /`` reports, ``None`` for the program's own.
    reported_version: str | None
    #: The name by which ``GET /info`` calls this service.
    service: str

    def enables(self, listed: bool, switched: bool | None) -> bool:
        """Whether an authenticator may be used that the configuration lists, or doesn't, and that ``PATCH`` switched on or
        off, or never did.
        """
        return (listed or switched is True) if self.switch_enables else (listed and switched is not False)


NATIVE: Final = Dialect(
    name="native",
    prefix="svc",
    cloud="authn-cloud",
    authenticators_environment=("SERVICE_AUTHENTICATORS",),
    hides_roles=False,
    tells_missing_privilege=False,
    switch_enables=False,
    nested_claims=False,
    issuer_mandatory=False,
    count_by_presence=False,
    search_splits_values=True,
    search_by_class=True,
    dry_run_tells_owners=False,
    lenient_public_keys=False,
    replication_prefix="db_",
    reported_version=None,
    service="svc",
)

CONJUR: Final = Dialect(
    name="conjur",
    prefix="conjur",
    cloud="authn-azure",
    authenticators_environment=("SERVICE_AUTHENTICATORS", "CONJUR_AUTHENTICATORS"),
    hides_roles=True,
    tells_missing_privilege=True,
    switch_enables=True,
    nested_claims=True,
    issuer_mandatory=True,
    count_by_presence=True,
    search_splits_values=False,
    search_by_class=False,
    dry_run_tells_owners=True,
    lenient_public_keys=True,
    replication_prefix="pg_",
    reported_version="1.22.3",
    service="possum",
)

_DIALECTS: Final = {dialect.name: dialect for dialect in (NATIVE, CONJUR)}

#: The names of the cloud authenticator, of which each dialect has one.
CLOUD_NAMES: Final = tuple(dialect.cloud for dialect in _DIALECTS.values())


def dialect_named(name: str) -> Dialect:
    """Return the dialect of that name.

    :raises ConfigurationInvalid: there is none.
    """
    try:
        return _DIALECTS[name]
    except KeyError:
        raise ConfigurationInvalid("dialect", f"must be one of {', '.join(_DIALECTS)}, not {name!r}") from None
