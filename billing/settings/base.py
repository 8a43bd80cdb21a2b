"""Settings from environment variables (12-factor), with safe defaults.

| Variable | Meaning | Default |
|---|---|---|
| DATABASE_URL | postgresql://user:password@host:port/name of the application; host:port,host:port | embedded PostgreSQL |
| DATABASE_OWNER_URL | the same with the role that owns the tables, for `migrate` and `restore_check` | none: DATABASE_URL |
| DATABASE_REPLICA_URL | the same for a streaming replica, which read-only pages then use | none: the primary |
| DATABASE_REPLICA_MAX_LAG_SECONDS | largest lag of the replica; beyond it pages read the primary | 10 |
| DATABASE_DISK_BYTES | size of the disk of the database, for the alarm before it is full; 0: not watched | 0 |
| BROKER_URL | redis://... or amqp://... | embedded Valkey of SUANPAN_HOME |
| SECRET_KEY | signing key | generated once per home |
| ALLOWED_HOSTS | comma separated | localhost,127.0.0.1,[::1] |
| METRICS_HOSTS | public hosts that serve `/metrics` too, comma separated | none: addresses, names within the network |
| CSRF_TRUSTED_ORIGINS | comma separated, with scheme | none |
| SECURE_COOKIES | 1 behind TLS | 0 |
| SUANPAN_DEBUG | 1 for tracebacks in the browser | 0 |
| LOG_LEVEL | DEBUG, INFO, WARNING or ERROR | WARNING |
| LOG_FORMAT | line, or json: one object per line, with the request id; the images set json | line |
| OTEL_EXPORTER_OTLP_ENDPOINT | OpenTelemetry collector that gets traces: http://collector:4318 | none: no traces |
| STATIC_ROOT | where `collectstatic` puts files | staticfiles/ |
| INGEST_MAX_BYTES | largest body of a usage endpoint | 16777216 |
| INGEST_MAX_INFLIGHT_BYTES | bytes of bodies that one web process buffers at a time, then 503 | 67108864 |
| INGEST_MAX_CONNECTIONS | open connections of one web worker, then 503 | 4096 |
| WEB_WORKERS | web workers of one host | 2 |
| WEB_THREADS | request threads of one web worker | 16 |
| FUTURE_TOLERANCE_SECONDS | largest lead of a reported instant over the clock | 86400 |
| TOKEN_STORE | clickhouse://host:port,host:port/database keeps token records; `;` between shards | none: PostgreSQL |
| TOKEN_RETENTION_MONTHS | whole months after which `usage_drop` removes sealed token records; 0: never | 0 |
| PRICE_NOTICE_BUSINESS_DAYS | notice that a price change should have; shorter is shown and recorded, not refused | 10 |
| FISCAL_YEAR_START | month with which a fiscal year begins, 1 to 12; it is named by the year in which it ends | 1 |
| EVENT_NAMINGS | JSON: type of event -> names of its data's fields, see `metering.gateways.naming` | litellm_tokens |
| OTLP_CONSUMERS | attributes, `,` between: the first that a span has is its consumer | suanpan.consumer,user.id,enduser.id |
| ESTIMATES_FROM | sources, `,` between, whose estimates are billed; `*`: all | none: estimates go to quarantine |
| CACHE_URL | redis://... for budget reservations; needed where BROKER_URL is amqp://... | BROKER_URL |
| DEFAULT_LANGUAGE | en or zh-hans: alerts to recipients without a language, pages where the browser asks for neither | en |
| ALERT_MAIL_URL | mail server for alerts, an Apprise address: mailtos://user:password@host?from=a@b | none: no mail |
| MAIL_URL | mail server for documents: smtp+tls://user:password@host:port, also smtp://, smtps:// | none: no mail |
| MAIL_FROM | sender address of documents and of links to reset a password | none, needed with MAIL_URL |
| AUDIT_ANCHOR | places for the head of the audit log: file:///path, syslog://host, https://..., s3://bucket/prefix | none |
| PORTAL_URL | public address of the portal, for links in mails: https://billing.example.com | none: no link |
| OIDC_SERVER_URL, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET | the identity provider (OpenID Connect); all three or none | none |
| OIDC_NAME | its name on the sign-in button | Single sign-on |
| OIDC_SCOPES | requested scopes, separated by blanks | openid profile email |
| OIDC_SUBJECT_CLAIM | claim that identifies a person permanently | sub |
| OIDC_GROUPS_CLAIM | claim that lists a person's groups; none: only SCIM does | groups |
| OIDC_ROLES | JSON: group -> role, or role:team; see `docs/identity.md` | {} |
| OIDC_SECOND_FACTOR | its claims that count as a second factor: acr:VALUE,amr:VALUE | none: any sign-in does |
| REQUIRE_TWO_FACTOR | 1: people need a second factor, of their own or of the identity provider | 0 |
| SESSION_HOURS, SESSION_IDLE_MINUTES | longest session, and longest time without a request | 8, 60 |
| SIGN_INS_PER_MINUTE | attempts to sign in of one address, then 429; 0: no limit | 30 |
| INVALID_TOKENS_PER_MINUTE | API tokens of one address that are not valid, then 429; 0: no limit | 60 |
| TRUSTED_PROXIES | number of your proxies before the web workers | 0 |
| LITELLM_CONSUMER | fields of a LiteLLM payload for the consumer, first found: team_id, hash, alias, ... | team_id,hash |
"""

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy

