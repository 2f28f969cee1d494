"""What is to come, from what executions of codons have used before.

Modules, in reading order:

- `runs_again`: the steps that run again after a rollback, and what they used the last time
- `forecast`: the time and money to the end of the plan
"""
