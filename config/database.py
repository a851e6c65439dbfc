"""DATABASE_URL as libpq reads it, with every parameter and several hosts; an unsupported part stops the boot with its
name.
"""

import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

SESSION = (
    "-c statement_timeout=30000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000"
    # From this a process knows at boot that these settings arrived (`foundation.sessions`).
    " -c switchyard.session=1"
    # The server's side of the keepalives below: the session of a client that vanished keeps its advisory locks, such as
    # a routine's, until the server notices. By default that takes two hours.
    " -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=2 -c tcp_user_timeout=20000"
)
DEFAULTS = {
    "application_name": "switchyard",
    "connect_timeout": "5",
    # A vanished server is detected in about 20 s: by keepalives if the connection is idle, else by missing
    # acknowledgements. The kernel's defaults are two hours and a quarter of an hour.
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "20000",
}
"""The defaults for parameters that a URL omits, by libpq's names."""
OURS = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
NOT_HONOURED = {
    "client_encoding": "the gateway always uses UTF-8",
    "replication": "the gateway needs an ordinary connection",
    "fallback_application_name": "use application_name",
}
UNKNOWN = re.compile(r'invalid (?:URI query parameter|connection option):? "([a-z_]{1,63})"')


def read_database_url(url: str, *, prepare: bool) -> dict[str, Any]:
    """Django's settings of the database at `url`; `prepare`: whether statements are prepared (not behind some poolers).

    Raises ValueError with a message that repeats nothing of the URL except a parameter's name.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("must look like postgresql://user:password@host:port/name")
    asked = _parse(url)
    refused = next((name for name in NOT_HONOURED if name in asked), None)
    if refused:
        raise ValueError(f"the parameter {refused} is not supported: {NOT_HONOURED[refused]}")
    if not asked.get("dbname") and not asked.get("service"):
        raise ValueError("must name a database: postgresql://user:password@host:port/name")
    options = {**DEFAULTS, **{name: value for name, value in asked.items() if name not in OURS}}
    if "," in asked.get("host", "") + asked.get("hostaddr", ""):
        # Of several hosts, the one that accepts writes: a replica would refuse the first write.
        options.setdefault("target_session_attrs", "read-write")
    # The URL's session parameters come last and so take precedence.
    options["options"] = f"{SESSION} {asked['options']}" if "options" in asked else SESSION
    return {
        "ENGINE": "foundation.postgres",
        **{ours: asked.get(name, "") for name, ours in OURS.items()},
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            **options,
            # The same few statements repeat: parsing and planning them was half of the server's work.
            "server_side_binding": True,
            "prepare_threshold": 5 if prepare else None,
        },
    }


def _parse(url: str) -> dict[str, str]:
    try:
        parsed = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        # libpq's own message may repeat the whole URL, including the password.
        unknown = UNKNOWN.search(str(error))
        raise ValueError(
            f"libpq has no parameter {unknown[1]}" if unknown else "is not a URL that libpq can read"
        ) from None
    return {name: str(value) for name, value in parsed.items() if value is not None}
