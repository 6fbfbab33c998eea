/* Comparing, measuring and finding without running anybody's Python code. */
#include "guards.h"
#include "hook.h"
#include <structmember.h>

PyTypeObject *td_deque_type = NULL;
PyTypeObject *td_local_type = NULL;
PyObject *td_range_parts[3];

/* ---- Constants --------------------------------------------------------------------------------------------------- */

/* Is comparing the object with another constant sure to stay in C? */
int td_is_constant(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type
        || type == &PyBytes_Type || type == &PyComplex_Type || obj == Py_None || obj == Py_Ellipsis
        || obj == Py_NotImplemented)
        return 1;
    if (PyTuple_CheckExact(obj) || td_is_size(obj)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(obj); i++)
            if (!td_is_constant(PyTuple_GET_ITEM(obj, i)))
                return 0;
        return 1;
    }
    if (PyFrozenSet_CheckExact(obj)) {
        Py_ssize_t position = 0;
        Py_hash_t hash;
        PyObject *item;
        while (_PySet_NextEntry(obj, &position, &item, &hash))
            if (!td_is_constant(item))
                return 0;
        return 1;
    }
    return td_is_device(obj);
}

static int same_bits(double a, double b) { return memcmp(&a, &b, sizeof(double)) == 0; }

/* Both are constants of one exact type that C compares by itself. */
static int compare(PyObject *a, PyObject *b)
{
    int answer = PyObject_RichCompareBool(a, b, Py_EQ);
    if (answer < 0)
        PyErr_Clear();
    return answer == 1;
}

static int same_frozenset(PyObject *constant, PyObject *obj)
{
    if (PySet_GET_SIZE(constant) != PySet_GET_SIZE(obj))
        return 0;
    Py_ssize_t at = 0;
    Py_hash_t hash, other_hash;
    PyObject *item, *other;
    while (_PySet_NextEntry(constant, &at, &item, &hash)) {
        Py_ssize_t other_at = 0;
        int found = 0;
        while (!found && _PySet_NextEntry(obj, &other_at, &other, &other_hash))
            found = td_constant_equal(item, other);
        if (!found)
            return 0;
    }
    return 1;
}

/* A range has no C face, but its numbers are members: none is made for this. */
static int same_range(PyObject *constant, PyObject *obj)
{
    for (int i = 0; i < 3; i++) {
        PyObject *temp = NULL, *number = td_attr(constant, td_range_parts[i], &temp);
        PyObject *other_temp = NULL, *other = td_attr(obj, td_range_parts[i], &other_temp);
        int same = number != NULL && other != NULL && td_constant_equal(number, other);
        Py_XDECREF(temp);
        Py_XDECREF(other_temp);
        if (!same)
            return 0;
    }
    return 1;
}

/* torch.Size is a tuple with a class of its own; like a slice's parts, its items compare one by one. */
int td_constant_equal(PyObject *constant, PyObject *obj)
{
    if (constant == obj)
        return 1;
    PyTypeObject *type = Py_TYPE(constant);
    if (type != Py_TYPE(obj))
        return 0;
    if (type == &PyFloat_Type)
        return same_bits(PyFloat_AS_DOUBLE(constant), PyFloat_AS_DOUBLE(obj));
    if (type == &PyComplex_Type) {
        Py_complex a = ((PyComplexObject *)constant)->cval, b = ((PyComplexObject *)obj)->cval;
        return same_bits(a.real, b.real) && same_bits(a.imag, b.imag);
    }
    if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type || td_is_device(constant))
        return compare(constant, obj);
    if (PyTuple_Check(constant)) {
        Py_ssize_t count = PyTuple_GET_SIZE(constant);
        if (count != PyTuple_GET_SIZE(obj))
            return 0;
        for (Py_ssize_t i = 0; i < count; i++)
            if (!td_constant_equal(PyTuple_GET_ITEM(constant, i), PyTuple_GET_ITEM(obj, i)))
                return 0;
        return 1;
    }
    if (type == &PyFrozenSet_Type)
        return same_frozenset(constant, obj);
    if (type == &PyRange_Type)
        return same_range(constant, obj);
    if (type == &PySlice_Type) {
        PySliceObject *a = (PySliceObject *)constant, *b = (PySliceObject *)obj;
        return td_constant_equal(a->start, b->start) && td_constant_equal(a->stop, b->stop)
               && td_constant_equal(a->step, b->step);
    }
    return 0;
}

/* ---- Dicts and sets ---------------------------------------------------------------------------------------------- */

