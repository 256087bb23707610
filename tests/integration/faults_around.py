"""The faults of what the servers record to and ask, of their processes and clocks, and of the cluster's third member."""

from __future__ import annotations

import signal
from typing import Any, Final

import psycopg2
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.integration.bed import DATABASE, INTERVAL, Bed
from tests.integration.bystanders import Speak, drip, flood, hang, says
from tests.integration.slapd import SERVICE_PASSWORD
from tests.integration.verdicts import CONTESTED, GONE, REFUSED, Act, Fault, failing

reactor: Any = installed_reactor

#: How much longer a server that hangs is waited for by others, in seconds.
_DEADLINE: Final = 5.0

#: By how much clocks are set, in seconds.
_HOUR: Final = 3600.0

#: More records than the connection to a receiver holds.
_RECORDS: Final = 40_000
_PER_REQUEST: Final = 1_000


def _pause(seconds: float) -> Deferred[None]:
    return deferLater(reactor, seconds)


async def _fill_audit(bed: Bed) -> None:
    bed.primary.audit_disk.fill()
    await _record(bed)  # Where the file ends there may be room for some more.


async def _clear_audit(bed: Bed) -> None:
    bed.primary.audit_disk.clear()


async def _hold_receiver(bed: Bed) -> None:
    bed.primary.receiver.hold()
    await _record(bed)


