"""A Hub on loopback: what Hugging Face's client asks of one to publish and read datasets.

It keeps commits, tags, and large files by their sha256 in memory, checks tokens, answers ranges,
and can be told to fail: `server.faults.append(Fault("PUT", "/lfs/", "status", 500))`. It shows
that our calls and the client's fit this protocol; how the real Hub behaves it cannot show.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

TOKEN = "hf_" + "w" * 34
LFS_ENDS = (".parquet", ".sqlite", ".png")


@dataclass
class Fault:
    """Something that goes wrong with the next requests that match.

    kind: status (answered with `value`), page (answered with HTML, as by the login page of a
    network), hang (silent for `value` seconds), cut (the connection ends inside the request's or
    the answer's body), lost (done, but the answer is cut), corrupt (one byte of the body is
    another).
    """

    method: str
    path: str
    kind: str
    value: float = 500
    times: int = 1
    skip: int = 0
    """Matching requests that pass before."""


@dataclass
class Repo:
    private: bool
    commits: dict[str, dict[str, tuple[str, bytes]]] = field(default_factory=dict)
    """Commit to path to (lfs or regular, content)."""
    main: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def add(self, files: dict[str, tuple[str, bytes]], message: str) -> str:
        oid = hashlib.sha1(f"{self.main}{message}{len(self.commits)}".encode()).hexdigest()
        self.commits[oid] = files
        self.main = oid
        self.messages.append(message)
        return oid

    def resolve(self, revision: str) -> str | None:
        name = unquote(revision)
        if name in ("main", "HEAD"):
            return self.main
        return self.tags.get(name) or (name if name in self.commits else None)


def git_id(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class HubServer:
    """The server in a thread of its own; a context manager."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.sent: list[str] = []
        """sha256 of every large file that was received whole, in order."""
        self.received_bytes = 0
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            self._app, host="127.0.0.1", port=self.port, log_level="critical",
            lifespan="off", ws="none", interface="asgi3", timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        one = "/{kind:str}/{org:str}/{name:str}"
        self._routes = Starlette(
            routes=[
                Route("/api/whoami-v2", self._whoami),
                Route("/api/validate-yaml", self._validate, methods=["POST"]),
                Route("/api/repos/create", self._create, methods=["POST"]),
                Route(f"/api{one}/preupload/{{rev:path}}", self._preupload, methods=["POST"]),
                Route(f"/api{one}/commit/{{rev:path}}", self._commit, methods=["POST"]),
                Route(f"/api{one}/tag/{{rev:path}}", self._tag, methods=["POST"]),
                Route(f"/api{one}/tree/{{rev:str}}", self._tree),
                Route(f"/api{one}/tree/{{rev:str}}/{{path:path}}", self._tree),
                Route(f"/api{one}/paths-info/{{rev:path}}", self._paths, methods=["POST"]),
                Route(f"/api{one}/refs", self._refs),
                Route(f"/api{one}/revision/{{rev:path}}", self._info),
                Route(f"/api{one}", self._info),
                Route(f"{one}.git/info/lfs/objects/batch", self._batch, methods=["POST"]),
                Route("/lfs/{oid:str}", self._put, methods=["PUT"]),
                Route(f"{one}/resolve/{{rev:str}}/{{path:path}}", self._resolve),
            ]
        )

    def __enter__(self) -> HubServer:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        """Return the files of a repository by path, but for git's own."""
        one = self.repos[repo]
        oid = one.resolve(revision)
        assert oid is not None
        return {p: data for p, (_, data) in one.commits[oid].items() if p != ".gitattributes"}

    def hold(self, name: str, files: dict[str, bytes]) -> None:
        """Put a repository in place as if it had been published long ago."""
        kept = {
            path: ("lfs" if path.endswith(LFS_ENDS) else "regular", data)
            for path, data in files.items()
        }
        repo = self.repos[name] = Repo(private=False)
        repo.tags["v1"] = repo.add(kept, "an edition")

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        path = f"{scope['method']} {scope['path']}"
        self.requests.append(path)
        fault = self._fault(scope)
        if fault is None:
            await self._routes(scope, receive, send)
        elif fault.kind == "status":
            await _drain(receive)
            body = {"error": f"fault {fault.value}"}
            await JSONResponse(body, status_code=int(fault.value))(scope, receive, send)
        elif fault.kind == "page":
            await _drain(receive)
            await HTMLResponse("<h1>Log in to the network</h1>")(scope, receive, send)
        elif fault.kind == "hang":
            await asyncio.sleep(fault.value)
            raise ConnectionAbortedError
        elif fault.kind == "cut" and scope["method"] in ("PUT", "POST"):
            await receive()
            await send(_start(200, [(b"content-length", b"10")]))
        elif fault.kind == "lost":
            await self._routes(scope, receive, _ignore_answer)
            await send(_start(200, [(b"content-length", b"10")]))
        else:
            await self._routes(scope, receive, _Spoiled(send, fault.kind))

    def _fault(self, scope: Any) -> Fault | None:
        for fault in self.faults:
            if fault.method == scope["method"] and re.search(fault.path, scope["path"]):
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fault
        return None

    def _refuse(self, request: Request, repo: Repo | None, *, write: bool) -> Response | None:
        given = request.headers.get("authorization")
        known = given == f"Bearer {TOKEN}"
        if given is not None and not known:
            return JSONResponse({"error": "Invalid credentials"}, status_code=401)
        if repo is None or (repo.private and not known):
            headers = {"x-error-code": "RepoNotFound"}
            status = 404 if known else 401
            return JSONResponse({"error": "Repository not found"}, status, headers)
        if write and not known:
            return JSONResponse({"error": "Unauthorized"}, status_code=401)
        return None

    def _repo(self, request: Request) -> tuple[str, Repo | None]:
        given = request.path_params
        name = f"{given['org']}/{given['name']}"
        return name, self.repos.get(name)

    def _find_revision(
        self, request: Request, *, write: bool = False
    ) -> tuple[Repo, str] | Response:
        _, repo = self._repo(request)
        refused = self._refuse(request, repo, write=write)
        if refused is not None:
            return refused
        assert repo is not None
        oid = repo.resolve(request.path_params.get("rev", "main"))
        if oid is None:
            headers = {"x-error-code": "RevisionNotFound"}
            return JSONResponse({"error": "Invalid rev id"}, 404, headers)
        return repo, oid

    async def _whoami(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"error": "Invalid credentials"}, status_code=401)
        return JSONResponse({"type": "user", "name": "lab", "orgs": []})

    async def _validate(self, request: Request) -> Response:
        await request.body()
        return JSONResponse({"errors": [], "warnings": []})

    async def _create(self, request: Request) -> Response:
        asked = await request.json()
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"error": "Invalid credentials"}, status_code=401)
        name = f"{asked['organization'] or 'lab'}/{asked['name']}"
        url = f"{self.url}/datasets/{name}"
        if name in self.repos:
            return JSONResponse({"error": "You already created this repo", "url": url}, 409)
        repo = self.repos[name] = Repo(private=asked.get("visibility") == "private")
        repo.add({".gitattributes": ("regular", b"*.parquet filter=lfs\n")}, "initial commit")
        return JSONResponse({"url": url})

    async def _info(self, request: Request) -> Response:
        found = self._find_revision(request)
        if isinstance(found, Response):
            return found
        repo, oid = found
        name, _ = self._repo(request)
        return JSONResponse(
            {
                "_id": "0" * 24, "id": name, "author": name.split("/")[0], "sha": oid,
                "private": repo.private, "gated": False, "disabled": False, "downloads": 0,
                "likes": 0, "tags": [], "lastModified": "2026-01-01T00:00:00.000Z",
                "createdAt": "2026-01-01T00:00:00.000Z",
                "siblings": [{"rfilename": path} for path in repo.commits[oid]],
            }
        )  # fmt: skip

    async def _preupload(self, request: Request) -> Response:
        found = self._find_revision(request, write=True)
        if isinstance(found, Response):
            return found
        repo, oid = found
        held = repo.commits[oid]
        files = [
            {
                "path": one["path"],
                "uploadMode": "lfs" if one["path"].endswith(LFS_ENDS) else "regular",
                "shouldIgnore": False,
                "oid": _identity(held[one["path"]]) if one["path"] in held else None,
            }
            for one in (await request.json())["files"]
        ]
        return JSONResponse({"files": files})

    async def _batch(self, request: Request) -> Response:
        _, repo = self._repo(request)
        refused = self._refuse(request, repo, write=True)
        if refused is not None:
            return refused
        objects: list[dict[str, Any]] = []
        for one in (await request.json())["objects"]:
            entry = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.objects:
                href = f"{self.url}/lfs/{one['oid']}"
                entry["actions"] = {"upload": {"href": href, "header": {}}}
            objects.append(entry)
        return JSONResponse({"transfer": "basic", "objects": objects})

    async def _put(self, request: Request) -> Response:
        data = await request.body()
        self.received_bytes += len(data)
        oid = request.path_params["oid"]
        if sha256(data) != oid:
            return JSONResponse({"error": "sha256 differs"}, status_code=400)
        self.objects[oid] = data
        self.sent.append(oid)
        return Response(status_code=200)

    async def _commit(self, request: Request) -> Response:
        found = self._find_revision(request, write=True)
        if isinstance(found, Response):
            return found
        repo, oid = found
        files = dict(repo.commits[oid])
        message = ""
        for line in (await request.body()).splitlines():
            one = json.loads(line)
            value = one["value"]
            if one["key"] == "header":
                message = value["summary"]
                if value.get("parentCommit", repo.main) != repo.main:
                    error = {"error": "A commit has happened since. Please refresh and try again."}
                    return JSONResponse(error, status_code=412)
            elif one["key"] == "file":
                files[value["path"]] = ("regular", base64.b64decode(value["content"]))
            elif one["key"] == "lfsFile":
                if value["oid"] not in self.objects:
                    return JSONResponse({"error": f"no object {value['oid']}"}, status_code=400)
                files[value["path"]] = ("lfs", self.objects[value["oid"]])
            elif one["key"] == "deletedFile" and files.pop(value["path"], None) is None:
                return JSONResponse({"error": "no such file"}, status_code=404)
        name, _ = self._repo(request)
        made = repo.add(files, message)
        url = f"{self.url}/datasets/{name}/commit/{made}"
        return JSONResponse(
            {"success": True, "commitUrl": url, "commitOid": made, "hookOutput": ""}
        )

    async def _tag(self, request: Request) -> Response:
        found = self._find_revision(request, write=True)
        if isinstance(found, Response):
            return found
        repo, oid = found
        name = (await request.json())["tag"]
        if name in repo.tags:
            return JSONResponse({"error": "Tag reference exists already"}, status_code=409)
        repo.tags[name] = oid
        return JSONResponse({})

    async def _refs(self, request: Request) -> Response:
        found = self._find_revision(request)
        if isinstance(found, Response):
            return found
        repo, _ = found
        tags = [
            {"name": name, "ref": f"refs/tags/{name}", "targetCommit": oid}
            for name, oid in repo.tags.items()
        ]
        main = {"name": "main", "ref": "refs/heads/main", "targetCommit": repo.main}
        return JSONResponse({"branches": [main], "tags": tags, "converts": []})

    async def _tree(self, request: Request) -> Response:
        found = self._find_revision(request)
        if isinstance(found, Response):
            return found
        repo, oid = found
        below = unquote(request.path_params.get("path", "")).strip("/")
        recursive = request.query_params.get("recursive", "").lower() in ("true", "1")
        prefix = f"{below}/" if below else ""
        entries: list[dict[str, Any]] = []
        folders: dict[str, None] = {}
        for path, held in sorted(repo.commits[oid].items()):
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            depth = len(parts) if recursive else 2
            folders |= dict.fromkeys(
                prefix + "/".join(parts[:n]) for n in range(1, min(len(parts), depth))
            )
            if recursive or len(parts) == 1:
                entries.append(_entry(path, held))
        entries += [
            {"type": "directory", "path": one, "size": 0, "oid": "0" * 40} for one in folders
        ]
        if below and not entries:
            return JSONResponse({"error": "no entry"}, 404, {"x-error-code": "EntryNotFound"})
        return JSONResponse(entries)

    async def _paths(self, request: Request) -> Response:
        found = self._find_revision(request)
        if isinstance(found, Response):
            return found
        repo, oid = found
        kind = request.headers.get("content-type", "")
        asked = await request.json() if "json" in kind else dict(await request.form())
        wanted = asked["paths"] if isinstance(asked["paths"], list) else [asked["paths"]]
        held = repo.commits[oid]
        entries = [_entry(path, held[path]) for path in wanted if path in held]
        entries += [
            _folder(path)
            for path in wanted
            if path not in held and any(one.startswith(f"{path}/") for one in held)
        ]
        return JSONResponse(entries)

    async def _resolve(self, request: Request) -> Response:
        found = self._find_revision(request)
        if isinstance(found, Response):
            return found
        repo, oid = found
        held = repo.commits[oid].get(unquote(request.path_params["path"]))
        if held is None:
            headers = {"x-error-code": "EntryNotFound", "x-repo-commit": oid}
            return JSONResponse({"error": "Entry not found"}, 404, headers)
        data = held[1]
        identity = _identity(held)
        headers = {
            "etag": f'"{identity}"', "x-linked-etag": f'"{identity}"', "x-repo-commit": oid,
            "x-linked-size": str(len(data)), "accept-ranges": "bytes",
            "content-type": "application/octet-stream",
        }  # fmt: skip
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if request.method == "HEAD" or not asked:
            if request.method == "HEAD":
                headers["content-length"] = str(len(data))
                return Response(b"", 200, headers)
            return Response(data, 200, headers)
        start = int(asked[1]) if asked[1] else len(data) - int(asked[2])
        stop = int(asked[2]) + 1 if asked[1] and asked[2] else len(data)
        if start >= len(data):
            return Response(b"", 416, {"content-range": f"bytes */{len(data)}"})
        headers["content-range"] = f"bytes {start}-{min(stop, len(data)) - 1}/{len(data)}"
        return Response(data[start:stop], 206, headers)


class _Spoiled:
    """Sends an answer whose body is cut in the middle, or has one byte changed."""

    def __init__(self, send: Any, kind: str) -> None:
        self._send, self._kind = send, kind

    async def __call__(self, message: Any) -> None:
        body = message.get("body", b"")
        if message["type"] == "http.response.body" and body:
            if self._kind == "cut":
                await self._send({**message, "body": body[: len(body) // 2], "more_body": True})
                raise ConnectionAbortedError
            middle = len(body) // 2
            changed = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
            message = {**message, "body": changed}
        await self._send(message)


async def _ignore_answer(_: Any) -> None:
    """Take an answer that nobody hears."""


async def _drain(receive: Any) -> None:
    while (await receive()).get("more_body"):
        pass


def _start(status: int, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def _identity(held: tuple[str, bytes]) -> str:
    return sha256(held[1]) if held[0] == "lfs" else git_id(held[1])


def _folder(path: str) -> dict[str, Any]:
    return {"type": "directory", "path": path, "size": 0, "oid": "0" * 40}


def _entry(path: str, held: tuple[str, bytes]) -> dict[str, Any]:
    mode, data = held
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": git_id(data)}
    if mode == "lfs":
        entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 130}
    return entry
