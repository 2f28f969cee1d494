/* Preloaded into a server: counts the calls that wait for the disk, in all of its threads.

   The file named by HANKWEAVE_TEST_FLUSHES holds one 64-bit counter, mapped and shared. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t *counter;

__attribute__((constructor)) static void map(void)
{
    const char *path = getenv("HANKWEAVE_TEST_FLUSHES");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        counter = mapped;
    close(file);
}

#define COUNTED(name)                                                     \
    int name(int file)                                                    \
    {                                                                     \
        int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, #name);         \
        if (counter)                                                      \
            atomic_fetch_add(counter, 1);                                 \
        return real(file);                                                \
    }

COUNTED(fsync)
COUNTED(fdatasync)
COUNTED(syncfs)
