"""Generator of docs/reference and docs/troubleshooting.md.

Each page is a template of this folder (`*.md`, with `((= expression =))` and `((* statement *))`):
prose, and calls that insert what is declared in the source. An entry without a description is an
error. Modules, in reading order:

- `declared`: descriptions below the members of enumerations and in the properties of a class
- `shapes`: tables of the fields of shapes, and the page on which each shape is described
- `wire`: sections of commands and events, with the examples in examples.md
- `programs`: commands of the command line, settings, exit codes, error codes, files
- `messages`: the messages with which the command line ends
- `pages`: fills the templates; `python -m codegen.reference.pages` writes them
"""
