"""Budgets: what a codon may use, and what it has used."""
