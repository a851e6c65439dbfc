"""All settings, read from the environment. Wiring only; a wrong value stops the boot with a message that names it."""

import gc
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from whitenoise.compress import Compressor

from billing.engine.mail import check_address, read_mail_url
from clusters.engine.addresses import NEVER_REACHED
from clusters.engine.hook_servers import read_hook_url
from clusters.engine.object_stores import ANY_HOST
from config import environment as env
from config.database import read_database_url
from config.redis_url import check_redis_url
from config.routines import ROUTINES as ROUTINES
from config.table_rights import OWNERS_TRIGGERS as OWNERS_TRIGGERS
from config.table_rights import TABLE_RIGHTS as TABLE_RIGHTS
from federation.engine.intake.policy_hooks import check_token
from foundation.edge.bounds import Bounds
from foundation.edge.meters import Rates
from foundation.edge.peers import Trust

# What a process imports is never garbage, and to look for it takes a seventh of each start: `foundation.apps` enables it again.
gc.disable()

BASE_DIR = Path(__file__).resolve().parent.parent
HOME = Path(env.text("SWITCHYARD_HOME", str(BASE_DIR / ".switchyard")))
DEBUG = env.switch("SWITCHYARD_DEBUG", default=False)
# Settings that only some processes need may be absent here: `foundation.processes.demand` stops those that lack one.
SECRET_KEY = env.text("SWITCHYARD_SECRET_KEY", "")
ALLOWED_HOSTS = env.words("SWITCHYARD_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env.words("SWITCHYARD_TRUSTED_ORIGINS")

INSTALL_ID = env.text("SWITCHYARD_INSTALL_ID", "switchyard")
KEY_RING = env.text("SWITCHYARD_KEY_RING", "")
REKEYED_ABOVE = ("billing.operations.hooks.rekey_hooks",)  # what `rekey_credentials` runs for tables of higher rooms
EGRESS_ALLOW = env.networks("SWITCHYARD_EGRESS_ALLOW")
JOB_EGRESS = env.networks("SWITCHYARD_JOB_EGRESS", "0.0.0.0/0,::/0", never=NEVER_REACHED)
ALLOW_SIMULATION = env.switch("SWITCHYARD_ALLOW_SIMULATION", default=False)
REQUIRE_DIGEST = env.switch("SWITCHYARD_REQUIRE_DIGEST", default=False)
STAGE_IMAGE = env.checked("SWITCHYARD_STAGE_IMAGE", "", env.check_image)
OBJECT_STAGE_IMAGE = env.checked("SWITCHYARD_OBJECT_STAGE_IMAGE", "", env.check_pinned_image)
OBJECT_STORES = env.hosts("SWITCHYARD_OBJECT_STORES", ANY_HOST)
RESOURCES = env.resources("SWITCHYARD_RESOURCES", "hugepages-2Mi,hugepages-1Gi")
WEB_THREADS = env.number("SWITCHYARD_WEB_THREADS", 8, least=1, most=64)
SESSION_ORIGIN = env.session_origin("SWITCHYARD_SESSION_ORIGIN", ALLOWED_HOSTS)
SESSION_SOCKETS = env.number("SWITCHYARD_SESSION_SOCKETS", 256, least=0, most=10_000)
PUBLIC_URL = env.checked("SWITCHYARD_PUBLIC_URL", "", env.check_public_url)
MAIL_URL = env.checked("SWITCHYARD_MAIL_URL", "", read_mail_url)
MAIL_FROM = env.checked("SWITCHYARD_MAIL_FROM", "", check_address)
MAIL_CA = env.checked("SWITCHYARD_MAIL_CA", "", env.check_authorities)
POLICY_URL = env.checked("SWITCHYARD_POLICY_URL", "", read_hook_url)
POLICY_TOKEN = env.checked("SWITCHYARD_POLICY_TOKEN", "", check_token)
POLICY_CA = env.checked("SWITCHYARD_POLICY_CA", "", env.check_authorities)
POLICY_SECONDS = env.number("SWITCHYARD_POLICY_SECONDS", 2, least=1, most=20)
POLICY_FAILS = env.choice("SWITCHYARD_POLICY_FAILS", "closed", ("closed", "open"))
QUEUE_ORDER = env.choice("SWITCHYARD_QUEUE_ORDER", "ratio", ("ratio", "submitted"))
FAIR_SHARE = env.switch("SWITCHYARD_FAIR_SHARE", default=True)
FAIR_SHARE_HALF_LIFE_SECONDS = env.number("SWITCHYARD_FAIR_SHARE_HALF_LIFE_SECONDS", 86_400, least=60, most=31_622_400)
FAIR_SHARE_STRENGTH = env.decimal("SWITCHYARD_FAIR_SHARE_STRENGTH", "1", most=100)
FAIR_SHARE_CREDIT_CAP = env.decimal("SWITCHYARD_FAIR_SHARE_CREDIT_CAP", "0.25", most=1)
KEPT_ROOM_SECONDS = env.number("SWITCHYARD_KEPT_ROOM_SECONDS", 21_600, least=60, most=2_592_000)
PREEMPTION_MOST_VICTIMS = env.number("SWITCHYARD_PREEMPTION_MOST_VICTIMS", 16, least=0, most=1000)
RELOCATION_SHARE = env.decimal("SWITCHYARD_RELOCATION_SHARE", "0.1", most=1)
PREEMPTION_HOURLY_SHARE = env.decimal("SWITCHYARD_PREEMPTION_HOURLY_SHARE", "0.5", most=1)
PREEMPTION_KEEP_SECONDS = env.number("SWITCHYARD_PREEMPTION_KEEP_SECONDS", 600, least=60, most=86_400)
CONSOLIDATION_SHARE = env.decimal("SWITCHYARD_CONSOLIDATION_SHARE", "0.2", most=10)
CONSOLIDATION_MOST_MOVES = env.number("SWITCHYARD_CONSOLIDATION_MOST_MOVES", 8, least=0, most=100)
SAVING_HOURLY_MOVES = env.number("SWITCHYARD_SAVING_HOURLY_MOVES", 24, least=0, most=10_000)
CONSOLIDATION_HOURLY_MOVES = env.number("SWITCHYARD_CONSOLIDATION_HOURLY_MOVES", 24, least=0, most=10_000)
RESERVATION_NO_SHOW_SECONDS = env.number("SWITCHYARD_RESERVATION_NO_SHOW_SECONDS", 3600, least=0, most=2_592_000)
MOST_QUEUED = env.number("SWITCHYARD_MOST_QUEUED", 100_000, least=1)
PREPARED_STATEMENTS = env.switch("SWITCHYARD_PREPARED_STATEMENTS", default=True)
MIGRATE_LOCK_SECONDS = env.number("SWITCHYARD_MIGRATE_LOCK_SECONDS", 3, least=1, most=600)
MIGRATE_RETRY_SECONDS = env.number("SWITCHYARD_MIGRATE_RETRY_SECONDS", 600, most=86_400)
MIGRATE_STATEMENT_SECONDS = env.number("SWITCHYARD_MIGRATE_STATEMENT_SECONDS", 1200, most=86_400)
AUDIT_ANCHORS = env.text("SWITCHYARD_AUDIT_ANCHORS", "")
METRICS_TOKEN = env.text("SWITCHYARD_METRICS_TOKEN", "")
METRICS_PORT = env.number("SWITCHYARD_METRICS_PORT", 8002, least=0, most=65532)
METRICS_BIND = env.text("SWITCHYARD_METRICS_BIND", "")
CLUSTER_LOST_SECONDS = env.number("SWITCHYARD_CLUSTER_LOST_SECONDS", 40, least=1)
ANOMALY_LEAST = env.decimal("SWITCHYARD_ANOMALY_LEAST", "100", most=10**9)
SPOT_INTERRUPTIONS_PER_HOUR = env.decimal("SWITCHYARD_SPOT_INTERRUPTIONS_PER_HOUR", "0.05", most=100)
STALE_SECONDS = env.number("SWITCHYARD_STALE_SECONDS", 180, least=20)
KEEP_FINISHED_SECONDS = env.number("SWITCHYARD_KEEP_FINISHED_SECONDS", 3600, least=0)

INSTALLED_APPS = [
    "foundation",  # first: its `collectstatic` stands in for Django's
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "tenancy",
    "clusters",
    "quotas",
    "billing",
    "federation",
]
MIDDLEWARE = [
    "foundation.requests.RequestIdMiddleware",
    # Before all that belongs to the gateway's own origin: its headers, cookies and pages.
    "federation.web.session_door.SessionDoorMiddleware",
    "foundation.headers.SecurityHeadersMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "federation.web.standstill.standstill",
            ]
        },
    }
]