int td_item_is(const TdItem *item, PyObject *obj)
{
    switch (item->how) {
    case ITEM_EQUAL:
        return td_constant_equal(item->obj, obj);
    case ITEM_IS:
        return item->obj == obj;
    default:
        return td_weak_target(item->obj) == obj;
    }
}

int td_dict_keys_are(PyObject *dict, const TdItems *keys)
{
    if (PyDict_GET_SIZE(dict) != keys->count)
        return 0;
    PyObject *found, *value;
    Py_ssize_t position = 0;
    for (int i = 0; PyDict_Next(dict, &position, &found, &value); i++)
        if (!td_item_is(&keys->items[i], found))
            return 0;
    return 1;
}

int td_ordered_keys_are(PyObject *dict, const TdItems *keys)
{
    int i = 0;
    for (TdOrderedNode *node = ((TdOrderedDict *)dict)->first; node != NULL; node = node->next, i++)
        if (i >= keys->count || !td_item_is(&keys->items[i], node->key))
            return 0;
    return i == keys->count;
}

/* Equal hashes first; a nan, though, hashes by where it is. */
static int set_has(const TdItems *items, PyObject *found, Py_hash_t hash)
{
    for (int i = 0; i < items->count; i++)
        if ((items->items[i].how != ITEM_EQUAL || items->items[i].hash == hash) && td_item_is(&items->items[i], found))
            return 1;
    for (int i = 0; i < items->count; i++)
        if (items->items[i].how == ITEM_EQUAL && td_item_is(&items->items[i], found))
            return 1;
    return 0;
}

int td_set_is(PyObject *set, const TdItems *items)
{
    if (!PyAnySet_Check(set) || PySet_GET_SIZE(set) != items->count)
        return 0;
    Py_ssize_t position = 0;
    Py_hash_t hash;
    PyObject *found;
    while (_PySet_NextEntry(set, &position, &found, &hash))
        if (!set_has(items, found, hash))
            return 0;
    return 1;
}

/* ---- Sequences --------------------------------------------------------------------------------------------------- */

static int is_deque(PyObject *obj) { return PyObject_TypeCheck(obj, td_deque_type); }

Py_ssize_t td_length(PyObject *obj)
{
    if (PyList_Check(obj) || PyTuple_Check(obj) || PyBytes_Check(obj))
        return Py_SIZE(obj);
    if (PyDict_Check(obj))
        return PyDict_GET_SIZE(obj);
    if (PyAnySet_Check(obj))
        return PySet_GET_SIZE(obj);
    if (PyUnicode_Check(obj))
        return PyUnicode_GET_LENGTH(obj);
    if (is_deque(obj))
        return td_deque_type->tp_as_sequence->sq_length(obj);
    return -1;
}

PyObject *td_item_at(PyObject *obj, Py_ssize_t index)
{
    Py_ssize_t length = td_length(obj);
    if (index < 0)
        index += length;
    if (index < 0 || index >= length)
        return NULL;
    if (PyList_Check(obj))
        return PyList_GET_ITEM(obj, index);
    if (PyTuple_Check(obj))
        return PyTuple_GET_ITEM(obj, index);
    if (!is_deque(obj))
        return NULL;
    PyObject *item = td_deque_type->tp_as_sequence->sq_item(obj, index);
    if (item == NULL) {
        PyErr_Clear();
        return NULL;
    }
    Py_DECREF(item); /* the deque has it */
    return item;
}

/* ---- Attributes that C code keeps -------------------------------------------------------------------------------- */

/* Where a slot or member keeps its object; NULL if it is not such a one. */
static PyObject **member_place(PyObject *obj, PyObject *descriptor, int *optional)
{
    PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
    if (!PyObject_TypeCheck(obj, PyDescr_TYPE(descriptor)) || (member->type != T_OBJECT && member->type != T_OBJECT_EX))
        return NULL;
    *optional = member->type == T_OBJECT;
    return (PyObject **)((char *)obj + member->offset);
}

/* Some of a function's raise an audit event, and whoever listens for these is no part of the program. */
static PyObject *call_getter(PyObject *obj, PyObject *descriptor, PyObject **temp)
{
    TdThread *thread = td_thread;
    TdSetting ours, stray;
    if (thread != NULL)
        ours = td_thread_swap(thread, TD_OFF);
    int was_on = td_gc_pause();
    PyObject *value = Py_TYPE(descriptor)->tp_descr_get(descriptor, obj, (PyObject *)Py_TYPE(obj));
    if (value == NULL)
        PyErr_Clear();
    td_gc_resume(was_on);
    if (thread != NULL) {
        stray = td_thread_swap(thread, ours);
        Py_XDECREF(stray.callback);
    }
    return *temp = value;
}

