"""The query of a request, taken at its word: what a route doesn't know is refused, not passed over."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches

from fastapi import Request

from keygrouping_service.http.openapi import operations_at
from keygrouping_service.http.problems import Problem

_LONGEST = 100
"""Characters of a wrong member that are told again."""


async def known_query(request: Request) -> None:
    """Dependency of all routes: 422 to a query member that the route doesn't have, or has twice.

    A misspelt `dry_run` would otherwise carry out what was only to be tried.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    if not given:
        return
    operation = operations_at(request).get(request.method.lower(), {})  # None of a page: it takes no query.
    known = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    faults = [_fault(name, known) for name in given if name not in known]
    faults += [f"{name} is given {times} times: give it once" for name, times in given.items() if times > 1]
    if faults:
        raise Problem(422, "query: " + "; ".join(faults))


def _fault(name: str, known: list[str]) -> str:
    shown = name[:_LONGEST]
    if not known:
        return f"{shown} means nothing here, where no query is taken: leave it out"
    likely = get_close_matches(name.lower().replace("-", "_"), known, 1)
    meant = f"; did you mean {likely[0]}?" if likely else ""
    return f"{shown} means nothing here: known are {', '.join(known)}{meant}"
