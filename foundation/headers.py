"""Security headers of every response: no content from elsewhere, no inline scripts, no caching, no frames.

The middleware comes before all others, so redirects, refusals, defects and static files carry the headers too.
"""

from collections.abc import Callable, Mapping

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self';"
    " manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
)
# Pages copy a token's secret to the clipboard when the user presses a button; they use no other feature of a device.
ALLOWED_FEATURES = ("clipboard-write",)
DENIED_FEATURES = (
    "accelerometer", "autoplay", "camera", "clipboard-read", "cross-origin-isolated", "display-capture",
    "encrypted-media", "fullscreen", "gamepad", "geolocation", "gyroscope", "hid", "identity-credentials-get", "idle-detection",
    "keyboard-map", "local-fonts", "magnetometer", "microphone", "midi", "otp-credentials", "payment", "picture-in-picture",
    "publickey-credentials-create", "publickey-credentials-get", "screen-wake-lock", "serial", "storage-access", "sync-xhr",
    "usb", "window-management", "xr-spatial-tracking",
)  # fmt: skip
PERMISSIONS_POLICY = ", ".join(
    (*(f"{feature}=(self)" for feature in ALLOWED_FEATURES), *(f"{feature}=()" for feature in DENIED_FEATURES))
)
ALWAYS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Permissions-Policy": PERMISSIONS_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def headers() -> dict[str, str]:
    """The headers of every response of this installation, including those made without the application."""
    seconds = settings.SECURE_HSTS_SECONDS
    below = "; includeSubDomains" if settings.SECURE_HSTS_INCLUDE_SUBDOMAINS else ""
    return {**ALWAYS, **({"Strict-Transport-Security": f"max-age={seconds}{below}"} if seconds else {})}


class SecurityHeadersMiddleware:
    """Sends ALWAYS with every response, and `Cache-Control: no-store` unless the response sets its own caching.

    Strict-Transport-Security is sent wherever it is configured, also for plain HTTP: TLS ends at a proxy, and a browser
    ignores the header on a connection without TLS.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self.sent = headers()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        for name, value in self.sent.items():
            response[name] = value
        response.headers.setdefault("Cache-Control", "no-store")
        return response
