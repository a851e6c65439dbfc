"""What WebSockets of sessions count in the web process."""

from prometheus_client import Counter, Gauge

OPEN = Gauge("switchyard_session_sockets_open", "WebSockets of sessions that are open now.", multiprocess_mode="sum")
ENDED = Counter("switchyard_session_sockets", "WebSockets of sessions that ended, by why.", ["end"])
BYTES = Counter("switchyard_session_socket_bytes", "Bytes of WebSockets of sessions, by direction.", ["direction"])
