"""The checks that every third party's token goes through, for those who decide and for those who explain.

Those of one kind of authenticator alone are beside its table, which also puts these in the order in which failures count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from svc.authn.claims import check_audience, check_begun, check_expiry, check_issuer, issued_at
from svc.authn.evaluation import Check, Trial
from svc.authn.settings import Misconfiguration
from svc.crypto.jose import EvidenceRefused, KeySet, parse_compact, shown
from svc.model.authentication import ANNOTATIONS_BYTES, ANNOTATIONS_LIMIT, KeySource, Problem, moment
from svc.model.dialect import Dialect
from svc.model.errors import KeysUnavailable
from svc.model.query_results import is_within
from svc.model.reasons import Reason

#: Keys and networks that are named to operators.
_NAMED: Final = 10

#: The refusals that newer keys may mend, and that have them asked for (rulings 4). A provider may change its key and keep
#: the id, or use no ids at all. Each other refusal is about keys that are known: one is distrusted, or is for another
#: algorithm, or there are several to choose from.
NEWER_KEYS_MAY_MEND: Final = frozenset({Reason.KEY_UNKNOWN, Reason.SIGNATURE_WRONG})


# -- the authenticator ------------------------------------------------------------------------------------------------


def why_disabled(dialect: Dialect, service: str, listed: bool, switched: bool | None) -> Problem | None:
    """Why an authenticator may not be used: it must be listed and not switched off, or listed or switched on (rulings 1)."""
    if dialect.enables(listed, switched):
        return None
    if dialect.switch_enables:
        return Problem(
            f"{shown(service)} is neither listed in the configuration nor switched on.",
            "Switch it on, or list it in the setting authenticators and start the server again.",
        )
    if not listed:
        return Problem(
            f"{shown(service)} is not listed in the configuration.",
            "List it in the setting authenticators and start the server again.",
        )
    return Problem(f"{shown(service)} is switched off.", "Switch it on.")


def _check_enabled(trial: Trial) -> None:
    problem = why_disabled(trial.terms.dialect, trial.service, trial.listed, trial.known.settings.switched)
    if problem is not None:
        raise EvidenceRefused(Reason.AUTHENTICATOR_NOT_ENABLED, problem.what)


def _tell_enabled(trial: Trial) -> str:
    return f"{shown(trial.service)} is {'listed in the configuration' if trial.listed else 'switched on'}"


def _check_account(trial: Trial) -> None:
    if not trial.applicant.account_exists:
        raise EvidenceRefused(Reason.ACCOUNT_UNKNOWN, f"there is no account {shown(trial.attempt.account)}")
    if trial.applicant.signing_key is None:
        raise EvidenceRefused(
            Reason.SIGNING_KEY_UNUSABLE, f"the account {shown(trial.attempt.account)} has no signing key", moment()
        )


def _tell_account(trial: Trial) -> str:
    return f"the account {shown(trial.attempt.account)} exists"


def _check_webservice(trial: Trial) -> None:
    if not trial.applicant.webservice_exists:
        raise EvidenceRefused(Reason.WEBSERVICE_UNKNOWN, f"no policy defines the webservice {shown(_webservice(trial))}")


def _tell_webservice(trial: Trial) -> str:
    return f"a policy defines the webservice {shown(_webservice(trial))}"


def _webservice(trial: Trial) -> str:
    return f"{trial.terms.dialect.prefix}/{trial.service}"


def _check_configuration(trial: Trial) -> None:
    meaning = trial.known.meaning
    if isinstance(meaning, Misconfiguration):
        raise EvidenceRefused(Reason.CONFIGURATION_INVALID, " ".join(problem.what for problem in meaning.problems))
    trial.configuration = meaning


def _tell_configuration(trial: Trial) -> str:
    return f"the variables {', '.join(sorted(trial.known.settings.values))} fit together"


# -- the token and its signature --------------------------------------------------------------------------------------


def _check_token(trial: Trial) -> None:
    if trial.attempt.fault is not None:
        raise EvidenceRefused(*trial.attempt.fault)
    text = trial.attempt.evidence.strip()
    if not text:
        raise EvidenceRefused(Reason.TOKEN_MISSING, "the request has no token")
    trial.token = parse_compact(text, trial.terms.token_limit)


def _tell_token(trial: Trial) -> str:
    key_id = trial.token.key_id
    return (
        f"it is signed with {trial.token.algorithm}, and names {'no key' if key_id is None else f'the key {shown(key_id)}'}"
    )


async def _check_keys(trial: Trial) -> None:
    """There are keys, in the settings or from the provider; an operator's wish for newer ones is granted first."""
    keys = trial.configuration.keys
    if isinstance(keys, KeySource):
        try:
            keys = await trial.terms.keys.current(keys, trial.known.settings.refreshes, trial.attempt)
        except KeysUnavailable as error:
            raise EvidenceRefused(Reason.KEYS_UNAVAILABLE, error.why, error.retry_after) from None
    trial.keys = keys


