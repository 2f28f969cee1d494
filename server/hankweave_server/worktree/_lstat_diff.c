/* Compares stat data with a block of known signatures, on all processors and without the
 * interpreter's lock. What it answers is defined by `differing_in_python`. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#define _GNU_SOURCE
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH 256          /* paths a thread takes at a time */
#define WORTH_A_THREAD 1024
#define MOST_THREADS 8
#define SAME (-1)
#define DIFFERS 0

struct folder {
    const char *path;
    Py_ssize_t length;
    PyObject *names;
};

struct path {
    const char *name;
    Py_ssize_t length;
    Py_ssize_t folder;
    Py_ssize_t slot;
    int verdict;
};

struct job {
    int root;
    const struct folder *folders;
    struct path *paths;
    Py_ssize_t count;
    const char *block;
    Py_ssize_t stride;
    Py_ssize_t next;
};

#pragma pack(push, 1)
struct signature {
    int64_t ctime_ns, mtime_ns, size;
    uint64_t inode;
    uint32_t mode;
};
#pragma pack(pop)

/* Both as in `signature_of`, where 64 bits do not hold the time. */
static int64_t wrapped(struct timespec time)
{
    return (int64_t)((uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec);
}

static int64_t limited(struct timespec time)
{
    int64_t nanoseconds;
    if (__builtin_mul_overflow((int64_t)time.tv_sec, (int64_t)1000000000, &nanoseconds) ||
        __builtin_add_overflow(nanoseconds, (int64_t)time.tv_nsec, &nanoseconds))
        return time.tv_sec < 0 ? INT64_MIN : INT64_MAX;

    return nanoseconds;
}

static int verdict_on(const struct job *job, const struct path *path)
{
    const struct folder *folder = &job->folders[path->folder];
    char buffer[PATH_MAX];
    struct stat status;
    size_t at = 0;

    if (folder->length + path->length + 2 > PATH_MAX)
        return ENAMETOOLONG;

    if (folder->length) {
        memcpy(buffer, folder->path, folder->length);
        buffer[folder->length] = '/';
        at = folder->length + 1;
    }
    memcpy(buffer + at, path->name, path->length + 1);

    if (fstatat(job->root, buffer, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;

    struct signature seen = {
        .ctime_ns = limited(status.st_ctim),
        .mtime_ns = wrapped(status.st_mtim),
        .size = status.st_size,
        .inode = status.st_ino,
        .mode = status.st_mode,
    };
    return memcmp(&seen, job->block + path->slot * job->stride, sizeof seen) ? DIFFERS : SAME;
}

static void *compare(void *argument)
{
    struct job *job = argument;
    for (;;) {
        Py_ssize_t from = __atomic_fetch_add(&job->next, BATCH, __ATOMIC_RELAXED);
        if (from >= job->count)
            return NULL;

        Py_ssize_t to = from + BATCH < job->count ? from + BATCH : job->count;
        for (Py_ssize_t i = from; i < to; i++)
            job->paths[i].verdict = verdict_on(job, &job->paths[i]);
    }
}

static void compare_on_all_processors(struct job *job)
{
    pthread_t threads[MOST_THREADS];
    long wanted = sysconf(_SC_NPROCESSORS_ONLN) - 1;
    int started = 0;

    if (wanted > job->count / WORTH_A_THREAD)
        wanted = job->count / WORTH_A_THREAD;
    if (wanted > MOST_THREADS)
        wanted = MOST_THREADS;

    while (started < wanted && pthread_create(&threads[started], NULL, compare, job) == 0)
        started++;

    compare(job);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

/* Fills in one folder's names; gives how many, or -1 with an exception set. */
static Py_ssize_t names_of(const struct folder *folder, Py_ssize_t number, struct path *paths,
                           Py_ssize_t room, Py_ssize_t slots)
{
    PyObject *name, *slot;
    Py_ssize_t position = 0, count = 0;

    while (PyDict_Next(folder->names, &position, &name, &slot)) {
        struct path *path = &paths[count];
        char *bytes;

        if (count == room) {
            PyErr_SetString(PyExc_RuntimeError, "a group changed while it was read");
            return -1;
        }
        if (PyBytes_AsStringAndSize(name, &bytes, &path->length) < 0)
            return -1;

        path->name = bytes;
        path->folder = number;
        path->slot = PyLong_AsSsize_t(slot);
        if (path->slot == -1 && PyErr_Occurred())
            return -1;
        if (path->slot < 0 || path->slot >= slots) {
            PyErr_SetString(PyExc_IndexError, "no such slot");
            return -1;
        }
        count++;
    }
    return count;
}

static PyObject *answer(const struct job *job)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < job->count; i++) {
        const struct path *path = &job->paths[i];
        if (path->verdict == SAME)
            continue;

        PyObject *item =
            Py_BuildValue("(ny#i)", path->folder, path->name, path->length, path->verdict);
        if (item == NULL || PyList_Append(found, item) < 0)
            Py_CLEAR(found);
        Py_XDECREF(item);
    }
    return found;
}

static PyObject *compared(int root, PyObject *groups, const Py_buffer *block, Py_ssize_t stride)
{
    Py_ssize_t number_of_folders = PyList_Size(groups), total = 0, filled = 0;
    struct folder *folders = PyMem_Malloc((number_of_folders + 1) * sizeof *folders);
    struct path *paths = NULL;
    PyObject *result = NULL;

    if (folders == NULL) {
        PyErr_NoMemory();
        goto done;
    }

    for (Py_ssize_t i = 0; i < number_of_folders; i++) {
        PyObject *group = PyList_GetItem(groups, i);
        char *path;
        if (!PyTuple_Check(group)) {
            PyErr_SetString(PyExc_TypeError, "a group is a folder and its names");
            goto done;
        }
        if (!PyArg_ParseTuple(group, "y#O!", &path, &folders[i].length,
                              &PyDict_Type, &folders[i].names))
            goto done;
        folders[i].path = path;
        total += PyDict_Size(folders[i].names);
    }

    paths = PyMem_Malloc((total + 1) * sizeof *paths);
    if (paths == NULL) {
        PyErr_NoMemory();
        goto done;
    }

    for (Py_ssize_t i = 0; i < number_of_folders; i++) {
        Py_ssize_t count =
            names_of(&folders[i], i, paths + filled, total - filled, block->len / stride);
        if (count < 0)
            goto done;
        filled += count;
    }

    struct job job = {.root = root, .folders = folders, .paths = paths, .count = filled,
                      .block = block->buf, .stride = stride, .next = 0};
    Py_BEGIN_ALLOW_THREADS
    compare_on_all_processors(&job);
    Py_END_ALLOW_THREADS
    result = answer(&job);

done:
    PyMem_Free(paths);
    PyMem_Free(folders);
    return result;
}

static PyObject *differing(PyObject *module, PyObject *arguments)
{
    int root;
    PyObject *groups, *result = NULL;
    Py_buffer block;
    Py_ssize_t stride;

    if (!PyArg_ParseTuple(arguments, "iO!y*n", &root, &PyList_Type, &groups, &block, &stride))
        return NULL;

    if (stride < (Py_ssize_t)sizeof(struct signature))
        PyErr_SetString(PyExc_ValueError, "a slot is smaller than a signature");
    else
        result = compared(root, groups, &block, stride);

    PyBuffer_Release(&block);
    return result;
}

static PyMethodDef methods[] = {
    {"differing", differing, METH_VARARGS,
     "Lists the names whose stat data is not the signature in their slot."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_lstat_diff", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__lstat_diff(void)
{
    return PyModule_Create(&module);
}
