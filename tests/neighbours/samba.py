"""Samba as a domain controller of Active Directory, on a loopback address of its own, with TLS and some thousand groups.

It listens on the ports of LDAP, which can't be chosen, so it has the address ``127.0.77.1`` and needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from OpenSSL import crypto

from svc.model.credentials import new_api_key
from tests.authn.providers.authority import Authority
from tests.neighbours.server import Server, ask, start_program, wait_until
from tests.neighbours.table import Answer, Row

SUMMARY = "Samba 4.17 as a domain controller of Active Directory, from Debian's packages samba, samba-ad-dc and ldb-tools"

_HOST: Final = "127.0.77.1"
_SILENT: Final = "127.0.77.8"
_DEAD: Final = "127.0.77.9"
_BASE: Final = "DC=corp,DC=example,DC=org"
_GROUPS: Final = f"OU=Groups,{_BASE}"
#: A name in which everything stands that has to be escaped, as policy may write it.
_ODD: Final = rf"CN=a\, \"b\" \#c \+ d\;e \<f\> (g) *,OU=A\, B & C,{_BASE}"
_PASSWORD: Final = "alice's pässword"
_SERVICE_PASSWORD: Final = "service password"

_MANY: Final = 2330
_LOGINS: Final = 50
_COST: Final = 0.05

#: The failures after which Samba locks an account.
_THRESHOLD: Final = 10

#: People, and what Active Directory says of each in its refusal of the right password.
_STATES: Final = {"disabled": "533", "gone": "701", "outdated": "532", "new": "773", "asleep": "530", "locked": "775"}

_PEOPLE: Final = ("alice", "bob", "guessed", "keyholder", "odd", *_STATES)

_SET_UP: Final = """
import json, sys
from ldb import Ldb
from samba.auth import system_session
from samba.param import LoadParm
from samba.samdb import SamDB

given = json.load(sys.stdin)
lp = LoadParm()
lp.load(given["conf"])
sam = SamDB(url=given["sam"], session_info=system_session(), lp=lp)
base = given["base"]
sam.modify_ldif(f'''dn: {base}
changetype: modify
replace: pwdProperties
pwdProperties: 0
-
replace: minPwdLength
minPwdLength: 1
-
replace: minPwdAge
minPwdAge: 0
-
replace: maxPwdAge
maxPwdAge: -1728000000000
-
replace: lockoutThreshold
lockoutThreshold: {given["threshold"]}
-
replace: lockoutDuration
lockoutDuration: -18000000000
-
replace: lockOutObservationWindow
lockOutObservationWindow: -18000000000
''')
for unit in ("Groups", "Elsewhere"):
    sam.add_ldif(f"dn: OU={unit},{base}\\nobjectClass: organizationalUnit\\n")
sam.add({"dn": rf"OU=A\\, B & C,{base}", "objectClass": "organizationalUnit"})
for name, password in given["people"].items():
    unit = r"OU=A\\, B & C" if name == "odd" else None
    sam.newuser(name, password, userou=unit)
    dn = sam.search(base, expression=f"(sAMAccountName={name})", attrs=[])[0].dn
    changes = {
        "disabled": "replace: userAccountControl\\nuserAccountControl: 66050",
        "gone": "replace: accountExpires\\naccountExpires: 130000000000000000",
        "new": "replace: pwdLastSet\\npwdLastSet: 0",
        "asleep": "replace: logonHours\\nlogonHours:: " + "A" * 28,
    }
    if name not in ("outdated", "new"):
        sam.modify_ldif(f"dn: {dn}\\nchangetype: modify\\nreplace: userAccountControl\\nuserAccountControl: 66048\\n")
    if name in changes:
        sam.modify_ldif(f"dn: {dn}\\nchangetype: modify\\n{changes[name]}\\n")
alice = sam.search(base, expression="(sAMAccountName=alice)", attrs=[])[0].dn

def group(dn, account, *members):
    entry = {"dn": dn, "objectClass": "group", "sAMAccountName": account}
    if members:
        entry["member"] = list(map(str, members))
    sam.add(entry)

