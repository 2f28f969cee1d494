"""Architect's pipelines: a YAML file to the same plan that a hank.json gives (seed 003).

What is wrong is told all at once, each with its line; what comes out of `compiled` is an ordinary
hank, so that state, journal, rollback and resume know nothing of YAML.
"""
