"""`hankweave pipeline` and `history`: the run of a pipeline, its report, and its steps.

- `run`: runs a pipeline and prints banners, the report, the summary and the exit code
- `report`: formats the report as JSON, Markdown or a GitHub comment
- `steps`: lists the checkpoints of steps
"""