sam.transaction_start()
group(f"CN=inner,{given['groups']}", "inner", alice)
group(f"CN=devs,{given['groups']}", "devs", f"CN=inner,{given['groups']}")
group(f"CN=outer,OU=Elsewhere,{base}", "outer", f"CN=devs,{given['groups']}")
group(f"CN=other,{given['groups']}", "other")
group(given["odd"], "odd group", alice)
for number in range(given["many"]):
    group(f"CN=many{number},{given['groups']}", f"many{number}")
sam.transaction_commit()
# Nobody may write when a password was set: so it is written below the rules of the directory.
raw = Ldb(f"{given['sam']}.d/{base.upper()}.ldb")
outdated = f"dn: CN=outdated,CN=Users,{base}\\nchangetype: modify\\n"
for _, change in raw.parse_ldif(f"{outdated}replace: pwdLastSet\\npwdLastSet: 130000000000000000\\n"):
    raw.modify(change)
"""

_POLICY: Final = """
- !policy
  id: svc/authn-ldap/{service}
  body:
    - !webservice
      annotations:
        ldap-authn/filter_template: (&(objectCategory=person)(sAMAccountName=%s))
        {annotations}
    - !webservice status
    - !variable bind-password
    - !variable tls-ca-cert
    - !permit {{ role: !group /people, privileges: [ read, authenticate ], resource: !webservice }}
"""

_SERVICE_DN: Final = f"CN=svc-bind,CN=Users,{_BASE}"


def _services() -> dict[str, dict[str, str]]:
    """The authenticators, and the annotations in which each differs from the first."""
    tokens = {"group_source": "tokenGroups", "group_base_dn": _GROUPS}
    return {
        "corp": tokens,
        "ldaps": {"uri": f"ldaps://{_HOST}"},
        "upn": {"bind_dn": "svc-bind@corp.example.org"},
        "netbios": {"bind_dn": r"CORP\svc-bind"},
        "forest": {"uri": f"ldaps://{_HOST}:3269", "base_dn": "", **tokens},
        "dead": {"uri": f"ldap://{_DEAD} ldap://{_HOST}"},
        "silent": {"uri": f"ldap://{_SILENT}, ldap://{_HOST}"},
        "silent-tls": {"uri": f"ldaps://{_SILENT} ldaps://{_HOST}"},
        "ldaps-to-389": {"uri": f"ldaps://{_HOST}:389"},
        "starttls-to-636": {"uri": f"ldap://{_HOST}:636"},
        "stranger": {},
        # First by name: the health check tries the first 20 webservices of an account, those of statuses among them.
        "a-wrong": {"bind_dn": f"CN=svc-wrong,CN=Users,{_BASE}"},
        "chain": {"group_base_dn": _BASE, "group_filter_template": "(member:1.2.840.113556.1.4.1941:=%d)"},
    }


def missing() -> str | None:
    """Return the command that installs what isn't here."""
    if os.geteuid() != 0:
        return "become root, which ports below 1024 and Samba need"
    if all(map(shutil.which, ("samba", "samba-tool", "ldbsearch", "ldapwhoami"))) and Path("/usr/bin/python3").exists():
        return None
    return (
        "apt-get install --no-install-recommends samba samba-ad-dc samba-ad-provision winbind krb5-user ldb-tools ldap-utils"
    )


