"""What a load changed, as events."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.model.names import root_policy
from svc.model.policy_loads import (
    AnnotationRow,
    Changes,
    MembershipRow,
    PermissionRow,
    ResourceRow,
    RestrictionRow,
    Rows,
)
from svc.policy.load_events import make_load_events

G, U, V = "acme:group:g", "acme:user:u", "acme:variable:v"


class LoadEventsTests(SynchronousTestCase):
    """Changes of every sort."""

    def told(self, changes: Changes) -> list[tuple[str, dict[str, str], str]]:
        """Operation, subject and words of each event."""
        return [
            (event.operation, dict(event.subject), event.did) for event in make_load_events(root_policy("acme"), 7, changes)
        ]

    def test_every_sort(self) -> None:
        """Each row is an event, a thing with a role two, and says what was added (AUD-5)."""
        rows = Rows(
            (ResourceRow(G, U), ResourceRow(V, U)),
            (MembershipRow(G, U, True, True), MembershipRow(G, U, False, True), MembershipRow(G, U, False, False)),
            (PermissionRow(V, "read", G),),
            (AnnotationRow(V, "note", "a text"),),
            (RestrictionRow(U, "10.0.0.0/8"),),
        )
        self.assertEqual(
            self.told(Changes(create=rows)),
            [
                ("add", {"role": G}, f"added role {G}"),
                ("add", {"resource": G, "owner": U}, f"added resource {G}"),
                ("add", {"resource": V, "owner": U}, f"added resource {V}"),
                ("add", {"role": G, "owner": U}, f"added ownership of {U} in {G}"),
                ("add", {"role": G, "member": U, "admin": "true"}, f"added membership of {U} in {G}"),
                ("add", {"role": G, "member": U}, f"added membership of {U} in {G}"),
                ("add", {"resource": V, "role": G, "privilege": "read"}, f"added permission of {G} to read on {V}"),
                ("add", {"resource": V, "annotation": "note"}, f"added annotation note on {V}"),
                ("add", {"role": U, "cidr": "10.0.0.0/8"}, f"added restriction of {U} to 10.0.0.0/8"),
            ],
        )

    def test_changes_and_removals(self) -> None:
        """A new owner is a change of the resource alone; what goes is removed (AUD-5)."""
        told = self.told(Changes(update=Rows((ResourceRow(G, U),)), delete=Rows((ResourceRow(U, G),))))
        self.assertEqual([operation for operation, _, _ in told], ["change", "remove", "remove"])
        self.assertEqual(
            [words for _, _, words in told], [f"changed resource {G}", f"removed role {U}", f"removed resource {U}"]
        )

    def test_version(self) -> None:
        """Each event names the policy and the version that the load made; nothing changed is no event (AUD-5)."""
        changes = Changes(create=Rows((ResourceRow(V, U),)))
        self.assertEqual(
            [event.policy for event in make_load_events(root_policy("acme"), 7, changes)], [("acme:policy:root", 7)]
        )
        self.assertEqual(self.told(Changes()), [])
