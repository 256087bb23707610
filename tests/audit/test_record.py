"""Records of RFC 5424."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record import MESSAGE_LIMIT, RECORD_LIMIT, VALUE_LIMIT, RecordFormatter, format_field, quote_value
from svc.model.events import AUTH, NOTICE, OUTCOME_UNKNOWN, AuditContext, Event, EventSource, Outcome
from svc.model.text import escape_unprintable
from tests.audit.parsing import Parsed, parse

NOW = 1_700_000_000.125
ORIGIN = AuditContext(EventSource("machine.example", "svc"), "acme:host:web", "192.0.2.7", "req-1")
FETCH = Event("fetch", "fetch", (("resource", "acme:variable:db"),), "fetched acme:variable:db", "fetch acme:variable:db")
SUCCESS = Outcome()

texts = st.text(st.characters(codec=None), max_size=60)
tricky = st.text('"\\]= [\n\r\x00é\u2028\u202e\ud800😀a', max_size=60)
anything = st.one_of(texts, tricky)


def written(event: Event = FETCH, outcome: Outcome = SUCCESS, origin: AuditContext = ORIGIN) -> bytes:
    """A record."""
    clock = Clock()
    clock.advance(NOW)
    [line] = RecordFormatter(origin.server, clock).format_events(origin, [event], outcome)
    return line


def read(event: Event = FETCH, outcome: Outcome = SUCCESS, origin: AuditContext = ORIGIN) -> Parsed:
    """A record, as it is read."""
    return parse(written(event, outcome, origin))


few = st.sampled_from(["a", "b"])
maybe = st.one_of(st.none(), few)
subjects = st.lists(st.tuples(few, few), max_size=2).map(tuple)
policies = st.one_of(st.none(), st.tuples(few, st.integers(1, 2)))
events = st.builds(Event, few, few, subjects, few, few, maybe, maybe, maybe, policies, st.integers(3, 4), st.integers(5, 6))
origins = st.builds(AuditContext, st.just(ORIGIN.server), maybe, few, few)


class FormTests(SynchronousTestCase):
    """What stands in a record."""

    def test_success(self) -> None:
        """A success is one line at informational: who did what to what, from where (AUD-9, AUD-11)."""
        self.assertEqual(
            written().decode(),
            "<86>1 2023-11-14T22:13:20.125Z machine.example svc req-1 fetch"
            ' [subject@43868 resource="acme:variable:db"][auth@43868 user="acme:host:web"][client@43868 ip="192.0.2.7"]'
            '[action@43868 result="success" operation="fetch"] acme:host:web fetched acme:variable:db',
        )

    def test_stale(self) -> None:
        """What was decided from memory that wasn't confirmed is marked (AUD-11, CLU-36)."""
        self.assertEqual(read(outcome=Outcome(stale=True)).data["action@43868"]["stale"], "true")
        self.assertNotIn("stale", read().data["action@43868"])

    def test_failure(self) -> None:
        """A failure is a warning that tells the code of its reason, and says that it failed (AUD-10, AUD-12)."""
        parsed = read(outcome=Outcome("forbidden"))
        self.assertEqual(parsed.priority, 84)
        self.assertEqual(parsed.data["action@43868"], {"result": "failure", "operation": "fetch", "reason": "forbidden"})
        self.assertEqual(parsed.message, "acme:host:web failed to fetch acme:variable:db: forbidden")

    def test_unknown(self) -> None:
        """What nobody knows the outcome of is neither a success nor a failure, and a warning (AUD-10, AUD-12)."""
        parsed = read(outcome=Outcome(OUTCOME_UNKNOWN))
        self.assertEqual(parsed.priority, 84)
        self.assertEqual(
            parsed.data["action@43868"], {"result": "unknown", "operation": "fetch", "reason": "outcome-unknown"}
        )
        self.assertEqual(parsed.message, "acme:host:web tried to fetch acme:variable:db, and may have: outcome-unknown")

    def test_priorities(self) -> None:
        """Facility and severity are those of the event: a policy's change is a notice, an identity check is auth
        (AUD-10).
        """
        change = Event("policy", "add", (), "added", "add", policy=("acme:policy:root", 3), severity=NOTICE)
        self.assertEqual(read(change).priority, 85)
        self.assertEqual(read(change).data["policy@43868"], {"id": "acme:policy:root", "version": "3"})
        self.assertEqual(read(Event("identity-check", "check", (), "checked", "check", facility=AUTH)).priority, 38)

    def test_authentication(self) -> None:
        """A login names the authenticator and the service, and the role that acts even before it is proven (AUD-11)."""
        login = Event("authn", "login", (), "did", "do", user="not-found", authenticator="authn-jwt", service="authn-jwt/ci")
        self.assertEqual(
            read(login, origin=AuditContext(ORIGIN.server, None, "::1", "r")).data["auth@43868"],
            {"user": "not-found", "authenticator": "authn-jwt", "service": "authn-jwt/ci"},
        )

    def test_header_fields(self) -> None:
        """A field of the header is printable ASCII without blanks, of bounded length, and a hyphen where it is empty
        (AUD-9).
        """
        self.assertEqual(
            [format_field("a b\né", 9), format_field("", 9), format_field("x" * 20, 9)], ["a?b??", "-", "x" * 9]
        )

    def test_time_goes_on(self) -> None:
        """Each record has the time of its own writing, to the millisecond (AUD-9)."""
        clock = Clock()
        clock.advance(NOW)
        records = RecordFormatter(ORIGIN.server, clock)
        stamps = []
        for step in (0.0, 0.25, 1.5):
            clock.advance(step)
            [line] = records.format_events(ORIGIN, [FETCH], SUCCESS)
            stamps.append(parse(line).timestamp[17:])
        self.assertEqual(stamps, ["20.125Z", "20.375Z", "21.875Z"])

    def test_several(self) -> None:
        """Of several events of one request each has its own subject, operation, policy and words (AUD-11)."""
        clock, changes = (
            Clock(),
            [
                Event(
                    "policy", operation, (("role", role),), f"{operation}s {role}", "", policy=(policy, 1), severity=NOTICE
                )
                for operation, role, policy in (
                    ("add", "a", "p"),
                    ("add", "b", "p"),
                    ("remove", "a", "p"),
                    ("add", "a", "q"),
                )
            ],
        )
        lines = RecordFormatter(ORIGIN.server, clock).format_events(ORIGIN, [*changes, FETCH], SUCCESS)
        alone = [
            RecordFormatter(ORIGIN.server, clock).format_events(ORIGIN, [event], SUCCESS)[0] for event in (*changes, FETCH)
        ]
        self.assertEqual(lines, alone)
        self.assertEqual(len(set(lines)), 5)


