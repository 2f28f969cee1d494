"""Queries of the journal: parsed, checked and evaluated.

Modules, in reading order:

- `parse`: a query, checked: every name exists, every limit is kept
- `fields`: the fields of an event, and how JSON values compare
- `evaluate`: a query, answered from pages of the journal
- `aggregate`: `reduce` and `orderBy`
"""
