"""A proxy between a lake and its object storage, for tests of what fails there."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit

_PIECE = 1 << 16


class Proxy:
    """A TCP proxy on loopback that refuses, cuts and delays connections while it is troubled."""

    def __init__(self, endpoint: str, seed: int = 0) -> None:
        """Forward to a server, such as http://127.0.0.1:8333."""
        parts = urlsplit(endpoint)
        self._server = (str(parts.hostname), int(parts.port or 80))
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._troubled_until = 0.0
        self.answer: bytes | None = None
        """What to answer every connection instead of forwarding it."""
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
        if self.answer is not None:
            with client:
                client.recv(_PIECE)
                client.sendall(self.answer)
            return
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
                if self.answer is not None:
                    return
                if self._is_troubled() and self._random.random() < 0.2:
                    self.refused += 1
                    target.sendall(piece[: len(piece) // 2])
                    return
                target.sendall(piece)

    def _is_troubled(self) -> bool:
        return time.monotonic() < self._troubled_until
