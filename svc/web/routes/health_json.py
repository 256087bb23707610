"""The health report in the form of the IETF's draft "Health Check Response Format for HTTP APIs".

It is draft-inadarei-api-health-check-06, made of the document that ``/health`` answers, and says no more than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from svc.health.checks_loop import HealthReport
from svc.model.clocks import iso_seconds
from svc.web.http.shapes import ANY, BOOLEAN, TEXT, Shape, array_shape, mapping_shape, object_shape, string_shape

#: The media type of this form.
MEDIA_TYPE: Final = "application/health+json"

_CHECK: Final = object_shape(
    {"componentType": TEXT, "observedValue": ANY, "status": TEXT}, {"time": TEXT, "observedUnit": TEXT}
)

#: The shapes of both forms of a report.
HEALTH_JSON: Final = attrs.evolve(
    object_shape({"status": string_shape("pass", "fail"), "checks": mapping_shape(array_shape(_CHECK))}),
    media_type=MEDIA_TYPE,
)
REPORT: Final = object_shape(
    {
        "services": Shape("object", members={"ok": BOOLEAN}, items=TEXT),
        "database": object_shape({"ok": BOOLEAN, "connect": mapping_shape(TEXT), "replication_status": mapping_shape(ANY)}),
        "ok": BOOLEAN,
    },
    {"cluster": object_shape({"ok": BOOLEAN, "primaries": TEXT}), "degraded": BOOLEAN},
)

_UNITS: Final = {"_bytes": "bytes", "_seconds": "s"}


def health_json(report: HealthReport) -> dict[str, Any]:
    """Return the document: ``status`` is ``pass`` or ``fail``; ``checks`` has a list of one for each thing measured."""
    return {"status": _pass_or_fail(report.ok), "checks": dict(_checks_json(report))}


def _checks_json(report: HealthReport) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    document = report.document()
    time = {} if report.moment is None else {"time": iso_seconds(report.moment)}
    for name, value in document["services"].items():
        if isinstance(value, str):
            yield f"{name}:state", [_check_json("component", value == "ok", value) | time]
    database = document["database"]
    for name, value in database["connect"].items():
        yield f"database:{name}", [_check_json("datastore", value == "ok", value) | time]
    for name, value in document.get("cluster", {}).items():
        if isinstance(value, str):
            yield f"cluster:{name}", [_check_json("system", value == "ok", value)]
    for name, value in database["replication_status"].items():
        if value is not None:
            unit = next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), None)
            check = _check_json("datastore", database["ok"], value) | ({} if unit is None else {"observedUnit": unit})
            yield f"database:{name}", [check | time]


def _check_json(kind: str, passed: bool, value: object) -> dict[str, Any]:
    return {"componentType": kind, "observedValue": value, "status": _pass_or_fail(passed)}


def _pass_or_fail(passed: bool) -> str:
    return "pass" if passed else "fail"
