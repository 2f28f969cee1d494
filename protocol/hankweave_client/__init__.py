"""The async client of a Hankweave server: commands out, events in, across lost connections.

Knows only `hankweave_protocol` and the files a server leaves for its clients.
"""
