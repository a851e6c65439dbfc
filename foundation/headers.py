"""What every answer tells the browser: load nothing from elsewhere, run nothing inline, keep nothing, frame nothing.

The middleware stands before all others, so redirects, refusals, defects and static files carry it too.
"""

from collections.abc import Callable, Mapping

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self';"
    " manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
)
# Pages copy a token's secret to the clipboard when a button is pressed; nothing else of a device is asked for.
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
    """What every answer of this installation carries, those included that are made without the application."""
    seconds = settings.SECURE_HSTS_SECONDS
    below = "; includeSubDomains" if settings.SECURE_HSTS_INCLUDE_SUBDOMAINS else ""
    return {**ALWAYS, **({"Strict-Transport-Security": f"max-age={seconds}{below}"} if seconds else {})}


class SecurityHeadersMiddleware:
    """Sends ALWAYS with every answer, and `Cache-Control: no-store` unless the answer says how it may be kept.

    Strict-Transport-Security goes out wherever it is configured, also on what reaches us as plain HTTP: TLS ends at a proxy,
    and a browser ignores the header where there was none.
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
