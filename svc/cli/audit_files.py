"""The audit read from the servers' own files: searched, and followed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from svc.audit.record_files import FileFollower, RecordQuery, event_of, last_lines, search_files
from svc.cli.audit import HEADER, event_row, print_continuation, print_events
from svc.cli.table import print_result
from svc.model.clocks import iso_milliseconds

PrintEvents = Callable[[Sequence[dict[str, Any]]], object]


def work(
    as_json: bool,
    lines: int = 0,
    limit: int = 0,
    offset: int = 0,
    files: Sequence[Path] = (),
    file: Path | None = None,
    after: str | None = None,
    changes: bool = False,
    **filters: Any,
) -> None:
    """Follow a file, or search files; arguments are the options of ``svc audit tail`` and ``search_files``."""
    if after is not None or changes:
        raise click.UsageError("--after and --changes ask a server: they can't be given with --file")
    query = _build_query(**filters)
    if file is not None:
        follow_file(file, query, lines, lambda events: print_events(events, as_json))
        return
    events, count = search_audit_files(files, query, limit, offset)
    print_result(as_json, events, HEADER, map(event_row, events))
    print_continuation(count > offset + len(events), offset + limit)


def _build_query(since: float | None, until: float | None, **filters: str | None) -> RecordQuery:
    return RecordQuery(
        since="" if since is None else _format_time(since),
        until="~" if until is None else _format_time(until),
        user=filters["auth_user"],
        request=filters["procid"],
        operation=filters["action_operation"],
        **{name: filters[name] for name in ("what", "outcome", "msgid", "client_ip", "role", "resource", "about")},
    )


def _format_time(seconds: float) -> str:
    return iso_milliseconds(seconds).replace("+00:00", "Z")


def search_audit_files(
    files: Sequence[Path], query: RecordQuery, limit: int, offset: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the events that are found in files, newest first, and how many there are altogether.

    :raises click.ClickException: a file can't be read.
    """
    try:
        found = search_files(files, query, limit, offset)
    except OSError as error:
        raise _read_error(files[0] if error.filename is None else error.filename, error) from None
    return [event_of(line) for line in found.lines], found.count


def find_request_events(files: Sequence[Path], request_id: str, limit: int) -> list[dict[str, Any]]:
    """Return the events of one request in files, newest first.

    :raises click.ClickException: a file can't be read.
    """
    return search_audit_files(files, RecordQuery(request=request_id), limit, 0)[0]


def follow_file(
    path: Path, query: RecordQuery, lines: int, tell: PrintEvents, pause: Callable[[], object] = lambda: time.sleep(1.0)
) -> None:
    """Show the last events of a file, newest first, then each that comes, until Ctrl-C; it goes on in a file that takes its
    place.
    """
    fits, follower = query.make_matcher(), FileFollower(path)

    def parse_events(found: Iterable[bytes]) -> list[dict[str, Any]]:
        """Return those that are looked for."""
        return [event_of(line) for line in found][::-1]

    try:
        tell(parse_events(last_lines(filter(fits, follower.read_new_lines()), lines)))
        while True:
            pause()
            tell(parse_events(filter(fits, follower.read_new_lines())))
    except OSError as error:
        raise _read_error(path, error) from None
    except KeyboardInterrupt:
        return
    finally:
        follower.close()


def _read_error(path: Path | str, error: OSError) -> click.ClickException:
    return click.ClickException(f"{path} can't be read: {error.strerror or error}")