class EscapeTests(SynchronousTestCase):
    """What comes from outside."""

    @given(anything)
    def test_values_are_read_back(self, value: str) -> None:
        """Whatever a value is, a parser reads back exactly what was shown of it, and nothing else changes (AUD-13)."""
        parsed = read(Event("fetch", "fetch", (("resource", value), ("version", "1")), "did", "do"))
        self.assertEqual(parsed.data["subject@43868"], {"resource": escape_unprintable(value), "version": "1"})
        self.assertEqual(parsed.data["action@43868"]["result"], "success")

    @given(anything, anything, anything)
    def test_nothing_is_forged(self, user: str, client_ip: str, words: str) -> None:
        """Nothing from outside ends a line, adds an element or a parameter, or changes the outcome (AUD-13)."""
        event = Event("fetch", "fetch", (("resource", words),), words, words, user=user or "u", authenticator=client_ip)
        parsed = read(event, Outcome("forbidden"), AuditContext(ORIGIN.server, None, client_ip, "r"))
        self.assertEqual(
            {name: [*parameters] for name, parameters in parsed.data.items()},
            {
                "subject@43868": ["resource"],
                "auth@43868": ["user", "authenticator"],
                "client@43868": ["ip"],
                "action@43868": ["result", "operation", "reason"],
            },
        )
        self.assertEqual(parsed.data["action@43868"]["result"], "failure")
        self.assertTrue(parsed.message.isprintable())

    @given(st.lists(st.tuples(events, origins, maybe), max_size=20))
    def test_nothing_is_mistaken(self, told: list[tuple[Event, AuditContext, str | None]]) -> None:
        """What was written before makes no difference to a record."""
        clock = Clock()
        clock.advance(NOW)
        records = RecordFormatter(ORIGIN.server, clock)
        for event, origin, reason in told * 2:
            outcome = Outcome(reason)
            self.assertEqual(records.format_events(origin, [event], outcome), [written(event, outcome, origin)])

    def test_nothing_is_kept(self) -> None:
        """However many different records are written, and however long they are, nothing is kept of them."""
        records = RecordFormatter(ORIGIN.server, Clock())
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for length, count in ((1, 3000), (5000, 300)):
            for number in range(count):
                name = f"{number}" + "x" * length
                records.format_events(ORIGIN, [Event("fetch", "fetch", (("resource", name),), name, name)], SUCCESS)
        self.assertLess(tracemalloc.get_traced_memory()[0], 64 * 1024)

    def test_plain_values_stay(self) -> None:
        """Printable text stays as it is; quotation marks, brackets and backslashes are escaped once more."""
        self.assertEqual(quote_value("acme:variable:a b/c"), "acme:variable:a b/c")
        self.assertEqual(quote_value('a"b]c'), 'a\\"b\\]c')
        self.assertEqual(quote_value("zoë"), "zoë")
        self.assertEqual(quote_value("a\nb"), "a\\\\nb")

    def test_mark(self) -> None:
        """A message begins with the mark of UTF-8 where it has more than ASCII, and only there (AUD-14)."""
        self.assertIn("] \ufeffacme:host:web fetched zoë".encode(), written(Event("fetch", "fetch", (), "fetched zoë", "")))
        self.assertNotIn("\ufeff".encode(), written())

    @given(st.sampled_from(["a", '"', "é", "\n", "😀"]), st.integers(1, 5000))
    def test_lengths(self, character: str, count: int) -> None:
        """Values, messages and records are bounded in bytes, whatever they are made of; what was cut says so (AUD-14)."""
        value = character * count
        event = Event("fetch", "fetch", tuple((f"p{number}", value) for number in range(12)), value, value)
        line = written(event)
        parsed = parse(line)
        self.assertLessEqual(len(line), RECORD_LIMIT)
        whole = {escape_unprintable(value, 10**6), f"acme:host:web {escape_unprintable(value, 10**6)}"}
        for shown in (*parsed.data["subject@43868"].values(), parsed.message):
            self.assertLessEqual(len(shown.encode()), max(VALUE_LIMIT, MESSAGE_LIMIT) + 3)
            self.assertEqual(shown.endswith("…"), shown not in whole)
