"""A listening socket with a name in the file system, for clients on this machine.

Users who may write to the file may connect: that is the folder's and the umask's business. A file that a
process left behind, which is gone, is replaced; one on which somebody listens is not.
"""

from __future__ import annotations

import errno
import os
import socket
import stat

from penstock.errors import StartError

__all__ = ["unix_socket"]

_BACKLOG = 1024


def unix_socket(section: str, path: str, *, option: str) -> socket.socket:
    """A non-blocking listening socket at `path`; `section` and `option` are the configuration's, for errors.

    The caller that closes it removes the file.

    Raises:
        StartError: somebody listens there, something else is there, or no file can be made there.

    """
    where = f"{section}.{option}"
    try:
        if _is_left_behind(path, where):
            os.unlink(path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(path)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise StartError(
            f"cannot listen on the socket {path}: {error.strerror or error}",
            remedy=f"give {where} a path of at most 107 bytes in a folder that this user may write to",
        ) from error
    return listening


def _is_left_behind(path: str, where: str) -> bool:
    """Whether there is a socket on which nobody listens."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(mode):
        raise StartError(f"{path} is there and is no socket", remedy=f"give {where} another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # whose backlog is full is there, too
        refused = probe.connect_ex(path)
    if refused == errno.ECONNREFUSED:
        return True
    raise StartError(
        f"another process listens on the socket {path}",
        remedy=f"stop that process, or give {where} another path",
    )
