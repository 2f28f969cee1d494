"""Queries of the journal: parsed, checked and evaluated.

Modules, in reading order:

- `parse`: a query, checked: every name exists, every limit is kept
- `fields`: the fields of an event, and how JSON values compare
- `evaluate`: a query, answered from pages of the journal
- `aggregate`: `reduce` and `orderBy`

SQLite would not be smaller: it needs the whole journal in memory before the first answer, rounds
large integers, takes `true` for 1, and leaves the checks, pages and causes to be written anyway.
"""
