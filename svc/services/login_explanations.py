"""The use case of explaining a login by key or password to operators; nothing is admitted.

Note [No oracle]. A tried key or password is a guess like any other: it is counted, slowed down, logged and recorded as at a
login, and a caller that may not see the role learns no more than from a login, which is whether it is admitted. That holds
for the steps, for the reason, and for roles that don't exist.
"""

from __future__ import annotations

from typing import Final

import attrs
from twisted.logger import Logger

from svc.model.authentication import (
    Explain,
    ExplainedRefusal,
    Explanation,
    ExplanationRequest,
    ExplanationStep,
    Refused,
)
from svc.model.authorization import Allowed, decide_privilege, decide_role_visibility
from svc.model.dialect import Dialect
from svc.model.errors import AuthenticationRefused, Forbidden, RecordNotFound
from svc.model.names import RoleName, root_policy
from svc.model.reasons import POSTPONING_REASONS, Reason
from svc.services.authenticators import DEFAULT, require_operator, webservice_of
from svc.services.invocation import Invocation, printable_facts
from svc.storage.roles import RoleStore

#: Reasons that reveal nothing about a role: those of the authenticator, the directory, the address.
_OF_NO_ROLE: Final = POSTPONING_REASONS | {Reason.AUTHENTICATOR_NOT_ENABLED, Reason.FAILURES_TOO_MANY}

_HIDDEN_DETAIL: Final = (
    "there is no such role, or the key or password is another, or the role may not log in so, or not now, or not from there:"
    " which of these is told to those who see the role"
)

_log = Logger()


@attrs.frozen
class LoginAttempt:
    """The login that an operator wants to try: ``evidence``, or ``None``, from ``address``, ``None`` for the operator's."""

    evidence: bytes | None = attrs.field(repr=False)
    address: str | None = None


@attrs.frozen
class KeyExplanations:
    """Explains logins at ``authn``, or at the authenticators ``authn-ldap/<service id>``, by their ``name``."""

    name: str
    explain: Explain
    roles: RoleStore
    dialect: Dialect

    async def explain_login(
        self, invocation: Invocation, account: str, service_id: str | None, login: str, tried: LoginAttempt
    ) -> Explanation:
        """Return how a login would be evaluated, check by check (REF-10 to REF-15).

        :raises AuthenticationRefused: too many failures came from the caller's address.
        :raises Forbidden: the caller lacks the privilege, or doesn't see the role and tries no evidence.
        :raises InvalidName: no role can have this login.
        :raises NotFound: it is another account, or there is no such authenticator.
        :raises PasswordsBusy: too many passwords wait to be compared.
        """
        recorder, caller = invocation.recorder, invocation.caller
        recorder.add_audit_facts(authenticator=self.name, login=login, tried=tried.evidence is not None)
        if account != caller.role.account:
            raise RecordNotFound(account, "account", account)
        role = RoleName.from_login(account, login)
        sees = await self._can_see(invocation, role, service_id)
        if tried.evidence is None and not sees:
            raise Forbidden("doesn't see the role, and tries no key or password")
        found = await self.explain(
            ExplanationRequest(
                account,
                login,
                tried.evidence or b"",
                invocation.client_ip,
                service_id,
                address=tried.address or invocation.client_ip,
                tried=tried.evidence is not None,
            )
        )
        reason = found.reason.value if isinstance(found, Refused) else "none"
        recorder.add_audit_facts(reason=reason)
        _log.info(
            "{role} had a login of {subject} at {authenticator} explained, refused for: {reason}",
            **printable_facts(role=caller.role, subject=role, authenticator=self.name, reason=reason),
        )
        if isinstance(found, Refused) and not isinstance(found, ExplainedRefusal):
            raise AuthenticationRefused(found.reason, found.kind, found.retry_after)
        explanation = found if isinstance(found, Explanation) else Explanation(found.steps, str(role), False)
        return explanation if sees else _hide_details(explanation, role)

    async def _can_see(self, invocation: Invocation, role: RoleName, service_id: str | None) -> bool:
        """Return whether the caller, who has the privilege, sees the role. The same is read for one that doesn't exist."""
        caller = invocation.caller
        if service_id is not None:
            await require_operator(self.roles, self.dialect, invocation, role.account, self.name, service_id)
        facts = await self.roles.access_facts(caller, role.resource)
        # Trying a key is more than looking: an auditor may not.
        rules = (await self.roles.access_facts(caller, root_policy(role.account).resource)).owns
        if service_id is None:
            status = webservice_of(self.dialect, role.account, f"{DEFAULT}/status")
            operates = decide_privilege(await self.roles.access_facts(caller, status), "read") == Allowed()
            if not (facts.caller_exists and (rules or operates or facts.owns)):
                raise Forbidden("owns neither the role nor the root policy, and may not read the status of authn")
        return rules or decide_role_visibility(facts) == Allowed()


def _hide_details(explanation: Explanation, role: RoleName) -> Explanation:
    """Return the part of a decision that a login reveals (Note [No oracle])."""
    if explanation.admitted:
        return Explanation((ExplanationStep("credentials", "passed", "the login would be admitted"),), str(role), True)
    failed = next(step for step in explanation.steps if step.outcome == "failed")
    if failed.reason not in _OF_NO_ROLE:
        failed = ExplanationStep("credentials", "failed", _HIDDEN_DETAIL, Reason.CREDENTIALS_WRONG)
    return Explanation((failed,), str(role), False)
