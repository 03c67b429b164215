"""Django: a middleware that answers requests which cannot get an id, and limits their log lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpResponse

from ..errors import CosIdError
from .failures import PROBLEM_JSON, FailureLog, answer_to

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

__all__ = ("CosIdErrorsMiddleware",)


class CosIdErrorsMiddleware:
    """Answers synchronous and asynchronous views that fail with a `CosIdError`.

    A ``retryable`` error is answered with 503 and ``Retry-After``, any other `CosIdError` with 500,
    or with Django's own page under ``DEBUG``.  The logger ``aiocosid.requests`` gets at most one
    line per second for each cause, which says how many were left out; ``django.request`` and the
    mails to ``ADMINS`` get none.

    Put it last in ``MIDDLEWARE``::

        MIDDLEWARE = [..., "aiocosid.integrations.django_errors.CosIdErrorsMiddleware"]

    Attributes:
        sync_capable: it serves synchronous views.
        async_capable: it serves asynchronous views, without a thread.
    """

    sync_capable: bool = True
    async_capable: bool = True

    def __init__(
        self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]
    ) -> None:
        """Wrap the rest of the chain; called by Django."""
        self._get_response = get_response
        self._failures = FailureLog()
        if iscoroutinefunction(get_response):  # pyright: ignore[reportDeprecated] - Python 3.11 needs it
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Pass a request on."""
        self._failures.write_due()
        return self._get_response(request)

    def process_exception(self, _request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer a view's error; called by Django."""
        if not isinstance(error, CosIdError) or (settings.DEBUG and not error.retryable):
            return None
        found = answer_to(error)
        self._failures.note(error, f"a request was answered with {found.status}")
        response = HttpResponse(found.body, PROBLEM_JSON, found.status, headers=found.headers)
        # Otherwise Django logs and mails a line for each answer with this status.
        response._has_been_logged = True  # pyright: ignore[reportAttributeAccessIssue]
        return response
