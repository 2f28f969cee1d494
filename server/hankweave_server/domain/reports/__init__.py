"""The outcome of an execution, for people who were not there.

Modules, in reading order:

- `rows`: the rows of a report
- `summary`: what a report needs of the journal's events, collected one by one
- `report`: the report of an execution, or of one run
- `eta`: how long the rest of a plan takes, from what its codons have taken before
"""