from billing.runtime.home import secret
from billing.settings.database_url import VANISHED, read_database
from billing.settings.identity_settings import PROVIDER_ID, provider_apps, read_group_roles, read_second_factor
from billing.settings.mail_server import read_mail_server
from billing.tenancy.anchor_places import PlaceError, anchor_place
from billing.usage.store.clickhouse import servers_read
from metering.gateways.litellm import read_consumer
from metering.gateways.naming import read_namings
from metering.record_checks import RecordError

BASE_DIR = Path(__file__).resolve().parents[2]


def _flag(name: str) -> bool:
    value = os.environ.get(name, "0")
    if value not in ("0", "1"):
        raise ImproperlyConfigured(f"{name}={value!r} must be 0 or 1")
    return value == "1"


def _count(name: str, default: int, least: int = 0) -> int:
    value = os.environ.get(name, str(default))
    if not value.isdigit() or int(value) < least:
        raise ImproperlyConfigured(f"{name}={value!r} must be a whole number{f', {least} or more' if least else ''}")
    return int(value)


def _month(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    if value not in {str(number) for number in range(1, 13)}:
        raise ImproperlyConfigured(f"{name}={value!r} must be a month, 1 to 12")
    return int(value)


def _list(name: str, default: str = "") -> list[str]:
    return [item.strip() for item in os.environ.get(name, default).split(",") if item.strip()]


def _cache(url: str, broker: str) -> str:
    """Return the URL of the Valkey for reservations: CACHE_URL, or the broker if it is Redis or Valkey."""
    chosen = url or broker
    if chosen and urlsplit(chosen).scheme not in ("redis", "rediss", "unix"):
        name = "CACHE_URL" if url else "BROKER_URL"
        raise ImproperlyConfigured(
            f"{name} has scheme {urlsplit(chosen).scheme!r}; reservations of budgets are kept in Valkey or Redis:"
            " set CACHE_URL to redis://host:6379/0"
        )
    return chosen


REPLICA_VANISHED = {**VANISHED, "connect_timeout": "2", "tcp_user_timeout": "5000"}
"""libpq parameters that detect an unreachable replica within seconds, while a reader waits for a page."""


def _beside(
    url: str, variable: str, application: dict[str, Any], unless_given: Mapping[str, str] = VANISHED
) -> dict[str, Any] | None:
    """Read another connection to the application's database; None without `url`."""
    if not url:
        return None
    found = read_database(url, variable, unless_given)
    if found["NAME"] != application["NAME"]:
        raise ImproperlyConfigured(f"{variable} and DATABASE_URL name different databases")
    return found


def _owner(url: str, application: dict[str, Any]) -> dict[str, Any] | None:
    """Read the connection of the owner of the tables; None without `url`."""
    owner = _beside(url, "DATABASE_OWNER_URL", application)
    if owner is not None and owner["USER"] == application["USER"]:
        raise ImproperlyConfigured("DATABASE_OWNER_URL and DATABASE_URL name the same role: use two, or only the second")
    return owner


DEBUG = _flag("SUANPAN_DEBUG")
SECRET_KEY = os.environ.get("SECRET_KEY") or secret("django-secret-key")
ALLOWED_HOSTS = _list("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
METRICS_HOSTS = _list("METRICS_HOSTS")
CSRF_TRUSTED_ORIGINS = _list("CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "billing.settings.administration.AdministrationConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "django.forms",
    "rest_framework",
    "drf_spectacular",
    "django_htmx",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.mfa",
    "billing.tenancy",
    "billing.approvals",
    "billing.usage",
    "billing.rates",
    "billing.rating",
    "billing.invoices",
    "billing.corrections",
    "billing.exports",
    "billing.closing",
    "billing.budgets",
    "billing.explorer",
    "billing.monitoring",
    "billing.inbox",
    "billing.api",
    "billing.portal",
    "billing.setup",
    "billing.local",
    "billing.backup",
    "billing.settings",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "billing.settings.security_headers.SecurityHeadersMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "billing.settings.sessions.SessionLimitsMiddleware",
    "billing.settings.sessions.OwnPasswordMiddleware",
    "billing.settings.sessions.RequireTwoFactorMiddleware",
    "billing.settings.form_addresses.FormAddressesMiddleware",
    "billing.settings.exports_audited.ExportsAuditedMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "billing.settings.read_replica.ReadReplicaMiddleware",
]
ROOT_URLCONF = "billing.settings.urls"
WSGI_APPLICATION = "billing.settings.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "billing.portal.access.rights",
            ]
        },
    }
]
DATABASES = {"default": read_database(os.environ.get("DATABASE_URL", ""))}
_replica_url = os.environ.get("DATABASE_REPLICA_URL", "")
if _replica := _beside(_replica_url, "DATABASE_REPLICA_URL", DATABASES["default"], REPLICA_VANISHED):
    DATABASES["replica"] = _replica
