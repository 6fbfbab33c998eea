/* What the hook knows of code objects, kept in each one's extra slot: entries, or why it is left alone. */
#include "hook.h"

Py_ssize_t td_extra_index = -1;

static TdCodeState *all_states = NULL;
int64_t td_entries_made = 0;

/* ---- one code object ---------------------------------------------------------------------------------------------- */

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
    state->next = all_states;
    state->link = &all_states;
    if (all_states != NULL)
        all_states->link = &state->next;
    all_states = state;
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

static int append(PyCodeObject *code, TdEntry *entry)
{
    TdCodeState *state = make(code);
    if (state == NULL)
        return -1;
    Py_ssize_t count = state->entries != NULL ? PyTuple_GET_SIZE(state->entries) : 0;
    if (entry->live) {
        for (Py_ssize_t i = 0; i < count; i++)
            if (PyTuple_GET_ITEM(state->entries, i) == (PyObject *)entry)
                return 0;
        PyErr_Format(PyExc_ValueError, "%R is cached on another code object already", entry);
        return -1;
    }
    PyObject *entries = PyTuple_New(count + 1);
    if (entries == NULL)
        return -1;
    state = td_state_of(code); /* making a tuple can run the garbage collector, and that anything */
    PyObject *old = state->entries;
    if ((old != NULL ? PyTuple_GET_SIZE(old) : 0) != count) {
        Py_DECREF(entries);
        return append(code, entry);
    }
    PyTuple_SET_ITEM(entries, 0, Py_NewRef((PyObject *)entry)); /* the newest first */
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SET_ITEM(entries, i + 1, Py_NewRef(PyTuple_GET_ITEM(old, i)));
    entry->live = 1;
    entry->serial = td_entries_made++;
    state->entries = entries;
    Py_XDECREF(old);
    return 0;
}

int td_state_append(PyCodeObject *code, TdEntry *entry)
{
    int failed;
    TD_SHARED_BEGIN
    failed = append(code, entry);
    TD_SHARED_END
    return failed;
}

void td_state_to_front(TdCodeState *state, PyObject *entries, Py_ssize_t index)
{
    /* Only if nobody else walks along this tuple: two references are the state's and the caller's. */
    if (state == NULL || state->entries != entries || Py_REFCNT(entries) != 2)
        return;
    PyObject **items = ((PyTupleObject *)entries)->ob_item, *hit = items[index];
    memmove(items + 1, items, index * sizeof(PyObject *));
    items[0] = hit;
}

PyObject *td_state_newest(TdCodeState *state)
{
    TdEntry *newest = NULL;
    TD_SHARED_BEGIN
    for (Py_ssize_t i = 0; state->entries != NULL && i < PyTuple_GET_SIZE(state->entries); i++) {
        TdEntry *entry = (TdEntry *)PyTuple_GET_ITEM(state->entries, i);
        if (newest == NULL || entry->serial > newest->serial)
            newest = entry;
    }
    Py_XINCREF(newest);
    TD_SHARED_END
    return newest != NULL ? (PyObject *)newest : Py_NewRef(Py_None);
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

/* ---- dropping ------------------------------------------------------------------------------------------------------ */

static void mark_dropped(TdCodeState *state, int every_owner, int64_t owner_id)
{
    for (Py_ssize_t i = 0; state->entries != NULL && i < PyTuple_GET_SIZE(state->entries); i++) {
        TdEntry *entry = (TdEntry *)PyTuple_GET_ITEM(state->entries, i);
        if (every_owner || entry->owner_id == owner_id)
            entry->live = 0;
    }
}

static Py_ssize_t count_live(PyObject *entries)
{
    Py_ssize_t live = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++)
        live += ((TdEntry *)PyTuple_GET_ITEM(entries, i))->live;
    return live;
}

/* Rebuild the state's tuple without what was dropped. Frees entries, so anything may happen before it returns. */
static int prune(TdCodeState *state)
{
    PyObject *old = state->entries, *kept = NULL;
    Py_ssize_t live = count_live(old), at = 0;
    PyCodeObject *code = (PyCodeObject *)Py_NewRef((PyObject *)state->code);
    if (live > 0 && (kept = PyTuple_New(live)) == NULL) {
        Py_DECREF(code);
        return -1;
    }
    if (state->entries == old && count_live(old) == live) { /* else somebody was faster: look again */
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(old); i++)
            if (((TdEntry *)PyTuple_GET_ITEM(old, i))->live)
                PyTuple_SET_ITEM(kept, at++, Py_NewRef(PyTuple_GET_ITEM(old, i)));
        state->entries = kept;
        state->resting = state->resting_deep = 0;
        td_hints_forget(state);
        kept = old;
    }
    Py_XDECREF(kept);
    Py_DECREF(code);
    return 0;
}

