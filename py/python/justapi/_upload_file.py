"""An uploaded file: in memory while it is small, in a nameless temporary file when it grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from justapi.concurrency import clean_up_in_threadpool, run_in_threadpool

if TYPE_CHECKING:
    from justapi.datastructures import Headers


class UploadFile:
    """A file that came with a form.

    It can be a parameter of a handler or a dependency. `file` is the plain Python file for code
    that blocks; the async methods go through the thread pool once the content is on disk.

    Args:
        file: Where the content is.
        size: Bytes of the content, if known.
        filename: The name that the client gave. It is never used as a path here.
        headers: The headers of the form's part.

    Example:
        >>> @app.post("/files")
        ... async def save(file: UploadFile):
        ...     return {"name": file.filename, "size": len(await file.read())}
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        size: int | None = None,
        filename: str | None = None,
        headers: Headers | None = None,
    ) -> None:
        if headers is None:
            from justapi.datastructures import Headers as NoHeaders

            headers = NoHeaders()
        self.file = file
        self.size = size
        self.filename = filename
        self.headers = headers
        # What SpooledTemporaryFile calls the size at which it moves to disk; 0 is never.
        self._max_memory_bytes: int = getattr(file, "_max_size", 0)

    @property
    def content_type(self) -> str | None:
        """The media type that the client gave for this file."""
        return self.headers.get("content-type")

    @property
    def _in_memory(self) -> bool:
        return not getattr(self.file, "_rolled", True)

    async def write(self, data: bytes) -> None:
        """Writes at the current position.

        Args:
            data: What to write.

        Raises:
            OSError: The disk refused.
            ValueError: The file is closed.
        """
        if self.size is not None:
            self.size += len(data)
        stays = self._in_memory and (
            not self._max_memory_bytes or self.file.tell() + len(data) <= self._max_memory_bytes
        )
        if stays:
            self.file.write(data)
        else:
            await run_in_threadpool(self.file.write, data)

    async def read(self, size: int = -1) -> bytes:
        """Reads from the current position.

        Args:
            size: Bytes to read at most; all by default.

        Raises:
            OSError: The disk refused.
            ValueError: The file is closed.
        """
        if self._in_memory:
            return self.file.read(size)
        return await run_in_threadpool(self.file.read, size)

    async def seek(self, offset: int) -> None:
        """Moves to a position.

        Args:
            offset: Bytes from the start.

        Raises:
            ValueError: The file is closed.
        """
        if self._in_memory:
            self.file.seek(offset)
        else:
            await run_in_threadpool(self.file.seek, offset)

    async def close(self) -> None:
        """Closes the file; a temporary one is gone from the disk."""
        if self._in_memory:
            self.file.close()
        else:
            await clean_up_in_threadpool(self.file.close)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(filename={self.filename!r}, size={self.size!r}, "
            f"headers={self.headers!r})"
        )

    @classmethod
    def _validate(cls, value: Any, _info: Any) -> UploadFile:
        if not isinstance(value, UploadFile):
            raise ValueError(f"Expected UploadFile, received: {type(value)}")
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Mapping[str, Any], handler: Any
    ) -> dict[str, Any]:
        """Tells pydantic how the file looks in OpenAPI."""
        return {"type": "string", "contentMediaType": "application/octet-stream"}

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: Callable[[Any], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Tells pydantic that only an UploadFile is one."""
        from pydantic_core.core_schema import with_info_plain_validator_function

        return with_info_plain_validator_function(cls._validate)
