"""Read by Python at the start of a server whose clock a test sets: the time is what it is, plus what a file says.

The file is named by ``TESTS_CLOCK_OFFSET`` and holds seconds. It is read again when it has been replaced.
"""

import os
import time

_real = time.time
_path = os.environ.get("TESTS_CLOCK_OFFSET")
_read: dict[str, float] = {"stamp": -1.0, "offset": 0.0}


def _shifted() -> float:
    assert _path is not None
    stamp = float(os.stat(_path).st_mtime_ns)
    if stamp != _read["stamp"]:
        with open(_path, encoding="ascii") as file:
            _read["offset"] = float(file.read())
        _read["stamp"] = stamp
    return _real() + _read["offset"]


if _path:
    time.time = _shifted
