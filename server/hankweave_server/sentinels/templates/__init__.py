"""Templates and schemas of sentinels: Eta and zod in QuickJS, and jinja."""
