"""Observers of a codon's events."""
