"""Clocks that are off, and waiting, for `crash_servers.py`."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset(void) { const char *s = getenv("CLOCK_OFFSET_S"); return s ? atol(s) : 0; }

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, at);
    if (!failed && clock == CLOCK_REALTIME) at->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec, at->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return at ? (*at = now.tv_sec) : now.tv_sec;
}
"""


def build_clock(folder: Path) -> Path:
    """Compile a library that, preloaded, shifts a process's clock by CLOCK_OFFSET_S seconds."""
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(_CLOCK)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so; return whether it was in time."""
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True