def _tell_keys(trial: Trial) -> str:
    source = trial.configuration.keys
    named = ", ".join("one without id" if key.key_id is None else shown(key.key_id) for key in trial.keys.keys[:_NAMED])
    more = ", …" if len(trial.keys.keys) > _NAMED else ""
    return f"from {shown(source.uri) if isinstance(source, KeySource) else 'the variable public-keys'}: {named}{more}"


async def _check_signature(trial: Trial) -> None:
    """A key verifies the token. A failure that newer keys could mend asks for them, once, and counts when there are none.

    While they can't be had nobody knows whether it would be one (rulings 9.1).
    """
    source, distrusted = trial.configuration.keys, trial.known.settings.distrusted
    try:
        trial.claims = trial.keys.verify(trial.token, distrusted)
    except EvidenceRefused as refusal:
        if isinstance(source, KeySet) or refusal.reason not in NEWER_KEYS_MAY_MEND:
            raise
        try:
            newer = await trial.terms.keys.newer(source, trial.keys, trial.attempt)
        except KeysUnavailable as error:
            why = f"{refusal.detail}; no newer keys: {error.why}"
            raise EvidenceRefused(Reason.KEYS_UNAVAILABLE, why, error.retry_after) from None
        if newer is trial.keys:
            raise EvidenceRefused(refusal.reason, f"{refusal.detail}; these keys were fetched a moment ago") from None
        trial.keys = newer
        trial.claims = newer.verify(trial.token, distrusted)
    trial.now = trial.terms.wall.seconds()
    issued, issuer = issued_at(trial.claims), trial.configuration.issuer
    # A platform may sign the tokens of others with the same key, and these tell nothing of its clock that one may rely on.
    if issued is not None and (issuer is None or trial.claims.get("iss", issuer) == issuer):
        trial.known.delays.append(trial.now - issued)


def _tell_signature(trial: Trial) -> str:
    key = trial.keys.key_for(trial.token)
    return f"it is by the key {'without id' if key.key_id is None else shown(key.key_id)}, thumbprint {key.thumbprint}"


# -- the claims -------------------------------------------------------------------------------------------------------


def _check_begun(name: str) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        check_begun(trial.claims, name, trial.now, trial.terms.clock_skew)

    return run


def _tell_time(name: str) -> Callable[[Trial], str]:
    def tell(trial: Trial) -> str:
        if name not in trial.claims:
            return f"the token has no {name!r}, and needs none"
        return f"{name!r} is {trial.claims[name]!r:.40}, the time here is {trial.now:.15g}"

    return tell


def _check_expiry(trial: Trial) -> None:
    check_expiry(trial.claims, trial.now, trial.terms.clock_skew)


def _check_issuer(trial: Trial) -> None:
    check_issuer(trial.claims, trial.configuration.issuer, mandatory=trial.terms.issuer_mandatory)


def _tell_issuer(trial: Trial) -> str:
    return _tell_expected(trial, "iss", trial.configuration.issuer)


