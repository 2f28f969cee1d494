/* Preloaded into a server: counts the calls that wait for the disk, and those that look at a file by
   its name, in all of its threads.

   The file named by HANKWEAVE_TEST_FLUSHES holds two 64-bit counters, mapped and shared. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FLUSHES, LOOKS, COUNTERS };

static _Atomic uint64_t *counters;

__attribute__((constructor)) static void map(void)
{
    const char *path = getenv("HANKWEAVE_TEST_FLUSHES");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    size_t size = COUNTERS * sizeof *counters;
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        counters = mapped;
    close(file);
}

static void count(int which)
{
    if (counters)
        atomic_fetch_add(&counters[which], 1);
}

/* `stat` and its kin have two names each, which the headers do not declare together. */

#define COUNTED(name, which, taken, given)                                \
    int name taken                                                        \
    {                                                                     \
        static int (*real) taken;                                         \
        if (!real)                                                        \
            real = (int (*) taken)dlsym(RTLD_NEXT, #name);                \
        count(which);                                                     \
        return real given;                                                \
    }

#define FLUSH(name) COUNTED(name, FLUSHES, (int file), (file))
#define LOOK(name) \
    COUNTED(name, LOOKS, (const char *path, void *status), (path, status))
#define LOOK_AT(name)                                                     \
    COUNTED(name, LOOKS,                                                  \
            (int folder, const char *path, void *status, int flags),      \
            (folder, path, status, flags))

FLUSH(fsync)
FLUSH(fdatasync)
FLUSH(syncfs)
LOOK(stat)
LOOK(stat64)
LOOK(lstat)
LOOK(lstat64)
LOOK_AT(fstatat)
LOOK_AT(fstatat64)
