"""The page where a change of policy is tried and loaded: the first press is a dry run, the second loads what was tried."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

import attrs

from svc.model.access import pluralize_kind
from svc.model.errors import (
    Forbidden,
    InvalidName,
    InvalidParameter,
    LoadsUnavailable,
    PolicyConflict,
    PolicyInvalid,
    RecordNotFound,
    WrongDataKey,
)
from svc.model.events import Event
from svc.model.names import RoleName
from svc.model.policy_loads import (
    AccessChange,
    Batches,
    ChangeSummary,
    DocumentFaults,
    DryRun,
    Item,
    LoadMode,
    LoadResult,
    RowCounts,
    UnreportedChanges,
)
from svc.services.login import AccessTokenService
from svc.services.policy_loads import PRIVILEGES, PolicyLoadService
from svc.web.console import links, pages
from svc.web.console.rendering import PageRenderer
from svc.web.http.declarations import Answer, Parameter, ParameterSource, Unaudited
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.http.shapes import TEXT
from svc.web.routes.policies import policy_loaded

#: The most things of one sort that are counted.
MAX_COUNT: Final = 10_000
_ERRORS: Final = (
    *(RecordNotFound, Forbidden, PolicyInvalid, PolicyConflict, LoadsUnavailable, WrongDataKey),
    *(InvalidName, InvalidParameter),
)


@attrs.frozen
class Change:
    """A change that is tried or loaded, as the form sends it."""

    policy: str = "root"
    mode: LoadMode = LoadMode.APPEND
    text: str = attrs.field(default="", repr=False)

    @property
    def digest(self) -> str:
        """The digest by which the second press shows that it loads what was tried."""
        return hashlib.sha256("\0".join((self.policy, self.mode, self.text)).encode("utf-8")).hexdigest()


def _read_change(source: ParameterSource) -> Change:
    form = source.parse_form()
    try:
        mode = LoadMode(form.text("mode") or "")
    except ValueError:
        raise InvalidParameter("mode", "'mode' is append, update or replace") from None
    # Browsers end the lines of a form their own way.
    text = (form.text("text") or "").replace("\r\n", "\n")
    return Change((form.text("policy") or "").strip(), mode, text)


CHANGE: Final = Parameter("change", _read_change, TEXT, "policy, mode and text of the change")
DIGEST: Final = Parameter("digest", lambda source: source.parse_form().text("digest"), TEXT, "the digest of what was tried")


@attrs.frozen
class ChangedItemsView:
    """The effects of a change of one sort: how many, and the first of them, each with its words."""

    words: str
    count: int
    first: Sequence[tuple[str, str]]
    most: int = MAX_COUNT


@attrs.frozen
class AccessEffectsView:
    """The gains and losses of access: the first of each, and how many there are; ``untold`` is what is left out."""

    gains: Sequence[AccessChange]
    gained: int
    losses: Sequence[AccessChange]
    lost: int
    untold: UnreportedChanges

    @classmethod
    def from_dry_run(cls, result: DryRun) -> AccessEffectsView:
        """Return what a dry run has found out."""
        gains, losses = _first_and_count(result.gains), _first_and_count(result.losses)
        return cls(*gains, *losses, result.unreported)


def load_events(call: Call) -> list[Event]:
    """A change was tried, or loaded."""
    return policy_loaded(call) if "policy" in call.audit_facts else []


@attrs.frozen
class ChangePage:
    """The page of a change."""

    routes = Routes()

    renderer: PageRenderer
    loads: PolicyLoadService
    tokens: AccessTokenService

    @pages.declare_page(
        routes, links.CHANGE, errors=(Forbidden,), privileges="a role that exists", audit=Unaudited("it is an empty form")
    )
    async def show(self, call: Call) -> Response:
        """Return the form."""
        await self.tokens.check_caller(call.caller)
        return self._render_page(call, Change())

    @pages.declare_form_post(
        routes,
        links.CHANGE,
        body=pages.form_body(CHANGE),
        answers=(pages.PAGE, Answer(422, "a page with the faults", pages.PAGE.shape)),
        errors=_ERRORS,
        privileges="create on the policy to append, else update; on what else the document disposes of, its owner's",
        audit=load_events,
    )
    async def dry_run(self, call: Call, *, change: Change) -> Response:
        """Return what a load would change, or the faults of the document; nothing is loaded (CON-43)."""
        match await self._load_policy(call, change, dry_run=True):
            case DocumentFaults() as found:
                faults = list(islice(chain.from_iterable(found.faults), pages.ROWS + 1))
                return self._render_page(call, change, status=422, faults=faults)
            case DryRun() as result:
                pairs = zip(chain.from_iterable(result.before), chain.from_iterable(result.after), strict=False)
                sorts = [
                    _items_view("Created", ((item, "") for item in chain.from_iterable(result.created))),
                    _items_view("Changed", ((after, _changed_members(before, after)) for before, after in pairs)),
                    _items_view("Deleted", ((item, "") for item in chain.from_iterable(result.deleted))),
                ]
                effects = AccessEffectsView.from_dry_run(result)
                return self._render_page(call, change, sorts=sorts, effects=effects, result=result)
            case LoadResult():
                raise AssertionError("a dry run has loaded")

    @pages.declare_form_post(
        routes,
        f"{links.CHANGE}/load",
        body=pages.form_body(CHANGE, DIGEST),
        errors=_ERRORS,
        privileges="create on the policy to append, else update; on what else the document disposes of, its owner's",
        audit=load_events,
    )
    async def load_change(self, call: Call, *, change: Change, digest: str | None) -> Response:
        """Load what was tried; API keys that it makes are shown in this answer alone (CON-44)."""
        if digest != change.digest:
            raise InvalidParameter("digest", "This isn't what was tried. Try it again, then load it.")
        outcome = await self._load_policy(call, change, dry_run=False)
        assert isinstance(outcome, LoadResult)
        api_keys: Batches[tuple[str, str | None]] = outcome.api_keys
        return self.renderer.render_page(
            call.visit,
            "loaded.html",
            title="Loaded",
            policy=f"{call.caller.role.account}:policy:{change.policy}",
            version=outcome.version,
            warnings=outcome.warnings,
            api_keys=list(chain.from_iterable(api_keys)),
            sorts=_summary_words(outcome.changes),
        )

    async def _load_policy(self, call: Call, change: Change, *, dry_run: bool) -> LoadResult | DryRun | DocumentFaults:
        policy = RoleName.from_parts(call.caller.role.account, "policy", change.policy)
        call.add_audit_facts(policy=str(policy), dry_run=dry_run)
        return await self.loads.load_policy(
            call.invocation, policy, change.mode, change.text.encode("utf-8"), dry_run=dry_run
        )

    def _render_page(
        self,
        call: Call,
        change: Change,
        *,
        status: int = 200,
        faults: Sequence[object] = (),
        sorts: Sequence[ChangedItemsView] | None = None,
        effects: AccessEffectsView | None = None,
        result: DryRun | None = None,
    ) -> Response:
        return self.renderer.render_page(
            call.visit,
            "change.html",
            title="Try a change",
            status=status,
            change=change,
            modes=[(str(mode), PRIVILEGES[mode]) for mode in LoadMode],
            faults=faults[: pages.ROWS],
            is_cut=len(faults) > pages.ROWS,
            sorts=sorts,
            effects=effects,
            most=MAX_COUNT,
            warnings=() if result is None else result.warnings,
            readers=None if result is None else result.readers,
        )


def _first_and_count(changes: Batches[AccessChange]) -> tuple[Sequence[AccessChange], int]:
    """Return the first changes, and how many there are, as far as they are counted."""
    every = chain.from_iterable(changes)
    first = list(islice(every, pages.ROWS))
    return first, len(first) + sum(1 for _ in islice(every, MAX_COUNT - len(first)))


def _items_view(words: str, items: Iterator[tuple[Item, str]]) -> ChangedItemsView:
    """Return how many items there are, and the first ones; parts of an item that is long count no more than it."""
    whole = ((f"{item.get('type', 'thing')} {item['identifier']}", more) for item, more in items if "identifier" in item)
    first = list(islice(whole, pages.ROWS))
    rest = sum(1 for _ in islice(whole, MAX_COUNT - len(first)))
    return ChangedItemsView(words, len(first) + rest, first)


def _summary_words(changes: ChangeSummary | None) -> list[str]:
    """Return the sorts of changes that a load made, with how many there are of each kind."""
    if changes is None:
        return []
    sorts = {
        "Created": changes.created,
        "Changed": changes.changed,
        "Deleted": changes.deleted,
        "Unchanged": changes.unchanged,
        "Nothing to remove, as it isn't there": changes.absent,
    }
    return [f"{words}: {_count_words(counts)}." for words, counts in sorts.items() if counts]


def _count_words(counts: RowCounts) -> str:
    numbers = [(each.count, each.kind) for each in counts.records]
    numbers += [(counts.grants, "grant"), (counts.permissions, "permission")]
    return ", ".join(f"{number} {pluralize_kind(kind, number)}" for number, kind in numbers if number)


def _changed_members(before: Item, after: Item) -> str:
    return ", ".join(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))
