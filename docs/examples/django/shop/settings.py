"""The settings: orders count 1, 2, 3 ...; an event's id tells when it happened."""

import os

import aiocosid.sync

AIOCOSID = aiocosid.sync.connect(
    os.environ.get("AIOCOSID_STORE", "sqlite:///ids.db"), namespace="shop"
)
DEFAULT_AUTO_FIELD = "aiocosid.integrations.django.CosIdField"

INSTALLED_APPS = [
    "aiocosid.integrations.django",
    "shop",
    "rest_framework",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.staticfiles",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "app.db"}}
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
STATIC_URL = "static/"
SECRET_KEY = os.environ.get("SECRET_KEY", "only for development")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
USE_TZ = True
