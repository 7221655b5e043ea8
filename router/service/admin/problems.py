"""Answers that report problems (RFC 9457)."""

import http
import json

from starlette.responses import Response

from router.service.admin.openapi import PROBLEM_TYPE, ProblemDetails
from router.service.admin.showing import as_json


def problem(status: int, detail: str) -> Response:
    """Makes the answer to a request that is refused or failed."""
    details = ProblemDetails(title=http.HTTPStatus(status).phrase, status=status, detail=detail)
    return Response(json.dumps(as_json(details)), status, media_type=PROBLEM_TYPE)