DATABASE_REPLICA_MAX_LAG_SECONDS = _count("DATABASE_REPLICA_MAX_LAG_SECONDS", 10, least=1)
DATABASE_OWNER = _owner(os.environ.get("DATABASE_OWNER_URL", ""), DATABASES["default"])
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
# shared by all web workers, so that a rate limit applies to all of them together
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "suanpan_cache",
        "OPTIONS": {"MAX_ENTRIES": 10_000},  # beyond them counters and used logout tokens are dropped
    }
}
ALLAUTH_TRUSTED_PROXY_COUNT = _count("TRUSTED_PROXIES", 0)
ACCOUNT_ADAPTER = "billing.settings.identity.LocalAccounts"
ACCOUNT_FORMS = {"change_password": "billing.settings.own_password.OwnPasswordForm"}
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_UNIQUE_EMAIL = False  # a mail address does not identify an account: its name does, or the provider's identifier
ACCOUNT_SESSION_REMEMBER = False
SIGN_INS_PER_MINUTE = _count("SIGN_INS_PER_MINUTE", 30)
INVALID_TOKENS_PER_MINUTE = _count("INVALID_TOKENS_PER_MINUTE", 60)
ACCOUNT_RATE_LIMITS = {
    "login": f"{SIGN_INS_PER_MINUTE}/m/ip" if SIGN_INS_PER_MINUTE else None,
    "login_failed": "10/m/ip,5/5m/key",
    "login_failed_device": "5/5m/key",
    "logout_token_failed": "30/m/ip",
    "api_token_failed": f"{INVALID_TOKENS_PER_MINUTE}/m/key" if INVALID_TOKENS_PER_MINUTE else None,
}
SOCIALACCOUNT_ADAPTER = "billing.settings.identity.ProviderAccounts"
SOCIALACCOUNT_PROVIDERS: dict[str, dict[str, Any]] = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": provider_apps(os.environ),
        "provider_class": "billing.settings.openid.NonceProvider",
    },
}
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_AUTO_SIGNUP = True
MFA_ADAPTER = "billing.settings.two_factor.SealedSecrets"
MFA_SUPPORTED_TYPES = ["webauthn", "totp", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "Suanpan"
MFA_TOTP_TOLERANCE = 1  # accept an expired code for another half minute (RFC 6238, 5.2)
REQUIRE_TWO_FACTOR = _flag("REQUIRE_TWO_FACTOR")
SESSION_HOURS, SESSION_IDLE_MINUTES = _count("SESSION_HOURS", 8), _count("SESSION_IDLE_MINUTES", 60)
SESSION_COOKIE_AGE = SESSION_HOURS * 3600
OIDC_PROVIDER_ID = PROVIDER_ID
OIDC_GROUPS_CLAIM = os.environ.get("OIDC_GROUPS_CLAIM") or "groups"
try:
    OIDC_ROLES = read_group_roles(os.environ.get("OIDC_ROLES", ""))
except ValueError as error:
    raise ImproperlyConfigured(f"OIDC_ROLES: {error}") from error
try:
    OIDC_SECOND_FACTOR = read_second_factor(os.environ.get("OIDC_SECOND_FACTOR", ""))
except ValueError as error:
    raise ImproperlyConfigured(f"OIDC_SECOND_FACTOR: {error}") from error

if "HOUSE_LANGUAGE" in os.environ:
    raise ImproperlyConfigured("HOUSE_LANGUAGE is now called DEFAULT_LANGUAGE: rename it, or it would be ignored in silence")

LOGIN_URL = "portal:login"
LOGIN_REDIRECT_URL = "portal:home"
LOGOUT_REDIRECT_URL = "portal:login"

UNFOLD = {
    "SITE_TITLE": "Suanpan", "SITE_HEADER": "Suanpan 算盘",
    "SITE_SUBHEADER": gettext_lazy("Administration"), "SITE_URL": "/",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "/static/portal/mark.svg"}],
    "SITE_ICON": lambda _: "/static/portal/mark.svg",
    "COLORS": {"primary": {  # from tint to shade, around the cinnabar of the portal
        str(step): f"oklch({light}% {chroma} 29)" for step, light, chroma in (
            (50, 97, .012), (100, 94, .027), (200, 88, .055), (300, 80, .092), (400, 68, .14), (500, 55, .155),
            (600, 46, .145), (700, 41, .13), (800, 36, .11), (900, 31, .09), (950, 24, .07),
        )
    }},
}  # fmt: skip

