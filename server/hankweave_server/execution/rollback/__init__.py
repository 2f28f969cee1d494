"""Rollbacks: planned, carried out, reported, and finished after a crash."""
