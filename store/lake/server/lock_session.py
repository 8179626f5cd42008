"""The session of a database that holds a lock, and that may stay open for the next one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from store.errors import LakeUnreachable

if TYPE_CHECKING:
    import psycopg

    Session = psycopg.Connection[tuple[Any, ...]]


@dataclass
class LockSession:
    """Opens sessions and takes the lock in them; `connect`, `lock` and `unlock` say how."""

    connect: Callable[[], Session]
    lock: Callable[[Session], object]
    unlock: Callable[[Session], object]
    _is_kept: bool = field(default=False, init=False)
    _idle: Session | None = field(default=None, init=False)
    """A session that waits for the next lock."""

    @contextmanager
    def keep_open(self) -> Generator[None]:
        """Take the locks within in one session, unless several are held at once."""
        self._is_kept = True
        try:
            yield
        finally:
            self._is_kept = False
            if self._idle is not None:
                self._idle.close()
                self._idle = None

    @contextmanager
    def hold(self) -> Generator[Session]:
        """Hold the lock; yield its session. The server releases it when the session ends."""
        session = self._take_idle() or self._open()
        is_free = False
        try:
            yield session
            if self._is_kept and self._idle is None:
                with suppress(LakeUnreachable):
                    self.unlock(session)
                    is_free = True
        finally:
            if is_free:
                self._idle = session
            else:
                session.close()

    def _take_idle(self) -> Session | None:
        session, self._idle = self._idle, None
        if session is None:
            return None
        try:
            self.lock(session)
        except LakeUnreachable:  # the server or the network has ended it
            session.close()
            return None
        except BaseException:
            session.close()
            raise
        return session

    def _open(self) -> Session:
        session = self.connect()
        try:
            self.lock(session)
        except BaseException:
            session.close()
            raise
        return session
