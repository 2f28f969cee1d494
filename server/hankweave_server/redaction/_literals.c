/* Finds the first of several short byte strings in a text, in one pass. What it answers is defined
 * by `find_in_python`. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <string.h>

#define MOST_LITERALS 512
#define SHORTEST 3
#define TABLES (SHORTEST * 256)

struct literals {
    Py_ssize_t count;
    unsigned first[MOST_LITERALS]; /* the first bytes of each, compared first */
    const char *bytes[MOST_LITERALS];
    Py_ssize_t length[MOST_LITERALS];
};

static unsigned first_at(const char *text)
{
    const unsigned char *bytes = (const unsigned char *)text;
    return (unsigned)bytes[0] << 16 | (unsigned)bytes[1] << 8 | bytes[2];
}

static int is_here(const struct literals *all, const char *at, Py_ssize_t left)
{
    unsigned first = first_at(at);
    for (Py_ssize_t i = 0; i < all->count; i++)
        if (all->first[i] == first && all->length[i] <= left &&
            memcmp(at, all->bytes[i], (size_t)all->length[i]) == 0)
            return 1;

    return 0;
}

/* A bit stands for a group of literals. It is set in the first table for each byte that one of the
 * group begins with, in the second table for each second byte, and so on: where no bit is set in
 * all three, no literal begins. */
static Py_ssize_t search(const char *text, Py_ssize_t length, Py_ssize_t start,
                         const unsigned char *tables, const struct literals *all)
{
    const unsigned char *bytes = (const unsigned char *)text;
    for (Py_ssize_t at = start; at + SHORTEST <= length; at++)
        if (tables[bytes[at]] & tables[256 + bytes[at + 1]] & tables[512 + bytes[at + 2]] &&
            is_here(all, text + at, length - at))
            return at;

    return -1;
}

static int take(struct literals *all, PyObject *listed)
{
    all->count = PyTuple_Size(listed);
    for (Py_ssize_t i = 0; i < all->count; i++) {
        char *bytes;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(listed, i), &bytes, &all->length[i]) < 0)
            return -1;

        if (all->length[i] < SHORTEST) {
            PyErr_SetString(PyExc_ValueError, "a literal has fewer than three bytes");
            return -1;
        }

        all->bytes[i] = bytes;
        all->first[i] = first_at(bytes);
    }

    return 0;
}

static PyObject *find(PyObject *module, PyObject *arguments)
{
    Py_buffer text, tables;
    Py_ssize_t start;
    PyObject *listed, *result = NULL;
    struct literals all;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*ny*O!", &text, &start, &tables, &PyTuple_Type, &listed))
        return NULL;

    if (tables.len != TABLES || PyTuple_Size(listed) > MOST_LITERALS || start < 0)
        PyErr_SetString(PyExc_ValueError, "wrong tables, too many literals, or a start below 0");
    else if (take(&all, listed) == 0)
        result = PyLong_FromSsize_t(search(text.buf, text.len, start, tables.buf, &all));

    PyBuffer_Release(&text);
    PyBuffer_Release(&tables);
    return result;
}

static PyMethodDef methods[] = {
    {"find", find, METH_VARARGS, "Returns where the first of several literals begins, or -1."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_literals", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__literals(void)
{
    return PyModule_Create(&module);
}