/* Freeing runs other people's code, which may free states: so after each, start over. */
static int prune_all(void)
{
    TdCodeState *state = all_states;
    while (state != NULL) {
        if (state->entries == NULL || count_live(state->entries) == PyTuple_GET_SIZE(state->entries)) {
            state = state->next;
            continue;
        }
        if (prune(state) < 0)
            return -1;
        state = all_states;
    }
    return 0;
}

static void forget(TdCodeState *state)
{
    PyObject *reason = state->reason, *notes = state->notes;
    state->reason = state->notes = NULL;
    state->resting = state->resting_deep = 0;
    Py_XDECREF(reason);
    Py_XDECREF(notes);
}

/* ---- from Python ---------------------------------------------------------------------------------------------------- */

static PyCodeObject *expect_code(PyObject *object)
{
    if (PyCode_Check(object))
        return (PyCodeObject *)object;
    PyErr_Format(PyExc_TypeError, "expected a code object, not %R", object);
    return NULL;
}

static PyObject *cache_entries(PyObject *module, PyObject *object)
{
    PyCodeObject *code = expect_code(object);
    if (code == NULL)
        return NULL;
    TdCodeState *state = td_state_of(code);
    PyObject *list = state != NULL && state->entries != NULL ? PySequence_List(state->entries) : PyList_New(0);
    for (Py_ssize_t i = 1; list != NULL && i < PyList_GET_SIZE(list); i++) { /* in order of arrival */
        PyObject **items = ((PyListObject *)list)->ob_item, *entry = items[i];
        Py_ssize_t j = i;
        for (; j > 0 && ((TdEntry *)items[j - 1])->serial > ((TdEntry *)entry)->serial; j--)
            items[j] = items[j - 1];
        items[j] = entry;
    }
    return list;
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
    PyCodeObject *code = expect_code(args[0]);
    TdCodeState *state = code != NULL ? td_state_make(code) : NULL;
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
    PyCodeObject *code = expect_code(object);
    TdCodeState *state = code != NULL ? td_state_make(code) : NULL;
    if (state == NULL)
        return NULL;
    state->resting_for = owner_id;
    state->resting = calls;
    state->resting_deep = (char)deep;
    Py_RETURN_NONE;
}

