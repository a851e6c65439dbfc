"""Runs as a script, without the project's packages: the kubelet's own namespaces, and the inside of a container.

`enter FOLDER COMMAND...`: runs the command as the first process of new namespaces for processes and mounts, with a tmpfs on
FOLDER that only these processes see. When that process ends, however it ends, the kernel kills all processes below it
and the mounts go with them.

`inside PLAN FIFO`: runs a container and ends with its exit code. The first process of the container's namespaces builds its
file system, gives up root and becomes its command. It writes to FIFO why it could not; an empty FIFO means that the command
runs.
"""

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID = 0x20000, 0x4000000, 0x8000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CANNOT_START = KILLED = 128
OLD_ROOT = f"/.{os.urandom(8).hex()}"
"""Where the host's root is while mounts are made. No link in a volume can know the name and lead there."""
KERNELS = frozenset(
    (
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "sysfs",
        "tracefs",
    )
)
"""File systems that show the kernel and no files."""
ESCAPE = re.compile(r"\\([0-7]{3})")
"""How mountinfo writes spaces in names."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts a file system, or a folder or file in a second place."""
    arguments = [text.encode() if text else None for text in (source, target, kind)]
    _checked(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), f"mount {source} on {target}")


def unmount(target: str) -> None:
    """Takes a file system away from its place, even if it is in use."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def _in_namespaces(kinds: int) -> int | None:
    """None in the first process of new namespaces; in its parent, its exit code once it and all below it have ended."""
    _checked(_libc.unshare(kinds), "unshare")
    alive, parents_end = os.pipe()
    child = os.fork()
    if child:
        os.close(alive)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return KILLED - code if code < 0 else code
    os.close(parents_end)
    _ends_with_parent()
    os.set_blocking(alive, False)
    try:
        os.read(alive, 1)
    except BlockingIOError:
        return None
    finally:
        os.close(alive)
    return KILLED  # the parent ended before the kernel knew that its end is ours


def _ends_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def enter(folder: str, command: list[str]) -> int:
    """The exit status of the command, once it and all processes below it have ended."""
    status = _in_namespaces(CLONE_NEWNS | CLONE_NEWPID)
    return _begin(folder, command) if status is None else status


def _begin(folder: str, command: list[str]) -> NoReturn:
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("kubelet", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0711")
    os.execvp(command[0], command)  # noqa: S606 - the kubelet's own command line


def contain(plan_file: str, fifo: str) -> int:
    """The exit code of the container whose plan is in the file."""
    if (status := _in_namespaces(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC)) is not None:
        return status
    report = os.open(fifo, os.O_WRONLY | os.O_CLOEXEC)
    try:
        plan = json.loads(Path(plan_file).read_text(encoding="utf-8"))
        Path(plan_file).unlink()  # it may contain secrets
        inside(plan)
    except Exception as error:  # noqa: BLE001 - whatever it is, the command did not run
        name = getattr(error, "filename", None) or ""
        os.write(report, f"{getattr(error, 'strerror', None) or error}: {name}".rstrip(": ").encode())
    return CANNOT_START


def inside(plan: dict[str, Any]) -> None:
    """Becomes the container's command, or raises OSError."""
    _build_root(plan["scratch"], plan["kubelet"])
    _fill_dev(plan["shm"])
    for entry in plan["mounts"]:
        _bind(OLD_ROOT + entry["source"], entry["target"], read_only=entry["read_only"])
    unmount(OLD_ROOT)
    Path(OLD_ROOT).rmdir()
    for path in plan["reachable"]:
        _open_parents(Path(path))
    socket.sethostname(plan["hostname"])
    Path(plan["folder"]).mkdir(parents=True, exist_ok=True)
    os.chdir(plan["folder"])
    os.fchown(sys.stdout.fileno(), plan["uid"], plan["gid"])  # so that it may open /dev/stdout
    os.setgroups(plan["groups"])
    os.setgid(plan["gid"])
    os.setuid(plan["uid"])
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _ends_with_parent()  # a change of user has undone it
    os.umask(0o022)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and a command inherits that
    os.execvpe(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - to run it is what this is for


def _build_root(scratch: str, kubelet: str) -> None:
    """A root of which writes end in `scratch`: the host's files, below a writable layer for each of its file systems."""
    root = f"{scratch}/root"
    for number, target in enumerate(_host_mounts(kubelet)):
        upper, work = f"{scratch}/upper-{number}", f"{scratch}/work-{number}"
        for folder in (upper, work, root):
            Path(folder).mkdir(parents=True, exist_ok=True)
        try:
            if not Path(target).is_dir():
                raise NotADirectoryError(target)
            Path(upper).chmod(stat.S_IMODE(Path(target).stat().st_mode))
            layers = f"lowerdir={_escaped(target)},upperdir={upper},workdir={work}"
            mount("overlay", root + target, "overlay", 0, layers)
        except OSError:
            if target == "/":
                raise
            _bind_if_possible(target, root + target)
    Path(root + OLD_ROOT).mkdir()
    os.chdir(root)
    _checked(_libc.pivot_root(b".", OLD_ROOT[1:].encode()), "pivot_root")
    os.chdir("/")
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount(f"{OLD_ROOT}/sys", "/sys", flags=MS_BIND | MS_REC)


def _bind_if_possible(source: str, target: str) -> None:
    """A single file, or a file system that has no layers above it, is read-only; one that cannot be bound is absent."""
    with contextlib.suppress(OSError):
        mount(source, target, flags=MS_BIND)
        mount("", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def _host_mounts(kubelet: str) -> list[str]:
    """Mount points of the host's own files, parents first."""
    found = set()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields = line.split(" ")
        kind = fields[fields.index("-") + 1]
        target = ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4])
        if kind not in KERNELS and not _is_below(target, (kubelet, "/proc", "/sys", "/dev")):
            found.add(target)
    return sorted(found)


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _fill_dev(shm: str) -> None:
    mount("dev", "/dev", "tmpfs", MS_NOSUID, "mode=0755,size=64k")
    for name in DEVICES:
        _bind(f"{OLD_ROOT}/dev/{name}", f"/dev/{name}", read_only=False)
    for name, target in LINKS.items():
        Path("/dev", name).symlink_to(target)
    Path("/dev/pts").mkdir()
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    _bind(OLD_ROOT + shm, "/dev/shm", read_only=False)  # noqa: S108 - the pod's own


def _bind(source: str, target: str, *, read_only: bool) -> None:
    """Mounts a folder or a file, and makes the place for it first."""
    place = Path(target)
    if Path(source).is_dir():
        place.mkdir(parents=True, exist_ok=True)
    elif not os.path.lexists(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o644)
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        mount("", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _open_parents(path: Path) -> None:
    """Lets every user pass through to the folder, in this container only: the writable layer has the new modes."""
    for folder in path.parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def main() -> int:
    """Exit status."""
    if sys.argv[1] == "enter":
        try:
            return enter(sys.argv[2], sys.argv[3:])
        except PermissionError as error:
            print(f"the test kubelet needs root with CAP_SYS_ADMIN: {error}", file=sys.stderr)
            return 1
    return contain(*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
