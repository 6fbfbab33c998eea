/* Comparing, measuring and finding without running anybody's Python code. */
#include "guards.h"

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
        PyObject **number = td_attr_place(constant, td_range_parts[i]), **other = td_attr_place(obj, td_range_parts[i]);
        if (number == NULL || other == NULL || !td_constant_equal(*number, *other))
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

static int is_plain(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || obj == Py_None;
}

int td_holds_plain(PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    if (!PyDict_CheckExact(dict))
        return 0;
    while (PyDict_Next(dict, &position, &key, &value))
        if (!is_plain(key) || !is_plain(value))
            return 0;
    return 1;
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

int td_set_has(PyObject *set, PyObject *obj)
{
    Py_hash_t hash = PySet_Check(set) ? PyObject_Hash(obj) : -1;
    if (hash == -1)
        return PyErr_Clear(), 0;
    PySetObject *items = (PySetObject *)set;
    size_t mask = (size_t)items->mask, at = (size_t)hash & mask;
    for (size_t i = 0; i <= mask; i++, at = (at + 1) & mask) /* it lies near to where it belongs */
        if (items->table[at].key == obj)
            return 1;
    return 0;
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
