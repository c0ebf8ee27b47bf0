"""Django settings, all from the environment. The embedded default needs none of it: SQLite, one process, no broker.

PostgreSQL with Celery, beat and Channels changes variables only. README lists them; ``manage.py check`` judges them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from config.environment import BROKERS, REDIS_SCHEMES, Environment, local_secret

BASE_DIR = Path(__file__).resolve().parent.parent
STATE_DIR = Path(os.environ.get("HELIX_STATE_DIR") or BASE_DIR / "var")

_env = Environment(os.environ)

# --- Deployment -------------------------------------------------------------------------------------------------------

DEBUG = _env.flag("DJANGO_DEBUG", default=False)
ALLOWED_HOSTS = _env.words("DJANGO_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = _env.words("DJANGO_CSRF_TRUSTED_ORIGINS")

STATE_DIR.mkdir(parents=True, exist_ok=True)
DATABASES = {"default": _env.database("DATABASE_URL", STATE_DIR / "helix.sqlite3")}
_IS_EMBEDDED_DATABASE = DATABASES["default"]["ENGINE"] == "helix.db.sqlite"

SECRET_KEY = _env.text("DJANGO_SECRET_KEY") or local_secret(STATE_DIR / "secret_key")
# Judged by helix.checks: several hosts that each make up a key refuse one another's logins and tokens.
HELIX_SECRET_KEY_IS_LOCAL = not _env.text("DJANGO_SECRET_KEY")

# Which process this is. The web process bounds every publish tightly; a worker's blocking reads outlast that.
HELIX_ROLE = _env.choice("HELIX_ROLE", ("all", "web", "worker", "beat"))

# Behind TLS: cookies only over HTTPS, and browsers are told to stay there.
_HTTPS = _env.flag("DJANGO_HTTPS", default=False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if _HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = _HTTPS
SECURE_SSL_REDIRECT = _HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _HTTPS else None
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

# --- Applications -----------------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "channels",
    "django_celery_beat",
    "django_htmx",
    "helix",
    "approvals",
    "demo",
]

MIDDLEWARE = [
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
ASGI_APPLICATION = "config.asgi.application"

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
            ],
        },
    },
]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Served by WhiteNoise straight from the sources; a directory to collect into is the operator's choice.
STATIC_ROOT = _env.text("DJANGO_STATIC_ROOT") or None
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
WHITENOISE_AUTOREFRESH = DEBUG

# --- Helix (contract section 6; the table is helix.conf.SETTINGS) -----------------------------------------------------

HELIX_AUTHENTICATE: str | None = "helix.api.auth.login_or_token"
HELIX_APPROVAL_POLICY = "approvals.policy.AssignmentPolicy"
globals().update(_env.helix_values)
# An operator who opts out of authentication gets what was asked for, not the hook of this project.
if _env.helix_values.get("HELIX_ALLOW_UNAUTHENTICATED") and "HELIX_AUTHENTICATE" not in _env.helix_values:
    HELIX_AUTHENTICATE = None

# Django refuses a body over this untyped, so it must not be below any cap of ours.
DATA_UPLOAD_MAX_MEMORY_SIZE = max(4 * _env.helix("HELIX_MAX_RESULT_BYTES"), _env.helix("HELIX_MAX_CHAT_BODY_BYTES"))

# --- Wakes, cache, REST -----------------------------------------------------------------------------------------------

_CHANNEL_URL = _env.url("HELIX_CHANNEL_URL", "memory://", ("memory", *REDIS_SCHEMES))
CHANNEL_LAYERS: dict[str, dict[str, Any]]
if _CHANNEL_URL == "memory://":
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
else:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [_CHANNEL_URL], "prefix": "helix"},
        }
    }

# Throttle counters live here: per process unless an address is given.
_CACHE_URL = _env.url("HELIX_CACHE_URL", _CHANNEL_URL, ("memory", *REDIS_SCHEMES))
if _CACHE_URL == "memory://":
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
else:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": _CACHE_URL}}

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}
SPECTACULAR_SETTINGS = {"TITLE": "Helix", "VERSION": "1", "SERVE_INCLUDE_SCHEMA": False}

# --- Celery: messages are nudges, rows are the truth ------------------------------------------------------------------

CELERY_BROKER_URL = _env.url("HELIX_BROKER_URL", "memory://", tuple(BROKERS))
if CELERY_BROKER_URL == "memory://":
    # Without a host, the transport warns that it assumes one.
    CELERY_BROKER_URL = "memory://localhost"
CELERY_TIMEZONE = "UTC"
CELERY_TASK_DEFAULT_QUEUE = "helix"
# The sweep has its own queue and its own worker: a worker full of slow models must not delay a deadline.
CELERY_TASK_ROUTES = {"helix.sweep": {"queue": "helix.sweep"}}
# Nothing waits for a result, and nothing outside the rows remembers one.
CELERY_TASK_IGNORE_RESULT = True
CELERY_RESULT_BACKEND = None
# Early acknowledgement: a second delivery could start while the first runs. A lost message costs one sweep.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Clocks that would end a healthy body (liveness section 12) stay off.
CELERY_TASK_TIME_LIMIT = None
CELERY_TASK_SOFT_TIME_LIMIT = None
CELERY_WORKER_MAX_TASKS_PER_CHILD = None
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
# No remote command may end what a worker runs; a stop is a row.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_BEAT_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
# A publish is tried once and briefly: a broker that accepts and never answers must not hold a submit.
CELERY_TASK_PUBLISH_RETRY = False
_BOUND_SECONDS = 0.5 if HELIX_ROLE == "web" else 10
CELERY_BROKER_CONNECTION_TIMEOUT = _BOUND_SECONDS
_TRANSPORT_OPTIONS: dict[str, dict[str, object]] = {
    # The default of one second would be the delay of every run in the embedded process.
    "memory": {"polling_interval": 0.02},
    "amqp": {"max_retries": 0, "connect_timeout": _BOUND_SECONDS, "write_timeout": _BOUND_SECONDS},
    "redis": {
        "max_retries": 0,
        "socket_connect_timeout": _BOUND_SECONDS,
        "socket_timeout": _BOUND_SECONDS,
        "retry_on_timeout": False,
    },
}
CELERY_BROKER_TRANSPORT_OPTIONS = _TRANSPORT_OPTIONS[BROKERS[urlsplit(CELERY_BROKER_URL).scheme]]

# --- Logs -------------------------------------------------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"events": {"()": "helix.logs.EventFilter", "threshold": "INFO"}},
    "formatters": {"events": {"()": "helix.logs.EventFormatter"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "events", "filters": ["events"]},
    },
    "root": {"handlers": ["console"], "level": "WARNING"},
    # Everything goes to the filter: a single quiet event may have been given a louder level.
    "loggers": {"helix": {"level": "DEBUG"}, "approvals": {"level": "DEBUG"}},
}

HELIX_ENVIRONMENT_PROBLEMS = tuple(_env.problems)
