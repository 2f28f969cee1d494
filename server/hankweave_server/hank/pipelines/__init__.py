"""Architect's pipelines: YAML files, compiled to an ordinary hank.

All faults are reported at once, each with its line. State, journal, rollback and resume know
nothing of YAML.

Modules, in reading order:

- `load`: from YAML to a `Pipeline`, or to all its faults
- `yaml_text`: YAML values with their lines, and parser errors in plain words
- `fields`: fields of a mapping, checked one by one; `permissions`
- `steps`: each key of a step, and the variables known at each step
- `agents`: the agents of steps, and the `agents` block
- `model`: a pipeline that has no faults
"""