def _database(name: str, url: str) -> dict[str, Any]:
    try:
        return read_database_url(url, prepare=PREPARED_STATEMENTS)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} {error}") from None


def _owner(url: str) -> dict[str, Any]:
    """The role that `migrate` connects as; empty if there is one role for all."""
    if not url:
        return {}
    owner = _database("SWITCHYARD_OWNER_DATABASE_URL", url)
    if owner["NAME"] != DATABASES["default"]["NAME"]:
        raise ImproperlyConfigured("SWITCHYARD_OWNER_DATABASE_URL must name the same database as DATABASE_URL")
    return {name: owner[name] for name in ("USER", "PASSWORD", "HOST", "PORT", "OPTIONS")}


DATABASES = {"default": _database("DATABASE_URL", env.text("DATABASE_URL"))}
PROCESSES_ROLE = DATABASES["default"]["USER"]
OWNER_DATABASE = _owner(env.text("SWITCHYARD_OWNER_DATABASE_URL", ""))
REDIS_URL = env.checked("REDIS_URL", "", check_redis_url)
# Nothing is cached: important state is in rows, the rest in the process.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
# Sessions are rows, signed and in JSON; Redis stores no part of them.
SESSION_ENGINE = "django.contrib.sessions.backends.db"
SESSION_SERIALIZER = "django.contrib.sessions.serializers.JSONSerializer"

