"""Formatting of values on pages: numbers with units, times, states, bars. Text is always escaped.

Bars and charts are SVG with attributes, never inline styles, so that the content security policy remains strict.
"""

from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from foundation.pages import Form

register = template.Library()
EMPTY = "–"
MILLI = 1000
"""Of a GPU or of a core, in quotas and requests: one of them."""
TONES = {
    "ready": "green", "degraded": "yellow", "unreachable": "red", "auth_failed": "red", "cordoned": "orange", "draining": "orange",
    "queued": "azure", "dispatching": "indigo", "running": "blue", "suspended": "yellow", "cancelling": "orange",
    "succeeded": "green", "failed": "red", "cancelled": "secondary",
    "reserved": "azure", "created": "indigo", "starting": "indigo", "unknown": "yellow", "preempted": "orange",
    "abandoned": "secondary", "lost": "red", "done": "green", "refused": "red", "active": "green", "expired": "secondary",
    "expires_soon": "yellow", "open": "green", "nearly_used": "yellow", "used_up": "orange", "over": "red", "revoked": "secondary", "pending": "azure", "scheduled": "azure", "ended": "secondary", "released": "secondary",
    "closing": "azure", "closed": "secondary", "fulfilled": "green", "missing": "orange", "differs": "orange", "conflicting": "orange", "resolved": "secondary",
    "answered": "azure", "accepted": "green", "unexplained": "yellow", "explained": "green", "dismissed": "secondary", "rejected": "secondary", "issued": "green", "credited": "secondary", "partly_credited": "yellow",
    "delivered": "green", "given_up": "red", "paused": "yellow", "unconfirmed": "yellow",
    "staged": "green", "copying": "blue", "stopped": "red",
    "Pending": "azure", "Running": "blue", "Succeeded": "green", "Failed": "red", "Unknown": "yellow",
}  # fmt: skip
ICONS = {
    "ready": "connected", "degraded": "warning", "unreachable": "unreachable", "auth_failed": "lock", "cancelling": "cancelled",
    "reserved": "clock", "created": "dispatching", "starting": "dispatching", "preempted": "suspended", "abandoned": "cancelled",
    "lost": "unreachable", "done": "check", "refused": "cancelled", "active": "check", "expired": "clock", "expires_soon": "clock", "revoked": "cancelled",
    "open": "check", "nearly_used": "warning", "used_up": "suspended", "over": "warning", "pending": "clock", "scheduled": "clock", "ended": "check", "released": "clock",
    "closing": "clock", "closed": "lock", "fulfilled": "check", "missing": "warning", "differs": "warning", "conflicting": "warning", "resolved": "check",
    "delivered": "check", "given_up": "warning", "paused": "suspended", "unconfirmed": "clock",
    "staged": "check", "copying": "dispatching", "stopped": "suspended",
    "issued": "check", "unexplained": "warning", "explained": "check", "dismissed": "cancelled", "credited": "cancelled", "partly_credited": "warning",
}  # fmt: skip
SAME_NAME = {
    "queued", "dispatching", "running", "suspended", "succeeded", "failed", "cancelled", "unknown", "cordoned", "draining",
}  # fmt: skip


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """A decorative drawing: the text next to it has the information."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        css,
        static("icons/sprite.svg"),
        name,
    )


@register.simple_tag
def state(word: str) -> SafeString:
    """A state as icon and word; the colour only repeats them."""
    drawing = word if word in SAME_NAME else ICONS.get(word, word.lower() if word.lower() in SAME_NAME else "info")
    return format_html(
        '<span class="state state-{}">{}{}</span>', TONES.get(word, "secondary"), icon(drawing), word.replace("_", " ")
    )


@register.filter
def words(code: str) -> str:
    """A code such as `waiting_for_capacity` as readable text."""
    return str(code).replace("_", " ")


@register.filter
def tenant_path(path: str) -> SafeString:
    """A path with line breaks allowed only after its slashes."""
    return format_html_join(mark_safe("/<wbr>"), "{}", ((name,) for name in str(path).split("/")))


@register.filter
def event_words(kind: str) -> str:
    """An event's kind such as `cluster.credential_changed` without its noun."""
    return words(str(kind).rpartition(".")[2]).capitalize()


