"""The documentation pages of a served application, in a browser."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from serving import Server

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION = """
    from pydantic import BaseModel

    from justapi import JustAPI

    app = JustAPI(title="Parcels of the north")


    class Parcel(BaseModel):
        receiver: str
        weight_kg: float


    @app.post("/parcels/{depot}", summary="Pack a parcel")
    async def pack(depot: str, parcel: Parcel) -> Parcel:
        return parcel


    @app.get("/parcels", summary="List what waits")
    async def waiting() -> list[Parcel]:
        return []
"""
SHOWN = {
    "/docs": ["Parcels of the north", "Pack a parcel", "List what waits", "opblock-post"],
    "/redoc": ["Parcels of the north", "Pack a parcel", "List what waits", "receiver"],
    "/scalar": ["Parcels of the north", "Pack a parcel", "List what waits"],
}


def browse(url: str, profile: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Opens a page in Chromium and waits until its scripts have come to rest."""
    return subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            "--virtual-time-budget=10000",
            f"--user-data-dir={profile}",
            *flags,
            url,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.parametrize("page", list(SHOWN))
def test_a_browser_shows_the_routes(tmp_path: Path, page: str) -> None:
    with Server(tmp_path, APPLICATION) as server:
        shown = browse(server.url + page, tmp_path / "profile", "--dump-dom")
        for text in SHOWN[page]:
            assert text in shown.stdout, (text, shown.stdout[:2000])
        # Scalar greets with its version, which is no complaint.
        said = [
            line
            for line in shown.stderr.splitlines()
            if "CONSOLE" in line and '"@scalar/api-reference@' not in line
        ]
        assert not said, said
        assert server.stop() == 0