TIME_ZONE = "UTC"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LANGUAGE_CODE = os.environ.get("DEFAULT_LANGUAGE", "en")
if LANGUAGE_CODE not in dict(LANGUAGES):
    raise ImproperlyConfigured(f"DEFAULT_LANGUAGE={LANGUAGE_CODE!r} must be one of {', '.join(dict(LANGUAGES))}")
LOCALE_PATHS = [BASE_DIR / "locale"]

STATIC_URL = "/static/"
STATIC_ROOT = Path(os.environ.get("STATIC_ROOT", BASE_DIR / "staticfiles"))
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _flag("SECURE_COOKIES")
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _flag("SECURE_COOKIES") else None

INGEST_MAX_BYTES = _count("INGEST_MAX_BYTES", 16 * 1024 * 1024)
INGEST_MAX_INFLIGHT_BYTES = _count("INGEST_MAX_INFLIGHT_BYTES", 64 * 1024 * 1024)
INGEST_MAX_CONNECTIONS = _count("INGEST_MAX_CONNECTIONS", 4096)
WEB_WORKERS, WEB_THREADS = _count("WEB_WORKERS", 2, least=1), _count("WEB_THREADS", 16, least=1)
DATABASE_DISK_BYTES = _count("DATABASE_DISK_BYTES", 0)
FUTURE_TOLERANCE_SECONDS = _count("FUTURE_TOLERANCE_SECONDS", 86_400)
ALERT_MAIL_URL = os.environ.get("ALERT_MAIL_URL", "")
MAIL_FROM = DEFAULT_FROM_EMAIL = SERVER_EMAIL = os.environ.get("MAIL_FROM", "")
MAIL_CONFIGURED = bool(os.environ.get("MAIL_URL"))
if (_mail := read_mail_server(os.environ.get("MAIL_URL", ""))) is not None:
    if not MAIL_FROM:
        raise ImproperlyConfigured("MAIL_URL is set: set MAIL_FROM too, the address that documents come from")
    EMAIL_HOST, EMAIL_PORT, EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail.host, _mail.port, _mail.user, _mail.password
    EMAIL_USE_TLS, EMAIL_USE_SSL = _mail.starttls, _mail.tls
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if MAIL_CONFIGURED else 'dummy'}.EmailBackend"
EMAIL_TIMEOUT = 20
try:
    AUDIT_ANCHOR = tuple(_list("AUDIT_ANCHOR"))
    for _address in AUDIT_ANCHOR:
        anchor_place(_address)
