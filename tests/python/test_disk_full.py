"""Uploads that the disk has no room for."""

from __future__ import annotations

import resource
from pathlib import Path

from serving import Server, eventually

APPLICATION = """
    import os

    from justapi import JustAPI, Request, UploadFile

    app = JustAPI()


    @app.post("/parameter")
    async def parameter(file: UploadFile):
        return len(await file.read())


    @app.post("/form")
    async def form(request: Request):
        async with request.form() as form:
            return len(await form["file"].read())


    @app.post("/kept")
    async def kept(file: UploadFile):
        with open("spool/kept", "wb") as out:
            out.write(await file.read())


    @app.get("/pid")
    def pid():
        return os.getpid()
"""


def spooled(worker: int, folder: Path) -> list[str]:
    """Files of the folder: those that have a name, and those that the worker holds open."""
    held = [str(one.readlink()) for one in Path(f"/proc/{worker}/fd").iterdir() if one.is_symlink()]
    named = [str(one) for one in folder.iterdir()]
    return named + [one for one in held if one.startswith(str(folder))]


def test_an_upload_that_the_disk_has_no_room_for_is_a_507(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    with Server(tmp_path, APPLICATION, "--limit-body", "50MiB", TMPDIR=str(spool)) as server:
        [worker] = server.workers
        small, large = b"s" * 500_000, b"l" * 5_000_000
        # What does not fit is still in memory when the last of it is written.
        slightly = b"l" * 2_000_100
        for path in ("/parameter", "/form"):
            assert server.client.post(path, files={"file": large}).json() == len(large)
        # As full as a disk with less than 2 MB left: files end there.
        limit = resource.prlimit(worker, resource.RLIMIT_FSIZE)
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (2_000_000, limit[1]))
        for path in ("/parameter", "/form"):
            for content in (large, slightly, large, slightly):
                answer = server.client.post(path, files={"file": content})
                assert answer.status_code == 507, (path, answer.text)
                assert answer.headers["content-type"] == "application/problem+json"
                assert str(spool) not in answer.text
                assert server.client.post(path, files={"file": small}).json() == len(small)
            assert spooled(worker, spool) == []
        resource.prlimit(worker, resource.RLIMIT_FSIZE, limit)
        assert server.client.post("/parameter", files={"file": large}).json() == len(large)
        assert server.client.get("/pid").json() == worker
        eventually(
            "each is logged",
            lambda: sum("an upload cannot be kept" in line for line in server.errors) == 8,
        )
        assert server.stop() == 0
