"""The single writer: state, journal and published events change here, in one order.

`state.json` is the fold of the journal. A subscriber sees only what is on the disk.

Modules, in reading order:

- `writer`: decide, journal, flush, save, publish, in that order
- `batch`: events that are decided, written and published together
- `journal`: events.jsonl: append, read, find any event through a bookmark every few lines
- `snapshots`: the short forms of `state.snapshot` and `codon.keyed` in the journal
- `searched_journal`: the end of a journal, or one event, without reading the rest
- `digest`: what starts and rollbacks need to know of the journal, saved by an orderly end
- `state_file`: state.json and state.json.bak
- `disk_space`: a full disk: detect it, wait for space, keep a reserve
- `open`: journal and state files, made to agree at a start
- `moments`: the state at any past event
- `typescript_format`: journals and states of the TypeScript Hankweave, converted
"""