CELERY_APP = "config.celery.app"

AUTH_USER_MODEL = "tenancy.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
PASSWORD_HASHERS = [
    "foundation.passwords.GivingWayArgon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"

LANGUAGE_CODE = "en-us"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
# Created by `collectstatic`, next to its own files.
STATIC_ROOT = BASE_DIR / "staticfiles" / "served"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Names contain a hash of the content, so browsers cache a file permanently; each also exists compressed.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
WHITENOISE_SKIP_COMPRESS_EXTENSIONS = (*Compressor.SKIP_COMPRESS_EXTENSIONS, "map")  # only developers' tools load those
# Folders of packages whose pages or scripts we do not use.
STATIC_NOT_SERVED = ["rest_framework", "redoc", "django_htmx"]

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.switch("SWITCHYARD_SECURE_COOKIES", default=False)
# Browsers accept a name with this prefix only over TLS and only for this whole host: no neighbour can set one.
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = (
    ("__Host-sessionid", "__Host-csrftoken") if SESSION_COOKIE_SECURE else ("sessionid", "csrftoken")
)
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 3600 * env.number("SWITCHYARD_SESSION_HOURS", 12, least=1, most=720)
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
SECURE_SSL_REDIRECT = env.switch("SWITCHYARD_SSL_REDIRECT", default=False)
SECURE_HSTS_SECONDS = env.number("SWITCHYARD_HSTS_SECONDS", 31_536_000 if SESSION_COOKIE_SECURE else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.switch("SWITCHYARD_HSTS_SUBDOMAINS", default=True)
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
WHITENOISE_ALLOW_ALL_ORIGINS = False
SECURITY_CONTACT = env.checked("SWITCHYARD_SECURITY_CONTACT", "", env.check_contact)
# W008: the proxy that ends TLS forwards plain HTTP; SWITCHYARD_SSL_REDIRECT is for others. W021: the
# owner of a host name decides whether it goes into browsers' preload lists.
SILENCED_SYSTEM_CHECKS = ["security.W008", "security.W021"]
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
BULK_UPLOAD_MAX_BYTES = 32 * 1024 * 1024
EDGE_BOUNDS = Bounds(
    connections=env.number("SWITCHYARD_CONNECTIONS", 2000, least=16, most=60_000),
    source_connections=env.number("SWITCHYARD_SOURCE_CONNECTIONS", 200, least=4, most=60_000),
    head_seconds=env.number("SWITCHYARD_HEAD_SECONDS", 10, least=1, most=300),
    transfer_seconds=env.number("SWITCHYARD_TRANSFER_SECONDS", 20, least=1, most=300),
    body_bytes=DATA_UPLOAD_MAX_MEMORY_SIZE,
    large_bodies={"/api/v1/jobs/bulk": BULK_UPLOAD_MAX_BYTES},
)
EDGE_RATES = Rates(
    source=env.number("SWITCHYARD_SOURCE_REQUESTS", 500, most=1_000_000),
    credential=env.number("SWITCHYARD_CREDENTIAL_REQUESTS", 500, most=1_000_000),
    stranger=env.number("SWITCHYARD_STRANGER_REQUESTS", 5, most=1_000_000),
    sign_ins_a_minute=env.number("SWITCHYARD_SIGN_INS_A_MINUTE", 20, most=1_000_000),
)
EDGE_TRUST = Trust(
    [ip_network(block) for block in env.networks("SWITCHYARD_TRUSTED_PROXIES")],
    env.choice("SWITCHYARD_PROXY_HEADER", "x-forwarded-for", ("x-forwarded-for", "forwarded")),  # type: ignore[arg-type]
)
DRAIN_SECONDS = env.number("SWITCHYARD_DRAIN_SECONDS", 0, most=600)
EDGE_SIGN_IN_PATH = "/login/"
EDGE_CREDENTIAL_COOKIES = [SESSION_ORIGIN.cookie] if SESSION_ORIGIN else []  # besides that of web sessions

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tenancy.api.authentication.TokenAuthentication",
        "tenancy.api.authentication.WebSession",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["foundation.media.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["foundation.media.JSONRenderer"],
    "EXCEPTION_HANDLER": "foundation.api.answer_exception",
    "DEFAULT_SCHEMA_CLASS": "foundation.schema.RoomSchema",
    "DEFAULT_METADATA_CLASS": None,
    "URL_FORMAT_OVERRIDE": None,
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Switchyard",
    "DESCRIPTION": "Multi-cluster federation gateway.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "ENUM_NAME_OVERRIDES": {
        "TenantKind": "tenancy.models.Tenant.Kind",
        "Role": "tenancy.api.shapes.ROLES",
        "Scope": "tenancy.api.shapes.SCOPES",
        "StorageKind": "clusters.api.storages.KINDS",
        "NetworkKind": "clusters.api.networks.KINDS",
        "SecretKind": "clusters.api.secrets.KINDS",
        "StorageMode": "clusters.api.storages.MODES",
        "TopologyMode": "federation.api.shapes.MODES",
        "PeriodState": "clusters.api.windows.STATES",
        "CapacityType": "federation.engine.intake.spec.CAPACITY_TYPES",
        "JobState": "federation.api.shapes.JOB_STATES",
        "AttemptState": "federation.api.shapes.ATTEMPT_STATES",
        "ReasonCode": "placement.values.reason_codes.REASON_CODES",
        "NextStep": "federation.api.failure_shapes.STEPS",
        "FailureClass": "federation.api.failure_shapes.CLASSES",
        "ConflictState": "billing.api.conflicts.STATES",
        "AnomalyState": "billing.api.anomalies.STATES",
        "NegativeIdleState": "billing.api.node_hours.STATES",
        "RemarkState": "billing.api.disputes.STATES",
        "RemarkKind": "billing.api.disputes.KINDS",
        "CommitmentKind": "billing.engine.commitment_file.KINDS",
        "CommitmentAction": "billing.api.commitments.ACTIONS",
        "InvoiceKind": "billing.api.invoices.KINDS",
        "InvoiceLineKind": "billing.api.invoices.LINE_KINDS",
        "LossCause": "billing.api.credits.CAUSES",
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    # Hundreds of operations take a browser half a minute to draw on a busy host: each tag opens on demand.
    "SWAGGER_UI_SETTINGS": {"docExpansion": "none", "deepLinking": True},
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.text("SWITCHYARD_LOG_LEVEL", "INFO")},
    "loggers": {
        "httpx": {"level": "WARNING"},
        "httpcore": {"level": "WARNING"},
        # Two lines per message would hide what matters: the Routine rows show what ran, and failures are logged.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}
