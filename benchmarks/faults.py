"""Faults of a lake's server, network and clocks for `crash_servers.py`."""

from __future__ import annotations

import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

_PIECE = 1 << 16
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


class Proxy:
    """A TCP proxy on loopback that refuses, cuts and delays connections while it is troubled."""

    def __init__(self, endpoint: str, seed: int) -> None:
        """Forward to a server, such as http://127.0.0.1:8333."""
        parts = urlsplit(endpoint)
        self._server = (str(parts.hostname), int(parts.port or 80))
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._troubled_until = 0.0
        self.refused = self.delayed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def trouble(self, seconds: float) -> None:
        """Refuse or delay every connection for a while, and cut those that are open."""
        self._troubled_until = time.monotonic() + seconds

    def end(self) -> None:
        """Accept no further connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._is_troubled():
            if self._random.random() < 0.5:
                self.refused += 1
                client.close()
                return
            self.delayed += 1
            time.sleep(self._random.uniform(0.2, 2))
        try:
            server = socket.create_connection(self._server)
        except OSError:
            client.close()
            return
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source, target:
            while piece := source.recv(_PIECE):
                if self._is_troubled() and self._random.random() < 0.2:
                    self.refused += 1
                    target.sendall(piece[: len(piece) // 2])
                    return
                target.sendall(piece)

    def _is_troubled(self) -> bool:
        return time.monotonic() < self._troubled_until


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