/* Each thread has a dict of its own there. A subclass may have an `__init__`, which runs where a thread looks first. */
static void of_this_thread(PyObject *obj, PyObject *name, PyObject **temp)
{
    TdThread *thread = td_thread;
    int may_run = !Py_IS_TYPE(obj, td_local_type) && thread != NULL;
    TdSetting ours, stray;
    if (may_run)
        ours = td_thread_swap(thread, TD_OFF);
    if ((*temp = PyObject_GetAttr(obj, name)) == NULL)
        PyErr_Clear();
    if (may_run) {
        stray = td_thread_swap(thread, ours);
        Py_XDECREF(stray.callback);
    }
}

/* What functools.lru_cache keeps goes by a name that no attribute has. */
static int is_cache(PyObject *name) { return _PyUnicode_EqualToASCIIString(name, "<cache>"); }

PyObject *td_attr(PyObject *obj, PyObject *name, PyObject **temp)
{
    if (td_is_tensor(obj)) {
        int was_on = td_gc_pause();
        *temp = td_tensor_attr(obj, name);
        td_gc_resume(was_on);
        return *temp;
    }
    if (TD_UNLIKELY(Py_TYPE(obj)->tp_getattro == td_local_type->tp_getattro)) {
        of_this_thread(obj, name, temp);
        return *temp;
    }
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(obj), name);
    if (descriptor == NULL) {
        PyObject **cache = is_cache(name) ? td_cache_place(obj) : NULL;
        return cache == NULL ? NULL : *cache;
    }
    int optional;
    if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
        PyObject **place = member_place(obj, descriptor, &optional);
        if (place != NULL)
            return *place == NULL && optional ? Py_None : *place;
        return call_getter(obj, descriptor, temp);
    }
    if (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type))
        return call_getter(obj, descriptor, temp);
    return NULL;
}

PyObject **td_attr_place(PyObject *obj, PyObject *name)
{
    int optional;
    if (is_cache(name))
        return td_cache_place(obj);
    if (PyFunction_Check(obj)) {
        PyFunctionObject *fn = (PyFunctionObject *)obj;
        PyObject **place = _PyUnicode_EqualToASCIIString(name, "__closure__")    ? &fn->func_closure
                           : _PyUnicode_EqualToASCIIString(name, "__globals__")  ? &fn->func_globals
                           : _PyUnicode_EqualToASCIIString(name, "__defaults__") ? &fn->func_defaults
                                                                                 : NULL;
        return place == NULL || *place == NULL ? NULL : place;
    }
    if (td_is_tensor(obj) || (Py_TYPE(obj)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return NULL;
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(obj), name);
    PyObject **place = descriptor != NULL && Py_IS_TYPE(descriptor, &PyMemberDescr_Type)
                           ? member_place(obj, descriptor, &optional)
                           : NULL;
    return place == NULL || *place == NULL ? NULL : place;
}

/* Only what is written in C and does nothing but look: a builtin that reads a flag, or a weak reference, which gives
 * what it refers to, whatever the user's subclass makes of a call. */
PyObject *td_call(PyObject *fn, PyObject *args, PyObject **temp)
{
    if (PyWeakref_CheckRef(fn))
        return *temp = Py_NewRef(td_weak_target(fn));
    if (!PyCFunction_Check(fn))
        return NULL;
    int was_on = td_gc_pause();
    *temp = PyObject_Call(fn, args, NULL);
    td_gc_resume(was_on);
    if (*temp == NULL)
        PyErr_Clear();
    return *temp;
}

/* Of a type that no class statement made, and that nobody can change, the method is C's: nothing of the user's runs. */
static PyObject *call_method(PyObject *obj, PyObject *name)
{
    if ((Py_TYPE(obj)->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_IMMUTABLETYPE)) == Py_TPFLAGS_HEAPTYPE)
        return NULL;
    PyObject *result = PyObject_CallMethodNoArgs(obj, name);
    if (result == NULL)
        PyErr_Clear();
    return result;
}

PyObject *td_method(PyObject *obj, PyObject *name, PyObject **temp)
{
    int was_on = td_gc_pause();
    *temp = td_is_tensor(obj) ? td_tensor_call(obj, name) : call_method(obj, name);
    td_gc_resume(was_on);
    return *temp;
}

int td_attr_unbound(PyObject *obj, PyObject *name)
{
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(obj), name);
    int optional;
    if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
        return 0;
    PyObject **place = member_place(obj, descriptor, &optional);
    return place != NULL && *place == NULL && !optional;
}
