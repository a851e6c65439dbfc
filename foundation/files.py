"""Files that are there whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Puts the content at `path`, replacing what was there; readers and crashes never see a part of it. OSError if it cannot."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101 - a name, as mkstemp gives it
        os.replace(name, path)  # noqa: PTH105 - the same
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's own; it can only be read by being set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
