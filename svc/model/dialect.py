"""The two vocabularies of the service: ``native``, and ``conjur``, that of the existing clients ("installed base").

No other code checks a dialect's name: it reads a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.errors import ConfigurationInvalid

#: The version of the installed base that is reported to its clients: with it they use the newer interface.
REPORTED_CONJUR_VERSION: Final = "1.23.0"


@attrs.frozen(kw_only=True)
class Dialect:
    """A vocabulary, as the configuration names it (CFG-26); the defaults are those of ``native``."""

    name: str = "native"
    prefix: str = "svc"  #: of reserved policy ids and of the annotations ``<prefix>/mime_type`` and ``<prefix>/kind``
    cloud: str = "authn-cloud"  #: the name of the cloud authenticator in policy ids, routes and annotations
    #: Environment variables that list the enabled authenticators; the first one that is set counts.
    authenticators_environment: tuple[str, ...] = ("SERVICE_AUTHENTICATORS",)
    hides_roles: bool = False  #: a role of the caller's account that it may not see is as one that doesn't exist
    reveals_missing_privilege: bool = False  #: a proven role learns that it lacks the privilege ``authenticate``
    switch_enables: bool = False  #: ``PATCH`` also switches on an authenticator that the configuration doesn't list
    nested_claims: bool = False  #: ``/`` in a claim name walks into nested claims
    issuer_mandatory: bool = False  #: a token must carry ``iss`` if the configuration determines an issuer
    signed_server: bool = True  #: a signed request of AWS has a header that names this server
    count_by_presence: bool = False  #: the mere presence of ``count`` asks for a count, whatever its value
    count_of_page: bool = False  #: a count of resources is that of the page which ``limit`` and ``offset`` ask for
    lists_policy_texts: bool = False  #: lists have the texts of policies, too, as far as they aren't long
    search_splits_values: bool = True  #: values of annotations are split at ``.`` ``/`` ``-`` as identifiers are
    search_by_class: bool = True  #: what a search finds is ordered by class, then id; otherwise by id
    dry_run_lists_owners: bool = False  #: a dry run lists the roles that owners gain and lose
    lenient_policy: bool = False  #: policy may say what the installed base takes and what is likely a mistake (POL-90)
    shows_last_login: bool = True  #: a user or host is shown with the day of its last login
    malformed_codes: bool = False  #: most codes of OpenID Connect that prove nobody are answered as malformed requests
    lists_disabled_providers: bool = False  #: the list of OIDC providers has authenticators that may not be used, too
    lists_device_endpoints: bool = True  #: that list has what clients need that get id tokens by themselves
    replication_prefix: str = "db_"  #: of the two fields in the health report's replication section
    reported_version: str | None = None  #: the version that ``GET /`` reports, ``None`` for the program's own
    api_prefix: str = ""  #: that paths of the API may have before them
    service: str = "svc"  #: the name by which ``GET /info`` calls this service
    shows_vendor_codes: bool = False  #: messages begin with the codes that clients of the installed base look for

    def is_enabled(self, listed: bool, switched: bool | None) -> bool:
        """Return whether an authenticator may be used; ``switched`` is what ``PATCH`` set, ``None`` for nothing."""
        return (listed or switched is True) if self.switch_enables else (listed and switched is not False)

    def code_prefix(self, code: str) -> str:
        """Return the beginning of a message that has a code of the installed base, or none (FAIL-40)."""
        return f"{code} " if code and self.shows_vendor_codes else ""


NATIVE: Final = Dialect()

CONJUR: Final = Dialect(
    name="conjur",
    prefix="conjur",
    cloud="authn-azure",
    authenticators_environment=("SERVICE_AUTHENTICATORS", "CONJUR_AUTHENTICATORS"),
    hides_roles=True,
    reveals_missing_privilege=True,
    switch_enables=True,
    nested_claims=True,
    issuer_mandatory=True,
    signed_server=False,
    count_by_presence=True,
    count_of_page=True,
    lists_policy_texts=True,
    search_splits_values=False,
    search_by_class=False,
    dry_run_lists_owners=True,
    lenient_policy=True,
    shows_last_login=False,
    malformed_codes=True,
    lists_disabled_providers=True,
    lists_device_endpoints=False,
    replication_prefix="pg_",
    reported_version=REPORTED_CONJUR_VERSION,
    api_prefix="/api",
    service="possum",
    shows_vendor_codes=True,
)

_DIALECTS: Final = {dialect.name: dialect for dialect in (NATIVE, CONJUR)}

#: The types of which an account has one authenticator, without a service id.
SINGLE_TYPES: Final = ("authn-gcp",)

#: The types whose evidence is a request that a workload has signed, instead of a token.
SIGNED_TYPES: Final = ("authn-iam",)

#: The names of the cloud authenticator, of which each dialect has one.
CLOUD_NAMES: Final = tuple(dialect.cloud for dialect in _DIALECTS.values())


def authenticator_name(kind: str, service_id: str | None) -> str:
    """Return the name of an authenticator, such as ``authn-jwt/ci``; one of ``SINGLE_TYPES`` has no service id."""
    return kind if service_id is None else f"{kind}/{service_id}"


def find_dialect(name: str) -> Dialect:
    """Return the dialect of that name.

    :raises ConfigurationInvalid: there is none.
    """
    try:
        return _DIALECTS[name]
    except KeyError:
        raise ConfigurationInvalid("dialect", f"must be one of {', '.join(_DIALECTS)}, not {name!r}") from None


#: Sentences for users of an authenticator of these types.
UNSERVED: Final[Mapping[str, str]] = {
    "authn-k8s": (
        "authn-k8s is not served: pods log in at authn-jwt, with a projected service account token"
        " (docs/guides/kubernetes.md)"
    ),
    "authn-cert": (
        "authn-cert is not served: workloads log in at authn-jwt, with a token of their platform"
        " (docs/guides/authenticators.md)"
    ),
}