async def _record(bed: Bed) -> None:
    """Have the primary's server record more and more, until it can't."""
    ids = ",".join(f"acme:variable:v{number}" for number in range(_PER_REQUEST))
    for _ in range(_RECORDS // _PER_REQUEST):
        answer = await bed.api.ask("GET", f"/secrets?variable_ids={ids}", token=bed.admin)
        if answer.status == 503:
            return
    raise AssertionError("all records are taken")


async def _read_receiver(bed: Bed) -> None:
    bed.primary.receiver.read()


async def _close_receiver(bed: Bed) -> None:
    bed.primary.receiver.close()


async def _open_receiver(bed: Bed) -> None:
    bed.primary.receiver.open()


async def _kill_slapd(bed: Bed) -> None:
    assert bed.slapd is not None
    bed.slapd.kill()


async def _start_slapd(bed: Bed) -> None:
    assert bed.slapd is not None
    await bed.slapd.start()


async def _freeze_slapd(bed: Bed) -> None:
    assert bed.slapd is not None
    bed.slapd.signal(signal.SIGSTOP)


async def _thaw_slapd(bed: Bed) -> None:
    assert bed.slapd is not None
    bed.slapd.signal(signal.SIGCONT)


def _bind_with(password: str) -> Act:
    async def act(bed: Bed) -> None:
        await bed.set_variable("svc/authn-ldap/corp/bind-password", password)
        await bed.pair.caught_up()

    return act


async def _obstruct(bed: Bed) -> None:
    """Hold the table that each round begins with, so that it may be read and not written to."""
    holder = psycopg2.connect(bed.primary.postgres.dsn(DATABASE))
    holder.cursor().execute("LOCK TABLE host_factory_tokens IN SHARE MODE")
    bed.kept = [holder]


async def _let_go(bed: Bed) -> None:
    bed.kept[0].close()


async def _stop_server(bed: Bed) -> None:
    bed.primary.signal(signal.SIGSTOP)
    await _pause(3.5 * INTERVAL)


async def _go_on_server(bed: Bed) -> None:
    bed.primary.signal(signal.SIGCONT)


async def _sleep_through(bed: Bed) -> None:
    """Delete the canary while the server sleeps, then wake it."""
    bed.primary.signal(signal.SIGSTOP)
    bed.primary.command("CREATE TABLE kept AS TABLE canary; DELETE FROM canary")
    await bed.pair.caught_up()
    await _pause(3.5 * INTERVAL)
    bed.primary.signal(signal.SIGCONT)


async def _restore_canary(bed: Bed) -> None:
    bed.primary.command("INSERT INTO canary SELECT * FROM kept; DROP TABLE kept")
    await bed.pair.caught_up()


async def _kill_server(bed: Bed) -> None:
    bed.follower.kill()


async def _start_server(bed: Bed) -> None:
    bed.follower.launch()
    await bed.follower.ready()


def _clock(seconds: float) -> Act:
    async def act(bed: Bed) -> None:
        bed.primary.set_clock(bed.primary.clock + seconds)

    return act


async def _nothing(bed: Bed) -> None:
    """The clock stays as it is: to set it back would be another fault."""


async def _promote(bed: Bed) -> None:
    await bed.pair.promote()


def _misbehaves(name: str, words: str, speaks: Speak, third: str, afar: float = 1.0) -> Fault:
    async def inject(bed: Bed) -> None:
        bed.member.misbehave(speaks)

    return Fault(
        name=f"member_{name}", words=f"The third member {words}", inject=inject, undo=_behave, third=third, afar=afar
    )


async def _behave(bed: Bed) -> None:
    bed.member.behave()


async def _close_member(bed: Bed) -> None:
    bed.member.close()


async def _impersonate(bed: Bed) -> None:
    bed.member.impersonate()


OF_SERVICES: Final = (
    Fault(
        name="audit_file_blocked",
        words="The disk of the primary's audit file is full",
        inject=_fill_audit,
        undo=_clear_audit,
        primary=failing("audit", "expiration"),
        mounts=True,
    ),
    Fault(
        name="audit_receiver_blocked",
        words="The primary's receiver of syslog reads nothing, and its connection is full",
        inject=_hold_receiver,
        undo=_read_receiver,
        primary=failing("audit", "expiration"),
    ),
    Fault(
        name="audit_receiver_gone",
        words="The primary's receiver of syslog is gone",
        inject=_close_receiver,
        undo=_open_receiver,
        primary=failing("audit", "expiration"),
        recovery=4.0,  # until it is connected to again, and a round has found that
    ),
    Fault(
        name="ldap_down",
        words="The LDAP directory is down",
        inject=_kill_slapd,
        undo=_start_slapd,
        primary=failing("ldap"),
        follower=failing("ldap"),
        ldap=True,
    ),
    Fault(
        name="ldap_silent",
        words="The LDAP directory accepts connections and says nothing (`SIGSTOP`)",
        inject=_freeze_slapd,
        undo=_thaw_slapd,
        primary=failing("ldap"),
        follower=failing("ldap"),
        ldap=True,
    ),
    Fault(
        name="ldap_refuses",
        words="The LDAP directory refuses the password that servers bind with",
        inject=_bind_with("another password"),
        undo=_bind_with(SERVICE_PASSWORD),
        primary=failing("ldap"),
        follower=failing("ldap"),
        ldap=True,
    ),
    Fault(
        name="expiration_stuck",
        words="Each round of expiration waits for a lock that somebody holds, until a statement's time-out of 2 s",
        inject=_obstruct,
        undo=_let_go,
        primary=failing("expiration"),
        within=4.0,
    ),
)

OF_PROCESSES: Final = (
    Fault(
        name="server_suspended",
        words="The primary's server hangs (`SIGSTOP`) for more than three intervals",
        inject=_stop_server,
        undo=_go_on_server,
        primary=GONE,
        afar=_DEADLINE + 1,
    ),
    Fault(
        name="server_slept",
        words="The canary is deleted while the primary's server hangs for more than three intervals, then it goes on",
        inject=_sleep_through,
        undo=_restore_canary,
        primary=failing("core"),
        follower=failing("core"),
        never_ok=True,
        afar=_DEADLINE + 1,
    ),
    Fault(
        name="server_killed",
        words="`kill -9` of the follower's server",
        inject=_kill_server,
        undo=_start_server,
        follower=GONE,
    ),
    Fault(
        name="clock_forwards",
        words="The clock of the primary's server is set forwards by an hour",
        inject=_clock(_HOUR),
        undo=_nothing,
    ),
    Fault(
        name="clock_backwards",
        words="The clock of the primary's server is set back by an hour",
        inject=_clock(-_HOUR),
        undo=_clock(_HOUR),
    ),
)

OF_MEMBERS: Final = (
    Fault(name="member_gone", words="The third member is gone", inject=_close_member, undo=_behave, third="unreachable"),
    _misbehaves("hangs", "accepts and says nothing", hang, "unreachable", _DEADLINE + 1),
    _misbehaves("lies", "says 200 and that it isn't ok", says("200 OK", b'{"ok": false}'), "invalid"),
    _misbehaves("contradicts", "says 502 and that it is ok", says("502 Bad Gateway", b'{"ok": true}'), "invalid"),
    _misbehaves("is_no_json", "says what isn't JSON", says("200 OK", b"ok"), "invalid"),
    _misbehaves("is_html", "says HTML", says("200 OK", b"<html>ok</html>", "Content-Type: text/html"), "invalid"),
    _misbehaves("redirects", "redirects", says("302 Found", b"", "Location: http://127.0.0.1/health"), "invalid"),
    _misbehaves("floods", "says a gigabyte", flood, "unreachable"),
    _misbehaves("drips", "says a good report, two bytes a second", drip, "unreachable", _DEADLINE + 1),
    Fault(
        name="member_impersonated",
        words="The third member has a certificate of an authority that isn't trusted",
        inject=_impersonate,
        undo=_behave,
        third="unreachable",
    ),
)

PROMOTED: Final = Fault(
    name="standby_promoted",
    words="The standby becomes a primary, beside the former one",
    inject=_promote,
    undo=_nothing,
    primary=REFUSED,
    follower=CONTESTED,
    writers=frozenset({"follower"}),
    told=lambda status: "lag_seconds" not in status,
    telling="it reports no lag any more",
    ends_bed=True,
)
