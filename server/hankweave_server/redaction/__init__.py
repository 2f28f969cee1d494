"""Remove secrets from what the server writes: the rules, and their application to each stream.

Read in this order:

- `rules`: the formats of keys, and which environment variables hold a secret
- `redactor`: the application to bytes, texts, lines of a stream and structured values
"""
