"""An S3-compatible store in this process, over TLS on loopback. It answers only requests whose signature (Signature Version 4) is right."""

import hashlib
import hmac
import ssl
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from devtools.localfleet.certificates import write_certificate

BUCKET, REGION = "data", "eu-1"
KEY_ID, SECRET = "AKIAcanary41d0", "canary-5e7c/secret+key"
COMMANDS = Path(__file__).parent / "commands"
"""A folder with a command `rclone` that does what copies of datasets ask of it."""
PATH = f"{COMMANDS}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"
PAGE = 2
"""Keys of one page of a listing."""


class Store(ThreadingHTTPServer):
    """A bucket with these objects. `words` is what it says in its refusals, `denied` keys that it refuses."""

    daemon_threads = True

    def __init__(self, objects, certificate):
        super().__init__(("127.0.0.1", 0), _Request)
        self.objects, self.certificate = dict(objects), certificate
        self.words, self.denied, self.refused, self.served = "no", set(), [], []

    @property
    def url(self):
        return f"https://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """A client that goes away is none of our business."""


@contextmanager
def running(objects, folder):
    """A store that runs, with its certificate in the folder."""
    certificate, key = folder / "store.pem", folder / "store.key"
    write_certificate(certificate, key)
    store = Store(objects, certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    store.socket = context.wrap_socket(store.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        store.shutdown()
        thread.join()
        store.server_close()


class _Request(BaseHTTPRequestHandler):
    server: Store
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Nothing on the console."""

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def _answer(self):
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        asked = dict(parse_qsl(parts.query, keep_blank_values=True))
        if fault := self._fault(parts):
            self.server.refused.append(fault)
            self._refuse(403, fault)
        elif bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
        elif not key:
            self.server.served.append("list")
            self._send(200, self._listing(asked).encode(), {"Content-Type": "application/xml"})
        elif key in self.server.denied:
            self._refuse(403, "AccessDenied")
        elif key not in self.server.objects:
            self._refuse(404, "NoSuchKey")
        else:
            self.server.served.append(key)
            content = self.server.objects[key]
            tag = hashlib.md5(content, usedforsecurity=False).hexdigest()
            self._send(200, content, {"ETag": f'"{tag}"', "Last-Modified": MODIFIED})

    def _refuse(self, status, code):
        said = f"<Error><Code>{code}</Code><Message>{escape(self.server.words)}</Message></Error>"
        self._send(status, said.encode(), {"Content-Type": "application/xml"})

    def _send(self, status, body, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _listing(self, asked):
        """One page of the keys, all of them in the end, below a prefix and up to a delimiter."""
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after = asked.get("continuation-token", asked.get("marker", ""))
        names = {}
        for key in self.server.objects:
            if key.startswith(prefix):
                head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key[len(prefix) :], "", "")
                names[prefix + head + found] = bool(found)
        page = sorted(name for name in names if name > after)
        is_cut, page = len(page) > PAGE, page[:PAGE]
        write = (lambda text: quote(text, safe="/")) if asked.get("encoding-type") == "url" else escape
        rows = "".join(
            f"<CommonPrefixes><Prefix>{write(name)}</Prefix></CommonPrefixes>"
            if names[name]
            else f"<Contents><Key>{write(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{len(self.server.objects[name])}</Size></Contents>"
            for name in page
        )
        last = page[-1] if page else ""
        more = f"<NextMarker>{write(last)}</NextMarker><NextContinuationToken>{escape(last)}</NextContinuationToken>"
        encoding = f"<EncodingType>{asked['encoding-type']}</EncodingType>" if "encoding-type" in asked else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{encoding}{more if is_cut else ''}{rows}</ListBucketResult>"
        )

    def _fault(self, parts):
        """Why the request is not signed with our key; empty if it is."""
        scheme, _, rest = self.headers.get("Authorization", "").partition(" ")
        if scheme != "AWS4-HMAC-SHA256":
            return "AccessDenied"
        given = dict(part.strip().split("=", 1) for part in rest.split(","))
        key_id, day, region, service, _ = given["Credential"].split("/")
        if key_id != KEY_ID:
            return "InvalidAccessKeyId"
        names = given["SignedHeaders"].split(";")
        query = sorted(
            (quote(name, safe=""), quote(value, safe=""))
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        )
        request = "\n".join(
            [
                self.command,
                parts.path,
                "&".join(f"{name}={value}" for name, value in query),
                *(f"{name}:{' '.join(self.headers.get(name, '').split())}" for name in names),
                "",
                given["SignedHeaders"],
                self.headers["x-amz-content-sha256"],
            ]
        )
        scope = f"{day}/{region}/{service}/aws4_request"
        text = f"{scheme}\n{self.headers['x-amz-date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signing = f"AWS4{SECRET}".encode()
        for word in (day, region, service, "aws4_request"):
            signing = hmac.digest(signing, word.encode(), "sha256")
        right = hmac.new(signing, text.encode(), "sha256").hexdigest()
        is_ours = region == REGION and hmac.compare_digest(right, given["Signature"])
        return "" if is_ours else "SignatureDoesNotMatch"


def variables(store, *, key_id=KEY_ID, secret=SECRET):
    """What a copy has in its environment besides the key's variables' names."""
    return {
        "RCLONE_CONFIG_SOURCE_ACCESS_KEY_ID": key_id,
        "RCLONE_CONFIG_SOURCE_SECRET_ACCESS_KEY": secret,
        "SSL_CERT_FILE": str(store.certificate),
    }
