"""One server per execution directory: the guard grants it, the lock file describes the owner.

There are two files. `runtime.lock.guard` carries an exclusive flock; the kernel serialises its
grants on one inode and frees it when the owner dies, so there is nothing to judge and no race. It
is created once and never renamed, emptied or unlinked: a new inode would be a second lock. After
the grant the winner checks that the path still names its inode, so two winners would need two
inodes at one path, and no code here ever creates a second one.

`runtime.lock` is the JSON file of Hankweave that people and other programs read. It never grants.
It is replaced by rename, so a reader sees a whole one.

After a crash both files remain and name the dead owner. A new owner removes the old runtime.lock
before it writes itself into the guard, so the two never name different servers of this program; if
they do, another program wrote runtime.lock, and `domain.liveness` has to judge it.

Modules, in reading order:

- `held`: acquire the directory, hold it, release it; the heartbeat
- `guard`: the file whose flock grants the directory
- `lock_file`: runtime.lock, processes by pid and start time, and the errors
"""
