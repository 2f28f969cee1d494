"""Examples of seed 003 that several tests run, word for word."""

PIPELINE = """\
steps:
  - name: implement
    prompt: "Implementa la feature"
    checkpoint: true
    # → git add -A && git commit -m "architect:checkpoint:implement"

  - name: optimize
    prompt: "Optimiza el rendimiento"
    checkpoint: true
"""
"""From "Usage in Pipelines"."""
