"""The listening socket of a server, made early, with errors that say what to do."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernelwright.profiles.errors import EnvironmentLacks, WrongUse

_BACKLOG = 512
_LONGEST_PATH = 107
"""Bytes of a unix socket's path on Linux, its final NUL left out."""


@contextmanager
def listen(host: str, port: int, uds: Path | None) -> Iterator[socket.socket]:
    """Yield a listening socket on `uds`, else on host and port (0 = any free one); close it, and unlink `uds`, after.

    Raises EnvironmentLacks when the address is taken or not ours to use, WrongUse when it cannot be an address.
    """
    if uds is None:
        with _tcp(host, port) as listening:
            yield listening
        return
    with _unix(uds) as listening:
        try:
            yield listening
        finally:
            with suppress(FileNotFoundError):
                uds.unlink()


def _tcp(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise WrongUse(f"{host!r} is no host of this machine: {error.strerror}", "Give --host an address") from error
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise _explain_tcp(host, port, error) from error
    return listening


def _explain_tcp(host: str, port: int, error: OSError) -> EnvironmentLacks:
    if error.errno == errno.EADDRINUSE:
        remedy = f"Choose another one with --port, or stop what listens there (`ss -ltnp 'sport = :{port}'` names it)"
        return EnvironmentLacks(f"port {port} on {host} is in use", remedy)
    if error.errno == errno.EACCES:
        return EnvironmentLacks(f"port {port} is not open to this user", "Choose a port above 1023 with --port")
    return EnvironmentLacks(f"cannot listen on {host}:{port}: {error.strerror}", "Choose another --host or --port")


def _unix(path: Path) -> socket.socket:
    if len(str(path).encode()) > _LONGEST_PATH:
        raise WrongUse(f"the socket path {path} is over {_LONGEST_PATH} bytes", "Give --uds a shorter path")
    if path.exists() and not path.is_socket():
        raise WrongUse(f"{path} exists and is not a socket", "Give --uds a path of its own")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            if _answers(path):
                raise EnvironmentLacks(f"another server listens on {path}", "Stop it or choose another --uds")
            path.unlink()  # left behind by a server that was killed
        listening.bind(str(path))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise EnvironmentLacks(f"cannot listen on {path}: {error.strerror}", "Choose another --uds") from error
    except EnvironmentLacks:
        listening.close()
        raise
    return listening


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