class _Controller:
    """A domain controller in a folder of its own."""

    def __init__(self, directory: Path) -> None:
        """Make the domain, with its people and groups."""
        self.authority = Authority()
        self._directory = directory
        self._conf = directory / "etc/smb.conf"
        self._sam = directory / "private/sam.ldb"
        directory.mkdir()
        domain = ["--realm=CORP.EXAMPLE.ORG", "--domain=CORP", "--adminpass=Adm1n-Passw0rd!", f"--targetdir={directory}"]
        host = ["--host-name=dc1", f"--host-ip={_HOST}", "--server-role=dc", "--dns-backend=NONE", "--use-rfc2307"]
        _run(["samba-tool", "domain", "provision", *domain, *host])
        wanted = f"[global]\n\tinterfaces = {_HOST}/8\n\tbind interfaces only = yes\n\tserver services = ldap\n"
        files = "".join(f"\ttls {what}file = {directory}/{what}.pem\n" for what in ("cert", "key", "ca"))
        lines = self._conf.read_text().replace("[global]\n", f"{wanted}{files}", 1).splitlines()
        own = [line for line in lines if not line.strip().startswith(("server services = s3fs", "log file", "logging"))]
        self._conf.write_text("\n".join(own) + "\n")
        self.certify()
        given = {
            "conf": str(self._conf),
            "sam": str(self._sam),
            "base": _BASE,
            "groups": _GROUPS,
            "odd": _ODD,
            "many": _MANY,
            "threshold": _THRESHOLD,
            "people": {**dict.fromkeys(_PEOPLE, _PASSWORD), **dict.fromkeys(("svc-bind", "svc-wrong"), _SERVICE_PASSWORD)},
        }
        _run(["/usr/bin/python3", "-c", _SET_UP], json.dumps(given))

    def certify(self, days: int = 36_500) -> None:
        """Write certificate and key, which it reads at its start."""
        issued = self.authority.issue(_HOST, days)
        for what, octets in (
            ("cert", issued.dumpPEM()),
            ("key", issued.privateKey.dump(crypto.FILETYPE_PEM)),
            ("ca", self.authority.pem.encode()),
        ):
            path = self._directory / f"{what}.pem"
            path.write_bytes(octets)
            path.chmod(0o600)

    def start(self, stack: ExitStack) -> None:
        """Start it, and wait until it listens."""
        command = ["samba", "-F", "--no-process-group", "--debug-stdout", "-s", str(self._conf)]
        self._process = start_program(stack, command, self._directory / "samba.log")
        wait_until(lambda: all(map(_listens, (389, 636, 3268, 3269))), "Samba doesn't listen")

    def seconds(self) -> float:
        """Return the seconds of the processor that its processes have used."""
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self._process.pid:
                total += sum(map(int, fields[11:15]))
        return total / os.sysconf("SC_CLK_TCK")

    def failures(self, login: str) -> int:
        """Return how many wrong passwords it has counted of an account."""
        found = _run(["ldbsearch", "-H", str(self._sam), f"(sAMAccountName={login})", "badPwdCount"])
        counts = [int(line.partition(": ")[2]) for line in found.splitlines() if line.startswith("badPwdCount: ")]
        return counts[0] if counts else 0


def _run(command: list[str], stdin: str = "") -> str:
    ended = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {ended.returncode}: {ended.stdout[-1000:]}{ended.stderr[-3000:]}")
    return ended.stdout


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((_HOST, port)) == 0


def _listen_silently(stack: ExitStack) -> None:
    """Take connections at an address, and say nothing."""
    for port in (389, 636):
        stack.enter_context(socket.create_server((_SILENT, port), backlog=500))


