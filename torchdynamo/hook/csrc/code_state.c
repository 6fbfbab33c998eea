/* What the hook knows of a code object, kept in its extra slot: entries, or why it is left alone. */
#include "hook.h"

Py_ssize_t td_extra_index = -1;

TdCodeState *td_states = NULL;

/* The code object died. */
static void state_free(void *pointer)
{
    TdCodeState *state = (TdCodeState *)pointer;
    if (state == NULL)
        return;
    TD_SHARED_BEGIN
    *state->link = state->next;
    if (state->next != NULL)
        state->next->link = state->link;
    TD_SHARED_END
    PyObject *entries = state->entries, *reason = state->reason, *notes = state->notes, *way = state->way;
    td_hints_forget(state);
    PyMem_Free(state);
    for (Py_ssize_t i = 0; entries != NULL && i < PyTuple_GET_SIZE(entries); i++)
        ((TdEntry *)PyTuple_GET_ITEM(entries, i))->live = 0;
    Py_XDECREF(entries);
    Py_XDECREF(reason);
    Py_XDECREF(notes);
    Py_XDECREF(way);
}

static TdCodeState *make(PyCodeObject *code)
{
    TdCodeState *state = td_state_of(code);
    if (state != NULL)
        return state;
    state = PyMem_Calloc(1, sizeof(TdCodeState));
    if (state == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    state->code = code;
    state->next = td_states;
    state->link = &td_states;
    if (td_states != NULL)
        td_states->link = &state->next;
    td_states = state;
    if (TD_SET_EXTRA((PyObject *)code, td_extra_index, state) < 0) {
        state_free(state);
        return NULL;
    }
    return state;
}

TdCodeState *td_state_make(PyCodeObject *code)
{
    TdCodeState *state;
    TD_SHARED_BEGIN
    state = make(code);
    TD_SHARED_END
    return state;
}

PyObject *td_state_notes(TdCodeState *state)
{
    PyObject *notes;
    TD_SHARED_BEGIN
    if (state->notes == NULL)
        state->notes = PyDict_New();
    notes = Py_XNewRef(state->notes);
    TD_SHARED_END
    return notes;
}

PyObject *td_state_way(TdCodeState *state)
{
    PyObject *way;
    TD_SHARED_BEGIN
    way = Py_NewRef(state->way);
    TD_SHARED_END
    return way;
}

/* ---- from Python ---------------------------------------------------------------------------------------------------- */

PyCodeObject *td_expect_code(PyObject *object)
{
    if (PyCode_Check(object))
        return (PyCodeObject *)object;
    PyErr_Format(PyExc_TypeError, "expected a code object, not %R", object);
    return NULL;
}

/* The state of what should be a code object, made if there is none; NULL with an error. */
static TdCodeState *state_of(PyObject *object)
{
    PyCodeObject *code = td_expect_code(object);
    return code != NULL ? td_state_make(code) : NULL;
}

static PyObject *skip_code(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    int quiet = nargs == 3 ? PyObject_IsTrue(args[2]) : 0;
    if (quiet < 0)
        return NULL;
    if (nargs < 2 || nargs > 3 || args[1] == Py_None) {
        PyErr_SetString(PyExc_TypeError, "skip_code takes a code object, a reason that is not None, and a flag");
        return NULL;
    }
    TdCodeState *state = state_of(args[0]);
    if (state == NULL)
        return NULL;
    Py_XSETREF(state->reason, Py_NewRef(args[1]));
    state->quiet = (char)quiet;
    Py_RETURN_NONE;
}

static PyObject *rest_code(PyObject *module, PyObject *args)
{
    PyObject *object;
    long long owner_id;
    long calls;
    int deep = 0;
    if (!PyArg_ParseTuple(args, "OLl|p:rest_code", &object, &owner_id, &calls, &deep))
        return NULL;
    TdCodeState *state = state_of(object);
    if (state == NULL)
        return NULL;
    state->resting_for = owner_id;
    state->resting = calls;
    state->resting_deep = (char)deep;
    Py_RETURN_NONE;
}

static PyObject *skip_reason(PyObject *module, PyObject *object)
{
    PyCodeObject *code = td_expect_code(object);
    if (code == NULL)
        return NULL;
    TdCodeState *state = td_state_of(code);
    return Py_NewRef(state != NULL && state->reason != NULL ? state->reason : Py_None);
}

static PyObject *called_last(PyObject *module, PyObject *args)
{
    PyObject *object;
    int goes_on = 0, aside = 0;
    PyObject *way = Py_None;
    if (!PyArg_ParseTuple(args, "O|pOp:called_last", &object, &goes_on, &way, &aside))
        return NULL;
    TdCodeState *state = state_of(object);
    if (state == NULL)
        return NULL;
    state->tail = aside ? TD_STEPS_ASIDE : goes_on ? TD_KEEPS_LOCALS : TD_KEEPS_NOTHING;
    Py_XSETREF(state->way, way != Py_None ? Py_NewRef(way) : NULL);
    Py_RETURN_NONE;
}

TD_SHARED_FUNCTION(skip_code, (PyObject *module, PyObject *const *args, Py_ssize_t nargs), (module, args, nargs))
TD_SHARED_FUNCTION(rest_code, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(skip_reason, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(called_last, (PyObject *module, PyObject *object), (module, object))

static PyMethodDef state_functions[] = {
    {"skip_code", (PyCFunction)(void (*)(void))skip_code_shared, METH_FASTCALL,
     "skip_code(code, reason, quiet=False, /)\n--\n\nAsk no callback about the code again; entries it has go on to serve. "
     "With quiet, no callback is on while it runs."},
    {"rest_code", rest_code_shared, METH_VARARGS,
     "rest_code(code, owner_id, calls, deep=False, /)\n--\n\nFor so many calls that no entry serves, do not ask this "
     "owner's callback; with deep, nor about what those calls, and this one, call. What drops an entry ends that."},
    {"skip_reason", skip_reason_shared, METH_O, "skip_reason(code, /)\n--\n\nThe reason given to skip_code, or None."},
    {"called_last", called_last_shared, METH_VARARGS,
     "called_last(code, goes_on=False, way=None, aside=False, /)\n--\n\nCode that has this code for a constant calls it last thing, and then "
     "needs none of its own variables any more: they are let go as the call begins. Code that goes on afterwards keeps "
     "them, all but the arguments. What is raised then is given to `way`, to see to its traceback. With aside, the caller's "
     "frame is not shown while this code runs."},
    {NULL},
};

int td_state_init(PyObject *module)
{
    td_extra_index = TD_REQUEST_EXTRA(state_free);
    if (td_extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "code objects have no extra slot left for torchdynamo");
        return -1;
    }
    return PyModule_AddFunctions(module, state_functions);
}