except PlaceError as error:
    raise ImproperlyConfigured(f"AUDIT_ANCHOR: {error}") from error
PORTAL_URL = os.environ.get("PORTAL_URL", "")
TOKEN_STORE = os.environ.get("TOKEN_STORE", "")
servers_read(TOKEN_STORE)
TOKEN_RETENTION_MONTHS = _count("TOKEN_RETENTION_MONTHS", 0)
PRICE_NOTICE_BUSINESS_DAYS = _count("PRICE_NOTICE_BUSINESS_DAYS", 10)
FISCAL_YEAR_START = _month("FISCAL_YEAR_START", 1)
DATA_UPLOAD_MAX_MEMORY_SIZE = INGEST_MAX_BYTES
DATA_UPLOAD_MAX_NUMBER_FIELDS = 20_000  # a price list is one form: 4 fields a GPU price, 6 a model
ESTIMATES_FROM = frozenset(_list("ESTIMATES_FROM"))
OTLP_CONSUMERS = tuple(_list("OTLP_CONSUMERS")) or ("suanpan.consumer", "user.id", "enduser.id")
try:
    EVENT_NAMINGS = read_namings(os.environ.get("EVENT_NAMINGS", ""))
    LITELLM_CONSUMER = read_consumer(os.environ.get("LITELLM_CONSUMER", ""))
except RecordError as error:
    raise ImproperlyConfigured(str(error)) from error

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "billing.api.authentication.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "billing.api.problems.problem_response",
    "DEFAULT_PAGINATION_CLASS": "billing.api.pagination.PageNumber",
    "PAGE_SIZE": 100,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Suanpan API",
    "DESCRIPTION": "Report usage of AI compute; read prices, charges and invoices.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "billing.api.schema.reporting_endpoints",
    ],
}