class _Product:
    """The server before it, and its questions."""

    def __init__(self, stack: ExitStack, directory: Path, controller: _Controller) -> None:
        listed = ",".join(["authn", *(f"authn-ldap/{service}" for service in _services())])
        self.server = Server(
            stack, directory, f"--authenticators={listed}", "--allow-private-providers=127.0.0.0/8", "--health-interval=2"
        )
        people = ", ".join(f"!user {login}" for login in _PEOPLE)
        policy = "".join(f"- !user {login}\n" for login in _PEOPLE) + "".join(
            f"- !group {name}\n" for name in ("people", "nested", "elsewhere", "primary", "odd-group", "others")
        )
        policy += f"- !grant {{ role: !group people, members: [ {people} ] }}\n"
        first = {"uri": f"ldap://{_HOST}", "base_dn": _BASE, "bind_dn": _SERVICE_DN}
        for service, differs in _services().items():
            annotations = "\n        ".join(
                f"ldap-authn/{word}: {json.dumps(text)}" for word, text in {**first, **differs}.items()
            )
            policy += _POLICY.format(service=service, annotations=annotations)
        _demand(self.server.load(policy), 201)
        for service in _services():
            authorities = Authority().pem if service == "stranger" else controller.authority.pem
            password = "another" if service == "a-wrong" else _SERVICE_PASSWORD
            for name, value in (("bind-password", password), ("tls-ca-cert", authorities)):
                _demand(self.server.set(f"svc/authn-ldap/{service}/{name}", value), 201)

    def map(self, group: str, role: str, service: str = "corp") -> Answer:
        """Map a group of the directory."""
        path = f"/authn-ldap/{service}/acme/groups/{quote(group, safe='')}"
        return self.server.ask("POST", path, json.dumps({"roles": [f"group:{role}"]}).encode())

    def login(self, login: str = "alice", evidence: str = _PASSWORD, service: str = "corp") -> Answer:
        """Ask for an access token."""
        path = f"/authn-ldap/{service}/acme/{quote(login, safe='')}/authenticate"
        answer = ask("POST", f"{self.server.url}{path}", evidence.encode())
        return Answer(answer.status, "" if answer.status == 200 else answer.text)

    def explain(self, login: str = "alice", service: str = "corp", evidence: str = _PASSWORD) -> Answer:
        """Ask how a login would be judged."""
        path = f"/authn-ldap/{service}/acme/{quote(login, safe='')}/explain"
        fields = urlencode({"evidence": evidence, "address": "127.0.0.1"}).encode()
        return self.server.ask("POST", path, fields, **{"Content-Type": "application/x-www-form-urlencoded"})

    def groups(self, login: str = "alice", service: str = "corp") -> Answer:
        """Log in, and return the groups that the user has."""
        answer = self.login(login, service=service)
        shown = self.server.ask("GET", f"/roles/acme/user/{login}?all").text
        names = sorted(name.rpartition(":")[2] for name in json.loads(shown) if ":group:" in name)
        return Answer(answer.status, " ".join(names))


def _demand(answer: Answer, status: int) -> None:
    if answer.status != status:
        raise RuntimeError(str(answer))


def _several(product: _Product, count: int) -> Answer:
    """Log in so often at once; the status is the worst."""
    with ThreadPoolExecutor(count) as pool:
        statuses = list(pool.map(lambda _: product.login().status, range(count)))
    return Answer(max(statuses), f"{statuses.count(200)} admitted")


def _cost(product: _Product, controller: _Controller) -> Answer:
    """Log in many times; the status is 0 when the directory's processes had little to do, its health checks included."""
    before = controller.seconds()
    for _ in range(_LOGINS):
        _demand(product.login(), 200)
    each = (controller.seconds() - before) / _LOGINS
    return Answer(0 if each <= _COST else 1, f"{each:.4f} s each")


def _probed(controller: _Controller) -> Answer:
    """Wait for some rounds of the health check, and return how often it failed to bind."""
    time.sleep(25)
    count = controller.failures("svc-wrong")
    return Answer(0 if count <= 2 else 1, f"{count} failures")


def _guessed(product: _Product, controller: _Controller) -> Answer:
    """Guess more often than a directory allows; return what it has counted."""
    for number in range(8):
        product.login("guessed", f"guess {number}")
    count = controller.failures("guessed")
    return Answer(0 if count <= 3 else 1, f"{count} failures")


def _keyed(product: _Product, controller: _Controller) -> Answer:
    """Come with keys that aren't the role's own."""
    for _ in range(3):
        product.login("keyholder", new_api_key())
    count = controller.failures("keyholder")
    return Answer(0 if count == 0 else 1, f"{count} failures")


def _back(product: _Product) -> Answer:
    """Log in until that works."""
    wait_until(lambda: product.login().status == 200, "nobody can log in", 60)
    return product.login()


