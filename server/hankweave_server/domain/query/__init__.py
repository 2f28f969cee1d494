"""Queries of the journal: parsed, checked and evaluated."""
