"""The environment says which databases, and which class of automatic keys."""

import os
from urllib.parse import urlsplit

import aiocosid.sync

AIOCOSID = aiocosid.sync.connect(
    os.environ.get("IDS_URL", "sqlite:///ids.db"), namespace="shop", create=True
)
DEFAULT_AUTO_FIELD = os.environ.get("AUTO_FIELD", "aiocosid.integrations.django.CosIdField")

for name in ("number", "note"):  # of a CosIdDefault
    AIOCOSID.segment_chain(name)

ROOMS = ("auth", "contenttypes", "sessions", "messages", "admin")
INSTALLED_APPS = [
    "aiocosid.integrations.django",
    "shop",
    "rest_framework",
    *(f"django.contrib.{room}" for room in ROOMS),
]
DATABASES: dict[str, dict[str, object]] = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "app.db",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
if "DATABASE_URL" in os.environ:
    url = urlsplit(os.environ["DATABASE_URL"])
    DATABASES["default"] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path[1:],
        "USER": url.username,
        "HOST": url.hostname,
        "PORT": url.port,
    }
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
SECRET_KEY = "of a test"  # noqa: S105 - no secret
USE_TZ = True
STATIC_URL = "static/"
ALLOWED_HOSTS = ["*"]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"]},
}