def _time(at: datetime | None, show: str, pattern: str) -> SafeString | str:
    if at is None:
        return EMPTY
    utc = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC" data-show="{}">{} UTC</time>',
        utc.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        utc.strftime("%Y-%m-%d %H:%M:%S"),
        show,
        utc.strftime(pattern),
    )


@register.filter
def instant(at: datetime | None) -> SafeString | str:
    """Day and minute; the page's script rewrites it in the reader's zone."""
    return _time(at, "minute", "%d %b %H:%M")


@register.filter
def precise(at: datetime | None) -> SafeString | str:
    """Day and second."""
    return _time(at, "precise", "%d %b %H:%M:%S")


@register.filter
def clock(at: datetime | None) -> SafeString | str:
    """Only the minute, for times of today."""
    return _time(at, "clock", "%H:%M")


@register.filter
def ago(at: datetime | None) -> SafeString | str:
    """The time elapsed; without script, the time itself."""
    return _time(at, "relative", "%d %b %H:%M")


@register.filter
def duration(length: timedelta | float | None) -> str:
    """Two units at most: `2 h 05 min`, `3 min 20 s`, `14 s`."""
    if length is None:
        return EMPTY
    seconds = int(length.total_seconds() if isinstance(length, timedelta) else length)
    days, rest = divmod(max(seconds, 0), 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    if days:
        return f"{days} d {hours:02d} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


@register.filter
def number(value: float | Decimal | None) -> str:
    """A count with thousands separators."""
    return EMPTY if value is None else f"{value:,}"


@register.filter
def significant(value: float | None) -> str:
    """A measured number with four significant digits."""
    return EMPTY if value is None else f"{value:.4g}"


@register.filter
def money(amount: Decimal | None, currency: str = "USD") -> str:
    """An amount rounded to cents for display (half even); exports have every digit."""
    if amount is None:
        return EMPTY
    if amount and abs(amount) < Decimal("0.01"):
        return f"{amount.quantize(Decimal('0.0001'), ROUND_HALF_EVEN):,} {currency}"
    return f"{amount.quantize(Decimal('0.01'), ROUND_HALF_EVEN):,} {currency}"


def _trimmed(value: Decimal) -> str:
    text = f"{value:,.3f}"
    return text.rstrip("0").rstrip(".")


@register.filter
def memory(mib: int | None) -> str:
    """MiB in the most readable unit."""
    if mib is None:
        return EMPTY
    for factor, unit in ((1024**2, "TiB"), (1024, "GiB")):
        if mib >= factor:
            return f"{Decimal(mib) / factor:,.1f}".removesuffix(".0") + f" {unit}"
    return f"{mib:,} MiB"


@register.filter
def cores(millicores: int | None) -> str:
    """Millicores as cores."""
    return (
        EMPTY
        if millicores is None
        else f"{_trimmed(Decimal(millicores) / 1000)} core{'' if millicores == MILLI else 's'}"
    )


@register.filter
def amount(value: int | None, resource: str) -> str:
    """A quota amount in base units (milli-GPU, millicores, MiB, jobs) with its unit."""
    if value is None:
        return EMPTY
    if resource == "jobs":
        return f"{value:,} job{'' if value == 1 else 's'}"
    if resource == "memory":
        return memory(value)
    if resource == "cpu":
        return cores(value)
    return f"{_trimmed(Decimal(value) / 1000)} GPU{'' if value == MILLI else 's'}"


@register.filter
def at_key(mapping: Any, key: Any) -> Any:
    """The value under a key that is not a plain name."""
    return mapping.get(key) if hasattr(mapping, "get") else None


@register.simple_tag
def bar(used: float, total: float, label: str, tone: str = "", other: float = 0) -> SafeString:
    """A bar of `used` (and `other`, in a second colour) in `total`; screen readers get its label instead of the
    picture. A credit (less than 0) shows as nothing used.
    """
    used = max(float(used), 0)
    whole = max(float(total), used + float(other), 1e-9)
    first, second = 100 * used / whole, 100 * float(other) / whole
    return format_html(
        '<svg class="bar" role="img" aria-label="{}" preserveAspectRatio="none">'
        '<rect class="bar-track" width="100%" height="100%"/><rect class="bar-used {}" width="{}%" height="100%"/>'
        '<rect class="bar-other" x="{}%" width="{}%" height="100%"/></svg>',
        label,
        f"bar-{tone}" if tone else "",
        f"{first:.2f}",
        f"{first:.2f}",
        f"{second:.2f}",
    )


@register.simple_tag(takes_context=True)
def current(context: template.Context, *beginnings: str, but: str = "") -> SafeString:
    """`aria-current` if the displayed page's route is one of these, such as `jobs`, or below one of them, and not below `but`."""
    match = getattr(context.get("request"), "resolver_match", None)
    if (
        match is None
        or not any(_is_below(match.route, one) for one in beginnings)
        or (but and _is_below(match.route, but))
    ):
        return mark_safe("")
    return mark_safe('aria-current="page"')


def _is_below(route: str, beginning: str) -> bool:
    return route.startswith(f"{beginning}/") if beginning else not route


@register.simple_tag(takes_context=True)
def with_query(context: template.Context, **changes: str | None) -> str:
    """The page's own query string with some parameters changed or (if empty) dropped."""
    query = context["request"].GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value:
            query[name] = value
    return f"?{query.urlencode()}" if query else "?"


@register.inclusion_tag("components/tenant_matches.html", takes_context=True)
def tenant_matches(context: template.Context, match: Any) -> dict[str, Any]:
    """The tenants that a partly typed name matches (`tenancy.queries.TenantMatch`), each with the page for it alone."""
    links = [(path, with_query(context, tenant=path, cursor="")) for path in match.named]
    return {"match": match, "links": links, "more": match.count - len(links)}


@register.inclusion_tag("components/field.html")
def field(form: Form, name: str, label: str, kind: str = "text", **look: Any) -> dict[str, Any]:
    """A labelled control with hint and errors tied to it."""
    errors = form.errors.get(name, ())
    described = " ".join(
        part for part in (f"h-{name}" if look.get("hint") else "", f"e-{name}" if errors else "") if part
    )
    return {
        "rows": 8,
        "autocomplete": "off",
        **look,
        "name": name,
        "label": label,
        "kind": kind,
        "value": form.values.get(name, ""),
        "errors": errors,
        "described": described,
    }


@register.inclusion_tag("components/empty.html")
def empty(drawing: str, title: str, text: str, href: str = "", action: str = "") -> dict[str, str]:
    """The message, and the next step, for an empty list."""
    return {"drawing": drawing, "title": title, "text": text, "href": href, "action": action}


@register.inclusion_tag("components/problem.html")
def problem(form: Form) -> dict[str, Form]:
    """Errors of a form as a whole."""
    return {"form": form}


@register.simple_tag
def between(start: datetime, end: datetime) -> str:
    """The length of a finished interval."""
    return duration(end - start)


@register.filter
def hours(value: Decimal | None) -> str:
    """Hours with two decimals."""
    return EMPTY if value is None else f"{value.quantize(Decimal('0.01'), ROUND_HALF_EVEN):,}"


@register.filter
def plain_money(amount: Decimal | None) -> str:
    """An amount whose currency is in the column's head."""
    return money(amount, "").strip()


@register.filter
def rate(price: Decimal | None, currency: str = "USD") -> str:
    """A unit price with every digit that matters, two at least."""
    if price is None:
        return EMPTY
    whole, _, fraction = f"{price:,f}".partition(".")
    return f"{whole}.{fraction.rstrip('0').ljust(2, '0')} {currency}"


@register.filter
def grouped(figure: str) -> str:
    """A decimal figure of a document with thousands separators and all its digits."""
    return f"{Decimal(figure):,f}"


@register.filter
def shortest(figure: str) -> str:
    """A decimal figure of a document without the zeros at its end."""
    whole, _, fraction = f"{Decimal(figure):,f}".partition(".")
    return f"{whole}.{fraction}".rstrip("0").rstrip(".")


@register.filter
def calendar(text: str) -> str:
    """A month or a day of a document, `2026-08` or `2026-08-31`, as readers write it."""
    day = date.fromisoformat(text if text.count("-") > 1 else f"{text}-01")
    return f"{day:%B %Y}" if text.count("-") == 1 else f"{day.day} {day:%B %Y}"
