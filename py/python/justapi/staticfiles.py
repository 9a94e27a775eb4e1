"""Serves folders as an ASGI application, with the interface that Starlette gave it.

A path never leads out of a served folder: not by `..`, not by an absolute path, not by a link
unless links are followed on request.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import stat
from pathlib import Path
from typing import TypeAlias

from justapi._file_response import NOT_MODIFIED_HEADERS, FileResponse, is_not_modified
from justapi._response import RedirectResponse, Response
from justapi.concurrency import run_in_threadpool
from justapi.datastructures import URL, Headers
from justapi.exceptions import HTTPException
from justapi.types import Receive, Scope, Send
from justapi.websockets import WebSocketClose

__all__ = ["NotModifiedResponse", "StaticFiles"]

PathLike: TypeAlias = "str | os.PathLike[str]"


class NotModifiedResponse(Response):
    """The 304 answer for a file that the client has.

    Args:
        headers: The headers that the file would have had.
    """

    def __init__(self, headers: Headers) -> None:
        super().__init__(status_code=304)
        self.raw_headers = [pair for pair in headers.raw if pair[0] in NOT_MODIFIED_HEADERS]


class StaticFiles:
    """An application that serves the files of folders.

    Args:
        directory: A folder.
        packages: Packages whose folder `statics` is served, or pairs of package and folder.
        html: Whether `index.html` stands for its folder and `404.html` for what is not there.
        check_dir: Whether the folder has to exist now.
        follow_symlink: Whether links may lead out of the folder.

    Raises:
        RuntimeError: The folder does not exist.
        AssertionError: A package or its folder does not exist.

    Example:
        >>> app.mount("/static", StaticFiles(directory="static"), name="static")
    """

    def __init__(
        self,
        *,
        directory: PathLike | None = None,
        packages: list[str | tuple[str, str]] | None = None,
        html: bool = False,
        check_dir: bool = True,
        follow_symlink: bool = False,
    ) -> None:
        self.directory = directory
        self.packages = packages
        self.all_directories = self.get_directories(directory, packages)
        self.html = html
        self.config_checked = False
        self.follow_symlink = follow_symlink
        if check_dir and directory is not None and not Path(directory).is_dir():
            raise RuntimeError(f"Directory '{directory}' does not exist")

    def get_directories(
        self,
        directory: PathLike | None = None,
        packages: list[str | tuple[str, str]] | None = None,
    ) -> list[PathLike]:
        """Returns the folders that are served, in the order in which they are looked at.

        Args:
            directory: As in the constructor.
            packages: As in the constructor.

        Raises:
            AssertionError: A package or its folder does not exist.
        """
        found: list[PathLike] = [] if directory is None else [directory]
        for package in packages or []:
            name, folder = package if isinstance(package, tuple) else (package, "statics")
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:
                raise AssertionError(f"Package {name!r} could not be found.")
            path = Path(spec.origin).parent / folder
            if not path.is_dir():
                raise AssertionError(
                    f"Directory {folder!r} in package {name!r} could not be found."
                )
            found.append(os.path.normpath(path))
        return found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request; a WebSocket is refused.

        Args:
            scope: The ASGI scope.
            receive: The ASGI receive callable.
            send: The ASGI send callable.

        Raises:
            HTTPException: 404 or 405.
            RuntimeError: The folder is gone.
        """
        if scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
            return
        if not self.config_checked:
            await self.check_config()
            self.config_checked = True
        response = await self.get_response(self.get_path(scope), scope)
        await response(scope, receive, send)

    def get_path(self, scope: Scope) -> str:
        """Returns the path below the folders that a request asks for, without `.` and `..`.

        Args:
            scope: The ASGI scope.
        """
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and (path == root or path.startswith(root + "/")):
            path = path[len(root) :]
        return os.path.normpath(os.path.join(*path.split("/")))  # noqa: PTH118

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Returns the response for a path below the folders.

        Args:
            path: The path, as `get_path` returns it.
            scope: The ASGI scope.

        Raises:
            HTTPException: 404: there is no such file. 405: the method is not GET or HEAD.
                401: the file may not be read.
        """
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(status_code=405, headers={"Allow": "GET, HEAD"})
        full_path, found = await self._look_up(path)
        if found is not None and stat.S_ISREG(found.st_mode):
            return self.file_response(full_path, found, scope)
        if self.html:
            if found is not None and stat.S_ISDIR(found.st_mode):
                index = await self._index_response(path, scope)
                if index is not None:
                    return index
            full_path, found = await self._look_up("404.html")
            if found is not None and stat.S_ISREG(found.st_mode):
                return FileResponse(full_path, stat_result=found, status_code=404)
        raise HTTPException(status_code=404)

    async def _index_response(self, path: str, scope: Scope) -> Response | None:
        full_path, found = await self._look_up(os.path.join(path, "index.html"))  # noqa: PTH118
        if found is None or not stat.S_ISREG(found.st_mode):
            return None
        if not scope["path"].endswith("/"):
            # Links in the page are relative to the folder.
            url = URL(scope=scope)
            return RedirectResponse(url.replace(path=url.path + "/"))
        return self.file_response(full_path, found, scope)

    async def _look_up(self, path: str) -> tuple[str, os.stat_result | None]:
        try:
            return await run_in_threadpool(self.lookup_path, path)
        except PermissionError:
            raise HTTPException(status_code=401) from None
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
                raise HTTPException(status_code=404) from None
            raise
        except ValueError:
            # A NUL, or what the file system cannot encode.
            raise HTTPException(status_code=404) from None

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Finds a path in the folders.

        Args:
            path: The path below the folders.

        Returns:
            The full path and what `os.stat` says of it; an empty path and None if there is none.

        Raises:
            OSError: The file system refuses.
            ValueError: The path has a NUL.
        """
        if path.startswith(("/", "\\")):
            return "", None
        resolve = os.path.abspath if self.follow_symlink else os.path.realpath
        for directory in self.all_directories:
            root = resolve(os.fspath(directory))
            full_path = resolve(os.path.join(root, path))  # noqa: PTH118
            if full_path != root and not full_path.startswith(root.rstrip(os.sep) + os.sep):
                continue
            try:
                return full_path, os.stat(full_path)  # noqa: PTH116
            except (FileNotFoundError, NotADirectoryError):
                continue
        return "", None

    def file_response(
        self,
        full_path: PathLike,
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Returns the response for a file that was found.

        Args:
            full_path: The file.
            stat_result: What `os.stat` says of it.
            scope: The ASGI scope.
            status_code: The status.
        """
        response = FileResponse(full_path, status_code=status_code, stat_result=stat_result)
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        return response

    async def check_config(self) -> None:
        """Makes sure that the folder is there, before the first answer would be a mere 404.

        Raises:
            RuntimeError: It is not.
        """
        if self.directory is None:
            return
        directory = Path(self.directory)
        if not await run_in_threadpool(directory.exists):
            raise RuntimeError(f"StaticFiles directory '{self.directory}' does not exist.")
        if not await run_in_threadpool(directory.is_dir):
            raise RuntimeError(f"StaticFiles path '{self.directory}' is not a directory.")

    def is_not_modified(self, response_headers: Headers, request_headers: Headers) -> bool:
        """Tells whether the client has the file already.

        Args:
            response_headers: The headers with the validators.
            request_headers: The headers with the conditions.
        """
        return is_not_modified(response_headers, request_headers)
