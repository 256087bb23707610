"""The client library for ordinary Python: ``Client`` for threads, ``AsyncClient`` for asyncio: ``docs/guides/python.md``."""

from svc.client.asynchronous import AsyncClient
from svc.client.platforms import AwsWorkload, AzureMachine, GoogleWorkload
from svc.client.synchronous import Client
from svc.workload.batches import SecretFault, SecretValues
from svc.workload.evidence import ApiKey, Evidence, Jwt, Login
from svc.workload.faults import (
    BadAddress,
    BadAnswer,
    Fault,
    LoginRefused,
    NoEvidence,
    NoIdentity,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    PlatformUnavailable,
    TooLong,
    Unavailable,
    Unexpected,
    Unreachable,
    Untrusted,
    ValueChanged,
)
from svc.workload.kubernetes import ProjectedToken
from svc.workload.versions import Versions
from svc.workload.watching import NewVersions, NoLongerThere, WatchEvent

__all__ = [
    "ApiKey",
    "AsyncClient",
    "AwsWorkload",
    "AzureMachine",
    "BadAddress",
    "BadAnswer",
    "Client",
    "Evidence",
    "Fault",
    "GoogleWorkload",
    "Jwt",
    "Login",
    "LoginRefused",
    "NewVersions",
    "NoEvidence",
    "NoIdentity",
    "NoLongerThere",
    "NotAuthenticated",
    "NotFound",
    "NotPermitted",
    "PlatformUnavailable",
    "ProjectedToken",
    "SecretFault",
    "SecretValues",
    "TooLong",
    "Unavailable",
    "Unexpected",
    "Unreachable",
    "Untrusted",
    "ValueChanged",
    "Versions",
    "WatchEvent",
]
