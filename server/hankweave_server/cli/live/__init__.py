"""The live view of `hankweave run` and `attach`.

- `model`: what the view shows, as values computed from the state and events
- `frame`: formats it for a terminal width
- `view`: draws it from a thread
- `reporters`: chooses between the live view, lines and JSON for `run`
- `keys`: interprets key presses; `actions`: sends the resulting requests to the server
- `session`: ties them together for `attach`, over the public protocol
"""
