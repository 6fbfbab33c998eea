/* Which of a function's many entries to try first: by what the arguments look like.
 *
 * Versions of one function differ by a number, a string, a shape, a dtype, or by the module that is called. All of these
 * go into one number, and the entry that served a call of that number last is asked first. Its guards decide as ever:
 * a wrong guess costs a look through the others. */
#include "hook.h"
#include "tensor.h"

#define SETS 128 /* of two: the last that came, and the one before */
#define LOOKED_AT 8 /* arguments */

typedef struct {
    uint64_t look;
    TdEntry *entry; /* borrowed: gone from here before it is from the code object's entries */
} Hint;

/* Of the entry in that place: what it wants to find, and where. */
typedef struct {
    const TdEntry *entry;
    uint64_t path, look;
} Sieve;

struct TdHints {
    Hint sets[SETS][2];
    Py_ssize_t sieved;
    Sieve *sieve;
};

/* Every bit of the part comes to bear on every bit of the answer. */
static inline uint64_t mixed(uint64_t look, uint64_t part)
{
    look = (look ^ part ^ part >> 32) * 0x9E3779B97F4A7C15ull;
    return look ^ look >> 32;
}

uint64_t td_look_as(PyTypeObject *type, uint64_t part) { return mixed((uintptr_t)type >> 4, part); }

/* Nobody's Python code is run, and nothing is looked into that may change without being another object. */
uint64_t td_look_of(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyFloat_Type || type == &PyBytes_Type)
        return td_look_as(type, (uint64_t)PyObject_Hash(obj));
    if (td_is_tensor(obj))
        return td_look_as(type, td_tensor_look(obj));
    if (PyTuple_Check(obj) || PyList_Check(obj))
        return td_look_as(type, (uint64_t)Py_SIZE(obj));
    if (PyDict_Check(obj))
        return td_look_as(type, (uint64_t)PyDict_GET_SIZE(obj));
    return td_look_as(type, (uintptr_t)obj >> 4);
}

uint64_t td_look(const TdFrame *view)
{
    Py_ssize_t count = td_code_nargs(view->code);
    uint64_t look = 1;
    for (Py_ssize_t i = 0; i < count && i < LOOKED_AT; i++)
        look = mixed(look, view->localsplus[i] == NULL ? 0 : td_look_of(view->localsplus[i]));
    return look;
}

TdEntry *td_hint(const TdCodeState *state, uint64_t look)
{
    if (state->hints == NULL)
        return NULL;
    const Hint *set = state->hints->sets[look % SETS];
    return set[0].look == look ? set[0].entry : set[1].look == look ? set[1].entry : NULL;
}

void td_hint_keep(TdCodeState *state, uint64_t look, TdEntry *entry)
{
    if (state->hints == NULL && (state->hints = PyMem_Calloc(1, sizeof(struct TdHints))) == NULL)
        return;
    Hint *set = state->hints->sets[look % SETS];
    if (set[0].look != look)
        set[1] = set[0];
    set[0] = (Hint){look, entry};
}

int td_sifted(const TdCodeState *state, Py_ssize_t place, const TdEntry *entry, const TdAsked *asked)
{
    if (state == NULL || state->hints == NULL || place >= state->hints->sieved)
        return 0;
    const Sieve *sieve = &state->hints->sieve[place];
    return sieve->entry == entry && sieve->path == asked->path && sieve->look != asked->look;
}

void td_sift(TdCodeState *state, Py_ssize_t place, const TdEntry *entry, const TdAsked *asked)
{
    if (state == NULL || state->hints == NULL || asked->wanted == 0)
        return;
    struct TdHints *hints = state->hints;
    if (place >= hints->sieved) {
        Sieve *sieve = PyMem_Realloc(hints->sieve, 2 * (place + 8) * sizeof(Sieve));
        if (sieve == NULL)
            return;
        memset(sieve + hints->sieved, 0, (2 * (place + 8) - hints->sieved) * sizeof(Sieve));
        hints->sieve = sieve;
        hints->sieved = 2 * (place + 8);
    }
    hints->sieve[place] = (Sieve){entry, asked->path, asked->wanted};
}

void td_hints_forget(TdCodeState *state)
{
    if (state->hints != NULL)
        PyMem_Free(state->hints->sieve);
    PyMem_Free(state->hints);
    state->hints = NULL;
}
