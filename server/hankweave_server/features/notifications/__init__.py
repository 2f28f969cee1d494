"""Notifications: signed webhooks, mail, chat and push services.

Modules, in reading order:

- `notifications`: what is worth a notification, and its words
- `notifier`: deliver them, each destination by itself
- `observer`: a notifier for a server
- `run_options`: the options of `run` for them
- `command`: `notify`: try out the destinations
"""