def _check_audience(trial: Trial) -> None:
    check_audience(trial.claims, trial.configuration.audience)


def _tell_audience(trial: Trial) -> str:
    return _tell_expected(trial, "aud", trial.configuration.audience)


def _tell_expected(trial: Trial, name: str, expected: str | None) -> str:
    if name not in trial.claims:
        return f"the token has no {name!r}, and needs none"
    return f"no {name!r} is expected, any will do" if expected is None else f"{name!r} is or holds {shown(expected)}"


# -- the applicant ----------------------------------------------------------------------------------------------------


def _check_role(trial: Trial) -> None:
    if not trial.applicant.role_exists:
        raise EvidenceRefused(Reason.ROLE_UNKNOWN, f"there is no role {shown(str(trial.role))}")


def _tell_role(trial: Trial) -> str:
    return f"the role {shown(str(trial.role))} exists"


def _check_privilege(trial: Trial) -> None:
    if not trial.applicant.may_authenticate:
        raise EvidenceRefused(
            Reason.PRIVILEGE_MISSING,
            f"{shown(str(trial.role))} has no privilege authenticate on {shown(trial.service)}; its group is not in apps",
        )


def _tell_privilege(trial: Trial) -> str:
    return f"it has the privilege authenticate on {shown(trial.service)}"


def _check_origin(trial: Trial) -> None:
    """The client is where the role may log in from (wire facts, authn 1.5)."""
    networks = trial.applicant.restrictions
    if networks and not is_within(trial.attempt.client_ip, networks):
        among = ", ".join(map(str, networks[:_NAMED]))
        raise EvidenceRefused(
            Reason.ORIGIN_REFUSED,
            f"the request comes from {shown(trial.attempt.client_ip)}; the role is restricted to {among}",
        )


def _tell_origin(trial: Trial) -> str:
    restricted = "one that it is restricted to" if trial.applicant.restrictions else "and it may log in from everywhere"
    return f"the request comes from {shown(trial.attempt.client_ip)}, {restricted}"


def _check_extent(trial: Trial) -> None:
    """The role's annotations are few enough to be read: whoever writes policy decides what logins cost."""
    if trial.applicant.annotations is None:
        raise EvidenceRefused(
            Reason.ANNOTATIONS_EXCESSIVE,
            f"{shown(str(trial.role))} has more than {ANNOTATIONS_LIMIT} annotations for {shown(trial.service)} "
            f"and its like, or they have more than {ANNOTATIONS_BYTES // 1024} KiB",
        )


def _tell_extent(trial: Trial) -> str:
    return f"{len(trial.annotations)} annotations bear on {shown(trial.service)}"


ENABLED: Final = Check("enabled", _check_enabled, _tell_enabled)
ACCOUNT: Final = Check("account", _check_account, _tell_account, stored=True)
WEBSERVICE: Final = Check("webservice", _check_webservice, _tell_webservice, stored=True)
CONFIGURATION: Final = Check("configuration", _check_configuration, _tell_configuration)
TOKEN: Final = Check("token", _check_token, _tell_token)
KEYS: Final = Check("keys", _check_keys, _tell_keys)
SIGNATURE: Final = Check("signature", _check_signature, _tell_signature)
EXPIRY: Final = Check("expiry", _check_expiry, _tell_time("exp"))
NOT_BEFORE: Final = Check("not-before", _check_begun("nbf"), _tell_time("nbf"))
ISSUER: Final = Check("issuer", _check_issuer, _tell_issuer)
ISSUED_AT: Final = Check("issued-at", _check_begun("iat"), _tell_time("iat"))
AUDIENCE: Final = Check("audience", _check_audience, _tell_audience)
ROLE: Final = Check("role", _check_role, _tell_role, stored=True)
PRIVILEGE: Final = Check("privilege", _check_privilege, _tell_privilege, stored=True)
ORIGIN: Final = Check("origin", _check_origin, _tell_origin, stored=True)
EXTENT: Final = Check("annotations-extent", _check_extent, _tell_extent, stored=True)
