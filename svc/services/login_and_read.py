"""The use case of logging in and reading secrets in one request (SEC-43 to SEC-46)."""

from __future__ import annotations

from collections.abc import Sequence

from svc.model.authentication import LoginRequest
from svc.model.errors import AuthenticationRefused, CallerReplaced
from svc.model.query_results import Caller
from svc.model.reasons import Reason
from svc.services.batches import WITH_LOGIN, BatchService, SecretBatch
from svc.services.invocation import Recorder
from svc.services.login import LoginService


async def login_and_read(
    login: LoginService,
    batches: BatchService,
    request: LoginRequest,
    recorder: Recorder,
    ids: Sequence[str],
    *,
    partial: bool,
    texts: bool,
) -> tuple[bytes, SecretBatch]:
    """Return an access token for the role that a request proves, and secrets as ``BatchService.read`` reads them for it.

    Nothing is looked up before the login is admitted, and no token is issued if the secrets are refused.

    :raises AuthenticationRefused: the login is refused.
    :raises Forbidden: as ``BatchService.read``, which raises the rest, too.
    """
    admitted = await login.admitted(request, recorder)
    caller = Caller(admitted.role, 0, admitted.creation, admitted.epoch)
    try:
        batch = await batches.read(caller, recorder, ids, WITH_LOGIN, partial=partial, texts=texts, tagged=False)
    except CallerReplaced:
        # The role was deleted, or its tokens revoked, while it logged in.
        raise AuthenticationRefused(Reason.ROLE_UNKNOWN) from None
    return await login.issue(admitted), batch
