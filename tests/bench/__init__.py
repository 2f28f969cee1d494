"""Measures the server as it is used, always beside a reference that ran in the same minutes.

Machines drift: only figures of one run may be compared. So every figure is the median of rounds in
which its variants took turns, and stands in the table as a ratio to the bare system call, the bare
library or the empty case. Targets are issue 2's.
"""