CELERY_BROKER_URL = os.environ.get("BROKER_URL", "")
CACHE_URL = _cache(os.environ.get("CACHE_URL", ""), CELERY_BROKER_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # else a worker exits after its broker was unreachable for 50 minutes
CELERY_WORKER_CONSUMER = "billing.settings.worker:Consumer"
CELERY_BROKER_CONNECTION_TIMEOUT = 4
CELERY_BROKER_TRANSPORT_OPTIONS = (
    {"visibility_timeout": 3600, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    if CELERY_BROKER_URL.startswith("redis")
    else {}
)
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TIMEZONE = "UTC"
CACHE_STATEMENTS_ABOVE_LINES = 2_000
"""Number of lines and verdicts above which pages show the scheduler's last assessment of a month, and its time."""

CELERY_BEAT_SCHEDULE = {
    "heartbeat": {"task": "billing.monitoring.tasks.heartbeat", "schedule": 30.0},
    "resume-operations": {"task": "billing.closing.tasks.operations_resume", "schedule": 5.0},
    "fold-token-rollups": {"task": "billing.usage.tasks.rollups_fold", "schedule": 10.0},
    "fold-token-sequences": {"task": "billing.usage.tasks.sequences_fold", "schedule": 60.0},
    "make-token-months": {"task": "billing.usage.tasks.months_make", "schedule": 3600.0},
    "evaluate-budgets": {"task": "billing.budgets.tasks.budgets_evaluate", "schedule": 60.0},
    "send-documents": {"task": "billing.closing.tasks.documents_send", "schedule": 15.0},
    "deliver-alerts": {"task": "billing.budgets.tasks.alerts_deliver", "schedule": 15.0},
    "assess-months": {"task": "billing.closing.tasks.months_assess", "schedule": 60.0},
    "show-cost-centers-of-now": {"task": "billing.tenancy.tasks.cost_centers_refresh", "schedule": 600.0},
    "send-audit-anchors": {"task": "billing.tenancy.tasks.anchors_send", "schedule": 60.0},
    "sum-months": {"task": "billing.explorer.tasks.cubes_refresh", "schedule": 60.0},
    "send-reports": {"task": "billing.explorer.tasks.reports_send", "schedule": 60.0},
    "refresh-inbox": {"task": "billing.inbox.tasks.findings_refresh", "schedule": 300.0},
    "send-digests": {"task": "billing.inbox.tasks.digests_send", "schedule": 300.0},
    "update-outlook": {"task": "billing.budgets.tasks.outlook_update", "schedule": 900.0},
}

OTEL_EXPORTER_OTLP_ENDPOINT = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
if OTEL_EXPORTER_OTLP_ENDPOINT:
    if urlsplit(OTEL_EXPORTER_OTLP_ENDPOINT).scheme not in ("http", "https"):
        raise ImproperlyConfigured("OTEL_EXPORTER_OTLP_ENDPOINT: write http://collector:4318, or https://...")
    if find_spec("opentelemetry.sdk") is None:
        raise ImproperlyConfigured("OTEL_EXPORTER_OTLP_ENDPOINT is set: install the packages of suanpan[tracing] too")
else:  # else the Redis client would load the metrics of OpenTelemetry wherever that is installed: 10 MB and 80 ms a process
    sys.modules.update({name: None for name in ("opentelemetry.metrics", "opentelemetry.sdk.metrics")})  # type: ignore[misc]
LOG_FORMAT = os.environ.get("LOG_FORMAT") or "line"
if LOG_FORMAT not in ("line", "json"):
    raise ImproperlyConfigured(f"LOG_FORMAT={LOG_FORMAT!r} must be line or json")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"},
        "json": {"()": "billing.settings.log_lines.JsonLine"},
    },
    "filters": {"refusals": {"()": "billing.settings.log_lines.RefusalsInOneLine"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT, "filters": ["refusals"]}},
    # these log whole URLs, and the URL of a channel is its secret
    "loggers": {
        "apprise": {"level": "WARNING"},
        "urllib3": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
    },
    "root": {"handlers": ["stderr"], "level": os.environ.get("LOG_LEVEL", "WARNING")},
}
