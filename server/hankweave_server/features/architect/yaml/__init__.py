"""Architect's pipelines: YAML files, compiled to an ordinary hank.

All faults are reported at once, each with its line. State, journal, rollback and resume know
nothing of YAML.

Modules, in reading order:

- `load`: from YAML to a `Pipeline`, or to all its faults
- `shapes`: the keys of a pipeline and of a configuration, as types
- `yaml_text`: YAML values with their lines, and parser errors in plain words
- `steps`: each key of a step, and the variables known at each step
- `agents`: the agents of steps, the `agents` block, and whether an agent asks for permission
- `model`: a pipeline that has no faults
"""
