"""Budgets: what a codon may use, and what it has used.

Modules, in reading order:

- `allowance`: the share of the next codon, and whether it is used up
- `spending`: money, time and tokens of codon executions, retries included
- `report`: budgets as tables, before and after a run; warnings of surprising ones
"""
