"""The shared memory of all processes of a server: the mark of the audit, and the slots of commits.

It is a file without a name, which lives as long as a process that has it open.
"""

from __future__ import annotations

import mmap
import os
import tempfile

from svc.storage.cache.commit_counters import BYTES, WIDTH, CommitCounters


def make_shared_page(processes: int) -> int:
    """Return the descriptor of a page with slots for so many processes, after the mark's own page."""
    size = mmap.PAGESIZE + -(-processes * WIDTH * BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("svc")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.write(descriptor, bytes(size))
    return descriptor


def map_commit_counters(descriptor: int, own: int) -> CommitCounters:
    """Return the slots of a page, of which the process number ``own`` writes its own."""
    size = os.fstat(descriptor).st_size - mmap.PAGESIZE
    page = mmap.mmap(descriptor, size, offset=mmap.PAGESIZE)
    return CommitCounters(memoryview(page).cast("Q"), own)
