"""Generators of the files in the repository that are made from the source.

`scripts/export-schema` and `scripts/test --update-golden` run them. None of them is installed with
the product. Modules, in reading order:

- `exports`: prints one export; JSON Schemas of events and commands
- `catalogue`: every frame and every shape of the protocol as a JSON Schema
- `asyncapi`: protocol/asyncapi.json
- `typescript`: protocol/hankweave.d.ts
- `reference`: docs/reference and docs/troubleshooting.md
"""
