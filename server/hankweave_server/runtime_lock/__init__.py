"""One server for each execution directory: the guard that grants, and the lock that informs.

Two files (DESIGN 6). `runtime.lock.guard` carries an exclusive flock; the kernel serialises its
grants on one inode and frees it when the owner dies, so there is nothing to judge and nothing to
race for. It is created once and never renamed, emptied or unlinked: a new inode would be a second
lock. After the grant the winner checks that the path still names its inode, so two winners would
need two inodes at one path, and no code of ours ever makes a second one.

`runtime.lock` (seed 001) is the JSON that people and other programs read. It never grants. It is
replaced by rename, so a reader sees a whole one.

What survives a crash: both files, naming the dead owner. A starter removes the dead owner's
runtime.lock before it writes itself into the guard, so at no moment do the two name different
servers of ours; where they do, another program wrote runtime.lock and deserves a judgement.
"""

from hankweave_server.runtime_lock.held import HEARTBEAT_INTERVAL, HeldLock, acquire
from hankweave_server.runtime_lock.lock_file import LockHeld, LockLost

__all__ = ["HEARTBEAT_INTERVAL", "HeldLock", "LockHeld", "LockLost", "acquire"]
