"""Load and check hank.json.

All faults are reported at once, each with its line. Nothing outside the hank's directory is read.

Modules, in reading order:

- `load`: from a hank.json to a hank that can run, or to all its faults
- `json_source`: JSON text with comments, and the line of each value
- `shape`: the shape of the raw JSON against the protocol's types
- `check`: rules beyond the shape: names, exclusive fields, budgets, prompts
- `codon_checks`: rules of sentinels and of continued conversations
- `rules`: what a rule is; keys in the wrong place
- `references`: references to files, tools and variables; requirements of the machine
- `prompts`: prompt files and frontmatter, turned into the agent's text
- `agents`: named agents, and which one runs a codon
- `attempts`: a loaded hank as an attempt of an exploration runs it
- `advice`: valid settings that their author probably did not mean
- `price_files`: price lists, packaged and the user's own
- `problems`: findings, and the error that carries all of them
"""
