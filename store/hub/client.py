"""The Hub for `publish` and `pull`: Hugging Face's client, with errors that suggest a next step.

The client takes its token from HF_TOKEN or its own login, and its address from HF_ENDPOINT. This
program never takes a token as an option, stores it, or prints it: tokens are removed from the
client's messages.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from store import __version__, faults
from store.errors import FlywheelError
from store.hub.redact import REMOVED, SECRETS

if TYPE_CHECKING:
    from huggingface_hub import HfApi

log = logging.getLogger(__name__)
TIMEOUT_S = 120.0
"""Time limit for an answer of the Hub; the client itself would wait forever."""
TRIES = 4
PAUSE_S = 1.0
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
REPO = re.compile(rf"(?!.*(?:--|\.\.|\.git$)){_NAME}/{_NAME}")
"""ORG/NAME as the Hub takes it, which is less than its client takes."""
_KIND = "dataset"
_HTTP = ("httpx", "httpx2")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class RepositoryState:
    """The content of a repository at one revision."""

    revision: str
    """Its commit."""
    private: bool
    files: dict[str, tuple[str, int]]
    """Path to identity (sha256 of a large file, git's id of a small one) and size in bytes."""


class Hub:
    """A connection to the Hub."""

    def __init__(
        self, endpoint: str | None = None, token: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        import huggingface_hub
        from huggingface_hub.utils import disable_progress_bars

        if not sys.stderr.isatty():
            disable_progress_bars()
        huggingface_hub.get_session().timeout = timeout_s
        self._token = token or huggingface_hub.get_token()
        self.api: HfApi = huggingface_hub.HfApi(
            endpoint=endpoint,
            token=token,
            library_name="kernel-flywheel",
            library_version=__version__,
        )

    def find(self, repo: str, revision: str | None = None) -> RepositoryState | None:
        """Return the content of a repository at a revision (default: main), or None."""
        from huggingface_hub import RepoFile
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

        def read() -> tuple[Any, list[Any]] | None:
            try:
                info = self.api.repo_info(repo, repo_type=_KIND, revision=revision)
                tree = self.api.list_repo_tree(
                    repo, recursive=True, revision=info.sha, repo_type=_KIND
                )
                return info, list(tree)
            except (RepositoryNotFoundError, RevisionNotFoundError) as error:
                # The Hub gives the same answer for a missing repository and for one that the token
                # may not see.
                if error.response.status_code == 401 and self._token:
                    raise
                return None

        if (answer := self._ask(f"{repo} cannot be read", read)) is None:
            return None
        info, found = answer
        files = {
            one.path: (one.lfs.sha256 if one.lfs else one.blob_id, one.size)
            for one in found
            if isinstance(one, RepoFile)
        }
        return RepositoryState(revision=str(info.sha), private=bool(info.private), files=files)

    def create(self, repo: str, *, private: bool) -> RepositoryState:
        """Create a repository and return its content."""
        self._ask(
            f"{repo} cannot be made",
            lambda: self.api.create_repo(
                repo, repo_type=_KIND, private=private or None, exist_ok=True
            ),
        )
        found = self.find(repo)
        if found is None:
            raise FlywheelError(f"{repo} was made, but cannot be seen", "Run it again.")
        return found

    def commit(
        self,
        repo: str,
        parent: str,
        files: Mapping[str, Path],
        gone: Iterable[str],
        message: str,
        done: Callable[[RepositoryState], bool],
    ) -> str:
        """Add and delete files in one commit on top of a parent; return the commit.

        Content that the Hub already has, for example from an earlier attempt, is not sent again. If
        the answer to a commit is lost, `done` tells whether the commit happened; if it did not, it
        is tried again. Raises FlywheelError if somebody else has committed since.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        def send() -> str:
            head = self.find(repo)
            if head is not None and head.revision != parent and done(head):
                return head.revision
            operations = [
                *(CommitOperationAdd(path, file) for path, file in files.items()),
                *(CommitOperationDelete(path, is_folder=False) for path in gone),
            ]
            made = self.api.create_commit(
                repo, operations, commit_message=message, repo_type=_KIND, parent_commit=parent
            )
            return str(made.oid)

        return self._ask(f"nothing was published to {repo}", send)

    def tag(self, repo: str, name: str, revision: str) -> None:
        """Tag a commit; do nothing if it has the tag already."""
        self._ask(
            f"{repo} has its files at {revision}, but no tag {name}",
            lambda: self.api.create_tag(
                repo, tag=name, revision=revision, repo_type=_KIND, exist_ok=True
            ),
        )

    def download(self, repo: str, revision: str, paths: list[str]) -> Path:
        """Return a folder with files of a commit; files that were downloaded before are reused."""
        from huggingface_hub.constants import HF_HUB_CACHE

        with faults.at(HF_HUB_CACHE):  # HF_HOME names another disk
            folder = self._ask(
                f"{repo} cannot be downloaded",
                lambda: self.api.snapshot_download(
                    repo, repo_type=_KIND, revision=revision, allow_patterns=paths
                ),
            )
        return Path(str(folder))

    def _ask(self, what: str, work: Callable[[], _T]) -> _T:
        import huggingface_hub

        if huggingface_hub.is_offline_mode():  # the client would try again and again
            raise FlywheelError("HF_HUB_OFFLINE keeps the Hub from being asked", "Unset it.")
        for number in range(TRIES):
            try:
                return work()
            except FlywheelError:
                raise
            except Exception as error:
                status, causes = _find_status(error), list(faults.list_causes(error))
                libraries = {type(cause).__module__.partition(".")[0] for cause in causes}
                # The client does not expect a cut answer, or one of a proxy or a login page.
                is_unread = isinstance(error, ValueError | TypeError | LookupError)
                is_temporary = is_unread or not libraries.isdisjoint(_HTTP)
                is_temporary |= any(
                    isinstance(one, ConnectionError | TimeoutError) for one in causes
                )
                if status is not None:
                    is_temporary = status in (408, 429) or status >= 500
                if is_temporary and number < TRIES - 1:
                    log.info(
                        "the Hub did not answer (%s); trying again", self.describe_error(error)
                    )
                    time.sleep(PAUSE_S * 2**number)
                    continue
                if not is_temporary and libraries.isdisjoint(("huggingface_hub", *_HTTP)):
                    raise  # such as a full disk
                reason = self.describe_error(error)
                if status in (401, 403):
                    hint = "The Hub does not accept the token, or the token has no right to do "
                    hint += "this: run `hf auth login`, or set HF_TOKEN to another one."
                elif status in (409, 412):
                    hint = "Somebody else has changed the repository meanwhile: run it again."
                elif status == 429:
                    hint = "The Hub limits how often it is asked: run it again in some minutes."
                elif is_temporary and status is None and is_unread and "LFS" not in reason:
                    reason = "the answer cannot be read"
                    hint = "Test HF_ENDPOINT, and whether a proxy or a login page answers instead "
                    hint += "of the Hub."
                elif is_temporary:
                    hint = "Run it again: what the Hub has already is not sent twice, and half is "
                    hint += "never published."
                else:
                    hint = "The Hub refuses this. Change what it names, or test HF_ENDPOINT."
                raise FlywheelError(f"{what}: {reason}", hint) from None
        raise AssertionError("unreachable")

    def describe_error(self, error: BaseException) -> str:
        """Return the message of an error in one line, without tokens."""
        causes = [cause for cause in faults.list_causes(error) if str(cause)]
        status, said = _find_status(error), getattr(error, "server_message", None)
        if status is not None:
            text = f"HTTP {status}" + (f": {said}" if said else "")
        else:
            text = str(causes[-1] if causes else error) or type(error).__name__
        text = " ".join(text.split())
        if self._token:
            text = text.replace(self._token, REMOVED)
        return SECRETS.sub(REMOVED, text)[:300]


def compute_identity(file: Path, known: tuple[str, int] | None) -> tuple[str, int]:
    """Return the identity of a local file in the Hub's form, and its size.

    The form depends on how the Hub stores the file, which its present identity there shows.
    """
    data = file.read_bytes()
    small = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
    if known is not None and known[0] == small:
        return small, len(data)
    return hashlib.sha256(data).hexdigest(), len(data)


def _find_status(error: BaseException) -> int | None:
    responses: list[Any] = [getattr(one, "response", None) for one in faults.list_causes(error)]
    return next((int(one.status_code) for one in responses if one is not None), None)