def _locked() -> None:
    """Lock an account, as somebody who guesses at the directory itself does."""
    bind = ["ldapwhoami", "-x", "-o", "TLS_REQCERT=never", "-H", f"ldaps://{_HOST}", "-D", "locked@corp.example.org", "-w"]
    for _ in range(_THRESHOLD):
        subprocess.run([*bind, "wrong"], capture_output=True, check=False)


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Yield the cases."""
    controller = _Controller(directory / "samba")
    running = stack.enter_context(ExitStack())
    controller.start(running)
    _listen_silently(stack)
    _locked()
    product = _Product(stack, directory, controller)

    def row(name: str, status: int, text: str, asking: Callable[[], Answer]) -> Row:
        return Row(name, Answer(status, text), asking)

    yield row("the right password", 200, "", product.login)
    yield row("a wrong password", 401, "", lambda: product.login("bob", "wrong"))
    yield row("a login in another case", 401, "", lambda: product.login("ALICE"))
    yield row("a login with a blank at its end", 401, "", lambda: product.login("alice "))
    for service, name in (
        ("ldaps", "LDAPS"),
        ("upn", "a bind by the name of a user principal"),
        ("netbios", "a bind by domain and name"),
        ("forest", "an empty base_dn at the global catalog"),
        ("dead", "a first host that refuses connections"),
        ("silent", "a first host that is silent"),
        ("silent-tls", "a first host that is silent within TLS"),
    ):
        yield row(name, 200, "", lambda service=service: product.login(service=service))  # type: ignore[misc]
    yield row("a person of odd names", 200, "", lambda: product.login("odd"))
    for service in ("ldaps-to-389", "starttls-to-636"):
        told = '"reason":"ldap-tls-failed"'
        yield row(service, 503, "", lambda service=service: product.login(service=service))  # type: ignore[misc]
        yield row(f"{service}, explained", 200, told, lambda service=service: product.explain(service=service))  # type: ignore[misc]
    yield row(
        "an authority that isn't trusted",
        200,
        "certificate verify failed: unable to get local issuer certificate",
        lambda: product.explain(service="stranger"),
    )
    yield row("a plain name where there is no base", 422, "group_base_dn", lambda: product.map("devs", "nested", "ldaps"))
    for group, role in (
        ("devs", "nested"),
        (f"CN=outer,OU=Elsewhere,{_BASE}", "elsewhere"),
        (f"CN=Domain Users,CN=Users,{_BASE}", "primary"),
        (_ODD, "odd-group"),
        ("other", "others"),
        (f"CN=absent,{_BASE}", "others"),
        (f"CN=remote,DC=other,{_BASE}", "others"),
    ):
        yield row(f"map {group}", 201, "", lambda group=group, role=role: product.map(group, role))  # type: ignore[misc]
    yield row("nested, primary and odd groups", 200, "elsewhere nested odd-group people primary", product.groups)
    yield row("the primary group alone", 200, "people primary", lambda: product.groups("bob"))
    yield row("many logins cost the directory little", 0, "", lambda: _cost(product, controller))
    yield row("20 logins at once", 200, "20 admitted", lambda: _several(product, 20))
    yield row("map the chain's", 201, "", lambda: product.map("CN=devs," + _GROUPS, "nested", "chain"))
    for login, code in _STATES.items():
        yield row(f"{login} ({code})", 401, "", lambda login=login: product.login(login))  # type: ignore[misc]
        told = '"reason":"ldap-entry-refused"'
        yield row(f"{login}, explained", 200, told, lambda login=login: product.explain(login))  # type: ignore[misc]
    yield row("keys are no passwords", 0, "0 failures", lambda: _keyed(product, controller))
    yield row("guesses stay below the directory's threshold", 0, "", lambda: _guessed(product, controller))
    yield row("the health check doesn't lock the account that searches", 0, "", lambda: _probed(controller))
    running.close()
    yield row("a directory that is away", 503, "", product.login)
    controller.certify(days=1)
    controller.start(running)
    yield row("an expired certificate", 503, "", product.login)
    told = "certificate verify failed: certificate has expired"
    yield row("an expired certificate, explained", 200, told, product.explain)
    controller.certify()
    running.close()
    controller.start(running)
    yield row("the directory is back", 200, "", lambda: _back(product))
