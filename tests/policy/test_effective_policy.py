"""What is told of rows; ``tests/web/test_effective.py`` has it load back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import NATIVE
from svc.model.errors import PolicyInvalid
from svc.model.names import ROLE_KINDS, RoleName
from svc.model.policy_loads import AnnotationRow, EffectivePolicyRows, MembershipRow, PermissionRow, ResourceRow, Rows
from svc.policy.effective_policy import TAGS, build_statements, make_query
from svc.policy.grammar import parse_document
from svc.policy.resolve import resolve_statements
from svc.policy.resolved_policy import ResolvedPolicy
from svc.policy.statement_writer import write_yaml
from tests.policy.world import ACCOUNT, ADMIN, ROOT, policy_named, row_sets

_IDENTIFIERS = st.lists(st.sampled_from(["a", "b", "/", "/", "..", "@", "-", " ", "\n"]), min_size=1, max_size=6).map(
    "".join
)
_NAMES = st.builds(lambda kind, ident: f"{ACCOUNT}:{kind}:{ident}", st.sampled_from([*TAGS, "configuration"]), _IDENTIFIERS)
_TEXTS = st.sampled_from(["x", "", "../y", "a/../b", "..", "no", "1"])


@st.composite
def _rows(draw: st.DrawFn) -> Rows:
    """Rows as no document may have made them, of things called as nobody would."""
    names = draw(st.lists(_NAMES, max_size=8, unique=True))
    roles = [ADMIN, str(ROOT), *(name for name in names if name.split(":", 2)[1] in ROLE_KINDS), "other:user:eve"]
    some, role = st.sampled_from(names or [ADMIN]), st.sampled_from(roles)
    return Rows(
        tuple(ResourceRow(name, draw(role)) for name in names),
        tuple(draw(st.lists(st.builds(MembershipRow, role, role, st.just(False), st.booleans()), max_size=4))),
        tuple(draw(st.sets(st.builds(PermissionRow, some, _TEXTS, role), max_size=4))),
        tuple(AnnotationRow(draw(some), name, draw(_TEXTS)) for name in draw(st.sets(st.sampled_from(["n", " ", "m"])))),
    )


def _resolved(policy: RoleName, rows: Rows) -> ResolvedPolicy:
    """What is told of rows, and what that means when it is loaded into root."""
    text = "".join(write_yaml(build_statements(policy, EffectivePolicyRows(rows), {}, NATIVE)))
    return resolve_statements(parse_document(text), ROOT, NATIVE)


class TruthTests(SynchronousTestCase):
    """What is told is true, and as much as documents can say."""

    @given(_rows(), st.one_of(st.just("root"), _IDENTIFIERS))
    def test_whatever_is_told_is_true(self, rows: Rows, identifier: str) -> None:
        """Of whatever rows, a document is told that can be read, and says nothing that isn't so (POL-77)."""
        policy = policy_named(identifier)
        own = () if str(policy) in dict(rows.resources) else (ResourceRow(str(policy), ADMIN),)
        rows = Rows((*rows.resources, *own), rows.memberships, rows.permissions, rows.annotations)
        try:
            resolved = _resolved(policy, rows)
        except PolicyInvalid as fault:
            # Owners in a circle can't be told, and can't come from one document.
            self.assertIn("Dependency cycle", fault.message)
            return
        granted = Rows(
            resolved.rows.resources,
            tuple(row for row in resolved.rows.memberships if not row.ownership),
            resolved.rows.permissions,
            resolved.rows.annotations,
        )
        known, told = row_sets(rows), row_sets(granted)
        strongest = {(row.role, row.member): True for row in rows.memberships if row.admin_option}
        known["memberships"] |= {MembershipRow(*key, False, True) for key in strongest}
        for sort, true in known.items():
            self.assertLessEqual(told[sort], true, sort)

    def test_names_that_cannot_be_told(self) -> None:
        """Left out is what no document can declare or refer to, with what is said of it; the rest is told."""
        untold = ["user: ", "host:/a", "configuration:c"]
        owned_by_untold = ResourceRow("acct:host:h", "acct:group:a/../b")
        rows = Rows(
            (*(ResourceRow(f"acct:{name}", ADMIN) for name in [*untold, "group:a/../b", "group:g"]), owned_by_untold),
            (
                MembershipRow("acct:group:g", "acct:group:a/../b", False, False),
                MembershipRow("acct:group:g", "other:user:eve", False, False),
                MembershipRow("acct:group:a/../b", "acct:group:g", False, False),
            ),
            (
                PermissionRow("acct:host:/a", "read", "acct:group:g"),
                PermissionRow("acct:configuration:c", "read", "acct:group:g"),
            ),
            (AnnotationRow("acct:group:g", "path", "x/../y"), AnnotationRow("acct:group:g", "note", "x..y")),
        )
        resolved = _resolved(ROOT, rows)
        self.assertEqual({row.resource for row in resolved.rows.resources}, {"acct:group:a/../b", "acct:group:g"})
        granted = [row for row in resolved.rows.memberships if not row.ownership]
        self.assertEqual(granted, [MembershipRow("acct:group:a/../b", "acct:group:g", False, False)])
        self.assertEqual(resolved.rows.permissions, ())
        self.assertEqual(resolved.rows.annotations, (AnnotationRow("acct:group:g", "note", "x..y"),))

    def test_what_is_asked(self) -> None:
        """What may belong to a policy without lying beneath it is asked for: its namesakes, and users by their suffix."""
        query = make_query(policy_named("a/b"), 3, 10)
        self.assertEqual((query.depth, query.limit, query.suffix), (3, 10, "@a-b"))
        for name in ("layer:a/b", "host:a/b", "user:b@a"):
            self.assertIn(f"acct:{name}", query.namesakes)
        self.assertNotIn("acct:policy:a/b", query.namesakes)
