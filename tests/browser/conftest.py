"""A real JupyterLab over a copy of the notebooks, and a real browser on it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 120
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--no-first-run",
]
OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}


@pytest.fixture(scope="session")
def browser():
    """Chromium, headless; skipped with a reason where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the PATH")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab over a temporary root that holds copies, so that no tracked file changes."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    root = tmp_path_factory.mktemp("root")
    for name in ("notebooks", "exercises"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name)
    (root / "notebooks").mkdir(exist_ok=True)
    settings = tmp_path_factory.mktemp("settings")
    (settings / "labconfig").mkdir()
    overrides = settings / "labconfig" / "default_setting_overrides.json"
    overrides.write_text(json.dumps(OVERRIDES), encoding="utf-8")
    server = Lab(root, settings, tmp_path_factory.mktemp("home"))
    server.start()
    yield server
    server.stop()


class Lab:
    def __init__(self, root: Path, settings: Path, home: Path) -> None:
        self.root = root
        self.home = home
        self._settings = settings
        self._log = settings / "lab.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}/{path}"

    def start(self) -> None:
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={self._port}"),
            *("--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ip=127.0.0.1"),
            *(f"--ServerApp.root_dir={self.root}", "--allow-root"),
        ]
        environment = os.environ | {
            "LLMSERVE_LAB_HOME": str(self.home),
            "JUPYTER_CONFIG_DIR": str(self._settings),
        }
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, cwd=self.root, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(self.url("api"), timeout=5):
                    return
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                time.sleep(0.3)
        self.stop()
        pytest.fail(f"JupyterLab did not start:\n{self._log.read_text()[-3000:]}")

    def stop(self) -> None:
        self._process.terminate()  # Jupyter shuts its kernels down
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    yield page
    page.close()