static PyObject *codes_in_use(PyObject *module, PyObject *object)
{
    long long owner_id = PyLong_AsLongLong(object);
    if (owner_id == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t used = 0, all = 0;
    for (TdCodeState *state = all_states; state != NULL; state = state->next) {
        int there = 0, ran = 0;
        for (Py_ssize_t i = 0; state->entries != NULL && i < PyTuple_GET_SIZE(state->entries); i++) {
            TdEntry *entry = (TdEntry *)PyTuple_GET_ITEM(state->entries, i);
            if (entry->live && entry->owner_id == owner_id) {
                there = 1;
                ran |= entry->ran_at == td_entries_made;
            }
        }
        all += there;
        used += ran;
    }
    return Py_BuildValue("(nn)", used, all);
}

static PyObject *skip_reason(PyObject *module, PyObject *object)
{
    PyCodeObject *code = expect_code(object);
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
    PyCodeObject *code = expect_code(object);
    TdCodeState *state = code != NULL ? td_state_make(code) : NULL;
    if (state == NULL)
        return NULL;
    state->tail = aside ? TD_STEPS_ASIDE : goes_on ? TD_KEEPS_LOCALS : TD_KEEPS_NOTHING;
    Py_XSETREF(state->way, way != Py_None ? Py_NewRef(way) : NULL);
    Py_RETURN_NONE;
}

static PyObject *clear_code(PyObject *module, PyObject *object)
{
    PyCodeObject *code = expect_code(object);
    TdCodeState *state = code != NULL ? td_state_of(code) : NULL;
    if (code == NULL)
        return NULL;
    if (state != NULL) {
        mark_dropped(state, 1, 0);
        PyObject *entries = state->entries;
        state->entries = NULL;
        td_hints_forget(state);
        forget(state);
        Py_XDECREF(entries);
    }
    Py_RETURN_NONE;
}

/* The code object and the entry that a function is called with. */
static int code_and_entry(PyObject *const *args, Py_ssize_t nargs, PyCodeObject **code, TdEntry **entry)
{
    if (nargs != 2 || !PyObject_TypeCheck(args[1], TdEntry_Type)) {
        PyErr_SetString(PyExc_TypeError, "expected a code object and an Entry");
        return -1;
    }
    *entry = (TdEntry *)args[1];
    return (*code = expect_code(args[0])) == NULL ? -1 : 0;
}

static PyObject *keep_entry(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    PyCodeObject *code;
    TdEntry *entry;
    if (code_and_entry(args, nargs, &code, &entry) < 0 || td_check_compatible(code, entry->code) < 0
        || td_state_append(code, entry) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *drop_entry(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    PyCodeObject *code;
    TdEntry *entry;
    if (code_and_entry(args, nargs, &code, &entry) < 0)
        return NULL;
    TdCodeState *state = td_state_of(code);
    entry->live = 0;
    if (state != NULL && state->entries != NULL && prune(state) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Move what the slot holds to the list. Appending runs no code, so states stay where they are meanwhile. */
static int throw_away(PyObject **slot, PyObject *trash)
{
    PyObject *object = *slot;
    if (object == NULL)
        return 0;
    *slot = NULL;
    int failed = PyList_Append(trash, object);
    Py_DECREF(object);
    return failed;
}

static PyObject *clear_all(PyObject *module, PyObject *unused)
{
    PyObject *trash = PyList_New(0);
    int failed = trash == NULL;
    for (TdCodeState *state = all_states; !failed && state != NULL; state = state->next) {
        mark_dropped(state, 1, 0);
        td_hints_forget(state);
        state->resting = state->resting_deep = 0;
        failed = throw_away(&state->entries, trash) < 0 || throw_away(&state->reason, trash) < 0
                 || throw_away(&state->notes, trash) < 0;
    }
    Py_XDECREF(trash);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *drop_owner(PyObject *module, PyObject *number)
{
    long long owner_id = PyLong_AsLongLong(number);
    if (owner_id == -1 && PyErr_Occurred())
        return NULL;
    for (TdCodeState *state = all_states; state != NULL; state = state->next)
        mark_dropped(state, 0, owner_id);
    return prune_all() < 0 ? NULL : Py_NewRef(Py_None);
}

TD_SHARED_FUNCTION(cache_entries, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(skip_code, (PyObject *module, PyObject *const *args, Py_ssize_t nargs), (module, args, nargs))
TD_SHARED_FUNCTION(rest_code, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(codes_in_use, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(skip_reason, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(called_last, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(keep_entry, (PyObject *module, PyObject *const *args, Py_ssize_t nargs), (module, args, nargs))
TD_SHARED_FUNCTION(drop_entry, (PyObject *module, PyObject *const *args, Py_ssize_t nargs), (module, args, nargs))
TD_SHARED_FUNCTION(clear_code, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(clear_all, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(drop_owner, (PyObject *module, PyObject *object), (module, object))

static PyMethodDef state_functions[] = {
    {"cache_entries", cache_entries_shared, METH_O, "cache_entries(code, /)\n--\n\nThe code's entries, oldest first."},
    {"skip_code", (PyCFunction)(void (*)(void))skip_code_shared, METH_FASTCALL,
     "skip_code(code, reason, quiet=False, /)\n--\n\nAsk no callback about the code again; entries it has go on to serve. "
     "With quiet, no callback is on while it runs."},
    {"rest_code", rest_code_shared, METH_VARARGS,
     "rest_code(code, owner_id, calls, deep=False, /)\n--\n\nFor so many calls that no entry serves, do not ask this "
     "owner's callback; with deep, nor about what those calls, and this one, call. What drops an entry ends that."},
    {"codes_in_use", codes_in_use_shared, METH_O,
     "codes_in_use(owner_id, /)\n--\n\nOf how many code objects an entry of this owner has run since the last entry was "
     "made, for whatever code and owner, and how many have entries of this owner."},
    {"skip_reason", skip_reason_shared, METH_O, "skip_reason(code, /)\n--\n\nThe reason given to skip_code, or None."},
    {"called_last", called_last_shared, METH_VARARGS,
     "called_last(code, goes_on=False, way=None, aside=False, /)\n--\n\nCode that has this code for a constant calls it last thing, and then "
     "needs none of its own variables any more: they are let go as the call begins. Code that goes on afterwards keeps "
     "them, all but the arguments. What is raised then is given to `way`, to see to its traceback. With aside, the caller's "
     "frame is not shown while this code runs."},
    {"keep_entry", (PyCFunction)(void (*)(void))keep_entry_shared, METH_FASTCALL,
     "keep_entry(code, entry, /)\n--\n\nKeep an entry with the code, as if a callback had returned it."},
    {"drop_entry", (PyCFunction)(void (*)(void))drop_entry_shared, METH_FASTCALL,
     "drop_entry(code, entry, /)\n--\n\nDrop one entry of the code."},
    {"clear_code", clear_code_shared, METH_O, "clear_code(code, /)\n--\n\nForget all about a code object."},
    {"clear_all", clear_all_shared, METH_NOARGS, "clear_all()\n--\n\nForget all about every code object."},
    {"drop_owner", drop_owner_shared, METH_O, "drop_owner(owner_id, /)\n--\n\nDrop the entries of one owner, everywhere."},
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
