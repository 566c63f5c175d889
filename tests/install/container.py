"""The container image from its archive to a message: as its user, over a root that cannot be written.

podman runs it where it may. Elsewhere the image's layer is the root folder of a machine (`machine`), in which
the image's command runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.install.errors import NotHere
from tests.install.machine import CLEAN, machine
from tests.install.serving import LIMIT_S, PROGRAM

MOST_BYTES = 120_000_000
_STATE = "/var/lib/penstock"
_USER, _PASSWORD = "admin", "from-a-test"
_LOGIN = {"PENSTOCK__AUTH__DEFAULT_USER": _USER, "PENSTOCK__AUTH__DEFAULT_PASSWORD": _PASSWORD}
_PROBE = ["/usr/bin/penstock", "doctor", "--probe"]
_CLIENT = ["/usr/bin/python3", "-I", "-c", "import sys; sys.path.insert(0, '/usr/lib/penstock')\n" + PROGRAM]
_URL = f"penstock://{_USER}:{_PASSWORD}@127.0.0.1:15690"


def check(archive: Path) -> None:
    """Raises AssertionError, CalledProcessError, NotHere."""
    assert archive.stat().st_size < MOST_BYTES, f"{archive} has {archive.stat().st_size} bytes"
    bill = json.loads(archive.with_name(f"{archive.name}.cdx.json").read_text())
    names = {one["name"] for one in bill["components"]}
    assert bill["bomFormat"] == "CycloneDX" and {"libc6", "uvloop", "penstock-gateway"} <= names
    with tempfile.TemporaryDirectory(prefix="penstock-container-") as text:
        folder = Path(text)
        config, layers = _read(archive, folder)
        assert config["User"] == "10001:10001"
        assert _STATE in config["Volumes"]
        try:
            _run_by_podman(archive, folder)
        except NotHere as reason:
            print(f"container: not run by podman: {reason}; in a root folder instead")
            _run_in_folder(config, layers, folder)


def _read(archive: Path, folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """The image's settings, and the files of its layers."""
    layout = folder / "layout"
    with tarfile.open(archive) as tar:
        tar.extractall(layout, filter="data")

    def blob(digest: str) -> Path:
        return layout / "blobs" / digest.replace(":", "/")

    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(entry["digest"]).read_text())
    config = json.loads(blob(manifest["config"]["digest"]).read_text())["config"]
    return config, [blob(layer["digest"]) for layer in manifest["layers"]]


def _run_by_podman(archive: Path, folder: Path) -> None:
    if shutil.which("podman") is None:
        raise NotHere("needs podman: apt-get install podman")
    podman = [
        "podman",
        "--root",
        str(folder / "storage"),
        "--runroot",
        str(folder / "run"),
        "--storage-driver=vfs",
        "--cgroup-manager=cgroupfs",
    ]

    def call(*words: str) -> str:
        try:
            done = subprocess.run(
                [*podman, *words], check=True, capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.CalledProcessError as error:
            raise NotHere((error.stderr.strip().splitlines() or ["no word"])[-1]) from error
        return done.stdout.strip()

    image = call("load", "--quiet", "--input", str(archive)).rpartition(": ")[2]
    login = [word for name, value in _LOGIN.items() for word in ("--env", f"{name}={value}")]
    limits = ["--read-only", "--cap-drop=all", "--network=none", "--volume=data:/var/lib/penstock"]
    limits.append("--ulimit=host")  # podman asks for more than a container of this machine may have
    name = call("run", "--detach", *limits, *login, image)
    try:
        _serves(lambda words: subprocess.run([*podman, "exec", name, *words], capture_output=True, text=True))
        call("stop", "--time=60", name)
    finally:
        subprocess.run([*podman, "rm", "--force", name], capture_output=True)
    print("container: run by podman")


def _run_in_folder(config: dict[str, Any], layers: list[Path], folder: Path) -> None:
    root = folder / "root"
    root.mkdir()
    for layer in layers:
        subprocess.run(["tar", "--extract", "--file", str(layer), "--directory", str(root)], check=True)
    env = {**CLEAN, **dict(one.split("=", 1) for one in config["Env"]), **_LOGIN}
    with machine(root) as one:
        one.volume(_STATE, config["User"])
        one.read_only()
        gateway = one.start([*config["Entrypoint"], *config["Cmd"]], user=config["User"], env=env)
        try:
            _serves(
                lambda words: subprocess.run(
                    one.words(words, user=config["User"]), capture_output=True, text=True, env=env
                )
            )
            gateway.terminate()
            assert gateway.wait(LIMIT_S) == 0, "the gateway did not stop by SIGTERM"
        finally:
            gateway.kill()
            gateway.wait()
    print("container: its command ran in a root folder that cannot be written")


def _serves(inside: Callable[[list[str]], subprocess.CompletedProcess[str]]) -> None:
    """Wait for the health check, and send a message, by commands inside the container."""
    end = time.monotonic() + LIMIT_S
    while (probe := inside(_PROBE)).returncode:
        assert time.monotonic() < end, probe.stderr
        time.sleep(0.2)
    sent = inside([*_CLIENT, _URL])
    assert sent.returncode == 0, sent.stderr
    refused = inside(["/usr/bin/python3", "-c", "open('/etc/passwd', 'a')"])
    assert refused.returncode, "the root can be written"
