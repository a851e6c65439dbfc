"""Redis' address: it needs a password, or a socket with restricted rights."""

import stat
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

FORMS = (
    "must look like redis://:password@host:port/0, rediss://:password@host:port/0 (TLS) or unix:///path/of/socket?db=0"
)
OPEN_TO_ALL = (
    "has no password: anyone who can reach Redis could forge messages. Set a password in Redis (`requirepass`, or an ACL"
    " user) and put it into the URL: redis://:password@host:port/0"
)
OPEN_SOCKET = "is a socket without a password that other users of this host can open: set a password, or close the folder (chmod 700)"
UNVERIFIED = "must verify the server's certificate: set its authority with ssl_ca_certs instead of ssl_cert_reqs"
FOR_OTHERS = stat.S_IRWXO


def check_redis_url(url: str) -> None:
    """ValueError for an address that allows strangers; the message never repeats it."""
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        raise ValueError(FORMS) from None
    if parts.scheme == "unix":
        _check_socket(parts.path, has_password=bool(parts.password))
    elif parts.scheme not in {"redis", "rediss"} or not parts.hostname or not has_port:
        raise ValueError(FORMS)
    elif not parts.password:
        raise ValueError(OPEN_TO_ALL)
    if dict(parse_qsl(parts.query)).get("ssl_cert_reqs", "required") != "required":
        raise ValueError(UNVERIFIED)


def _check_socket(path: str, *, has_password: bool) -> None:
    if not path.startswith("/") or path == "/":
        raise ValueError(FORMS)
    socket = Path(path)
    if has_password or not socket.exists():
        return
    if socket.stat().st_mode & FOR_OTHERS and socket.parent.stat().st_mode & FOR_OTHERS:
        raise ValueError(OPEN_SOCKET)


def broker_url(url: str, scheme: str) -> str:
    """The same server in Celery's form, where `scheme` names the transport."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "unix":
        number = query.pop("db", "0")
        return urlunsplit(
            (f"{scheme}+socket", parts.netloc, parts.path, urlencode({"virtual_host": number, **query}), "")
        )
    if parts.scheme == "rediss":
        query = {"ssl_cert_reqs": "required", "ssl_check_hostname": "true", **query}
    return urlunsplit((scheme, parts.netloc, parts.path, urlencode(query), ""))
