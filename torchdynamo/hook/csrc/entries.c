/* The entries of code objects: kept, found and dropped. */
#include "hook.h"

int64_t td_entries_made = 0;

/* ---- keeping ------------------------------------------------------------------------------------------------------- */

static int append(PyCodeObject *code, TdEntry *entry)
{
    TdCodeState *state = td_state_make(code);
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
    TdCodeState *state = td_states;
    while (state != NULL) {
        if (state->entries == NULL || count_live(state->entries) == PyTuple_GET_SIZE(state->entries)) {
            state = state->next;
            continue;
        }
        if (prune(state) < 0)
            return -1;
        state = td_states;
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

static PyObject *cache_entries(PyObject *module, PyObject *object)
{
    PyCodeObject *code = td_expect_code(object);
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

static PyObject *codes_in_use(PyObject *module, PyObject *object)
{
    long long owner_id = PyLong_AsLongLong(object);
    if (owner_id == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t used = 0, all = 0;
    for (TdCodeState *state = td_states; state != NULL; state = state->next) {
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

static PyObject *clear_code(PyObject *module, PyObject *object)
{
    PyCodeObject *code = td_expect_code(object);
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
    return (*code = td_expect_code(args[0])) == NULL ? -1 : 0;
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
    for (TdCodeState *state = td_states; !failed && state != NULL; state = state->next) {
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
    for (TdCodeState *state = td_states; state != NULL; state = state->next)
        mark_dropped(state, 0, owner_id);
    return prune_all() < 0 ? NULL : Py_NewRef(Py_None);
}

TD_SHARED_FUNCTION(cache_entries, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(codes_in_use, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(keep_entry, (PyObject *module, PyObject *const *args, Py_ssize_t nargs), (module, args, nargs))
TD_SHARED_FUNCTION(drop_entry, (PyObject *module, PyObject *const *args, Py_ssize_t nargs), (module, args, nargs))
TD_SHARED_FUNCTION(clear_code, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(clear_all, (PyObject *module, PyObject *object), (module, object))
TD_SHARED_FUNCTION(drop_owner, (PyObject *module, PyObject *object), (module, object))

static PyMethodDef entry_functions[] = {
    {"cache_entries", cache_entries_shared, METH_O, "cache_entries(code, /)\n--\n\nThe code's entries, oldest first."},
    {"codes_in_use", codes_in_use_shared, METH_O,
     "codes_in_use(owner_id, /)\n--\n\nOf how many code objects an entry of this owner has run since the last entry was "
     "made, for whatever code and owner, and how many have entries of this owner."},
    {"keep_entry", (PyCFunction)(void (*)(void))keep_entry_shared, METH_FASTCALL,
     "keep_entry(code, entry, /)\n--\n\nKeep an entry with the code, as if a callback had returned it."},
    {"drop_entry", (PyCFunction)(void (*)(void))drop_entry_shared, METH_FASTCALL,
     "drop_entry(code, entry, /)\n--\n\nDrop one entry of the code."},
    {"clear_code", clear_code_shared, METH_O, "clear_code(code, /)\n--\n\nForget all about a code object."},
    {"clear_all", clear_all_shared, METH_NOARGS, "clear_all()\n--\n\nForget all about every code object."},
    {"drop_owner", drop_owner_shared, METH_O, "drop_owner(owner_id, /)\n--\n\nDrop the entries of one owner, everywhere."},
    {NULL},
};

int td_entries_init(PyObject *module) { return PyModule_AddFunctions(module, entry_functions); }
