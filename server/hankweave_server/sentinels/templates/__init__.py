"""Templates and schemas of sentinels: Eta and zod in QuickJS, and jinja.

Modules, in reading order:

- `base`: the interface of a template, and which engine a sentinel means
- `javascript`: Eta templates and zod schemas, and the process that runs them, with limits
- `quickjs_worker`: the program of that process
- `jinja`: jinja templates: sandboxed, limited in time and size
"""
