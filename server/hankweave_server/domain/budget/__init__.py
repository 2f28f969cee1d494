"""Budgets: what a codon may use, has used, and is likely to use.

Modules, in reading order:

- `allowance`: the share of the next codon, and whether it is used up
- `spending`: money, time and tokens of codon executions, retries included
- `report`: budgets as tables, before and after a run; warnings of surprising ones
- `estimates`: time and money of steps that run again after a rollback, and to the end of the plan
"""
