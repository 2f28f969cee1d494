"""Benchmarks of the server as it is used, always beside a reference from the same minutes.

Machine speed drifts, so only figures of one run may be compared. Every figure is therefore the
median of rounds in which its variants took turns, and the table has its ratio to the bare system
call, the bare library or the empty case. Targets are issue 2's.
"""
