"""A registry of container images that docker pushes to and the cluster pulls from."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import yaml
from keygrouping_local.ports import free_ports

from .cluster import ClusterError

PROGRAM = "docker-registry"
_ASK = shlex.split("curl --silent --fail --output /dev/null --retry 60 --retry-connrefused --retry-delay 1")
_NAME = '{{.Repository}}{{if eq .Tag "<none>"}}@{{.Digest}}{{else}}:{{.Tag}}{{end}}'
"""An image that was built again has no tag any more, but is still known by its digest."""


@contextmanager
def own_registry(folder: Path, cluster_exec: Sequence[str]) -> Iterator[str]:
    """Starts one; gives its address.

    A cluster with a network of its own gets a second one there, at the same address and on the same data.
    """
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    config = folder / "registry.yaml"
    settings = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "images")}},
        "http": {"addr": address},
    }
    config.write_text(yaml.safe_dump(settings))
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("w"))
        for network in ([], cluster_exec) if cluster_exec else ([],):
            stack.enter_context(_running([*network, PROGRAM, "serve", str(config)], log))
            if subprocess.run([*network, *_ASK, f"http://{address}/v2/"], check=False).returncode:
                raise ClusterError(f"the registry does not answer: {(folder / 'log').read_text()}")
        yield address


@contextmanager
def forgotten(docker: Sequence[str], address: str) -> Iterator[None]:
    """Takes the names that images have got for this registry from docker afterwards."""
    yield
    names = ("image", "ls", "--digests", "--filter", f"reference={address}/*/*", "--format", _NAME)
    listed = subprocess.run([*docker, *names], check=True, capture_output=True, text=True).stdout.split()
    if listed:
        subprocess.run([*docker, "image", "rm", *listed], check=True, stdout=subprocess.DEVNULL)


def docker_command() -> list[str]:
    """The command that DOCKER names."""
    return shlex.split(os.environ.get("DOCKER", "docker"))


@contextmanager
def _running(command: Sequence[str], log: IO[str]) -> Iterator[None]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)
