"""All cases, in one list for each set of patterns."""

from __future__ import annotations

from conformance import (
    cases_of_access,
    cases_of_content,
    cases_of_ignoring,
    cases_of_kinds,
    cases_of_links,
    cases_of_modes,
    cases_of_names,
    cases_of_patterns,
    cases_of_repositories,
)
from conformance.case import Case

EVERYTHING: tuple[str, ...] = ("**",)
OF_EVERYTHING: tuple[Case, ...] = (
    *cases_of_content.CASES,
    *cases_of_modes.CASES,
    *cases_of_links.CASES,
    *cases_of_kinds.CASES,
    *cases_of_names.CASES,
    *cases_of_repositories.CASES,
    *cases_of_ignoring.CASES,
    *cases_of_access.CASES,
    # Last, because the git program reads the whole repository after each case.
    *cases_of_content.LARGE_CASES,
)

SOME = cases_of_patterns.PATTERNS
OF_SOME: tuple[Case, ...] = cases_of_patterns.CASES
