/* Finds keys in dicts as Python does, by hash and then by identity or equality, without running Python code.
 *
 * Two keys of one hash are compared where C alone decides, whatever class they are of: an int with a member of an
 * IntEnum, a tuple with a torch.Size, a string with a member of a string enum. Where the class of one says itself what
 * it equals (a class with an `__eq__`, a number of NumPy's), nobody knows whether the dict has the key, and no guard
 * that asks for it, there or not, holds. */
#include "guards.h"

typedef enum { ITS_OWN, IDENTITY, NUMBER, TEXT, BYTES, TUPLE, FROZENSET, DEVICE } Family;

/* Which C code compares objects of the type. */
static Family family_of(PyObject *obj)
{
    richcmpfunc compares = Py_TYPE(obj)->tp_richcompare;
    if (compares == NULL || compares == PyBaseObject_Type.tp_richcompare)
        return IDENTITY;
    if (compares == PyUnicode_Type.tp_richcompare)
        return TEXT;
    if (compares == PyLong_Type.tp_richcompare || compares == PyFloat_Type.tp_richcompare
        || compares == PyComplex_Type.tp_richcompare)
        return NUMBER;
    if (compares == PyTuple_Type.tp_richcompare)
        return TUPLE;
    if (compares == PyBytes_Type.tp_richcompare)
        return BYTES;
    if (PyFrozenSet_CheckExact(obj))
        return FROZENSET;
    return td_is_device(obj) ? DEVICE : ITS_OWN;
}

/* Can the class be given another `__eq__`? */
static int is_open(PyObject *obj)
{
    return (Py_TYPE(obj)->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_IMMUTABLETYPE)) == Py_TPFLAGS_HEAPTYPE;
}

static int compare(PyObject *a, PyObject *b)
{
    int answer = PyObject_RichCompareBool(a, b, Py_EQ);
    if (answer < 0)
        PyErr_Clear();
    return answer;
}

/* 1: a dict takes the one for the other; 0: it does not; -1: that is not known. *lasts is cleared if a class that can
 * be changed has a say. */
static int same_key(PyObject *a, PyObject *b, char *lasts)
{
    if (a == b)
        return 1;
    if (is_open(a) || is_open(b))
        *lasts = 0;
    Family family = family_of(a), other = family_of(b);
    if (family == ITS_OWN || other == ITS_OWN)
        return -1;
    if (family != other || family == IDENTITY)
        return 0;
    if (family == FROZENSET)
        return td_is_constant(a) && td_is_constant(b) ? compare(a, b) : -1;
    if (family != TUPLE)
        return compare(a, b);
    Py_ssize_t length = PyTuple_GET_SIZE(a), other_length = PyTuple_GET_SIZE(b);
    for (Py_ssize_t i = 0; i < length && i < other_length; i++) {
        int same = same_key(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i), lasts);
        if (same != 1)
            return same;
    }
    return length == other_length;
}

TdLookup td_dict_look_up(PyObject *dict, const TdItem *key)
{
    TdLookup answer = {NULL, 1, 1};
    if (TD_LIKELY(PyUnicode_CheckExact(key->obj) && td_dict_is_plain(dict))) {
        answer.value = _PyDict_GetItem_KnownHash(dict, key->obj, key->hash);
        return answer;
    }
    PyObject *wanted = key->how == ITEM_WEAK ? td_weak_target(key->obj) : key->obj, *found, *value;
    if (key->how == ITEM_WEAK && wanted == Py_None)
        return (TdLookup){NULL, 0, 0};
    TdProbe probe = td_probe_start(key->hash);
    while (td_probe_next(dict, &probe, key->hash, &found, &value)) {
        int same = same_key(wanted, found, &answer.lasts);
        if (same < 0)
            return (TdLookup){NULL, 0, 0};
        if (same)
            answer.value = value;
    }
    return answer;
}

PyObject *td_dict_find(PyObject *dict, const TdItem *key) { return td_dict_look_up(dict, key).value; }

/* Objects that are keys seldom move: where the key was found last is looked at first. */
PyObject *td_dict_find_object(PyObject *dict, PyObject *key, Py_ssize_t *place)
{
    PyObject *found, *value;
    if (!PyDict_Check(dict))
        return NULL;
    Py_ssize_t position = *place;
    if (PyDict_Next(dict, &position, &found, &value) && found == key)
        return value;
    for (*place = position = 0; PyDict_Next(dict, &position, &found, &value); *place = position)
        if (found == key)
            return value;
    return NULL;
}

PyObject *td_dict_at(PyObject *dict, Py_ssize_t position, int of_key)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (!PyDict_Check(dict) || position < 0 || position >= PyDict_GET_SIZE(dict))
        return NULL;
    if (PyODict_Check(dict)) {
        TdOrderedNode *node = ((TdOrderedDict *)dict)->first;
        for (; node != NULL && position > 0; position--)
            node = node->next;
        if (node == NULL || of_key)
            return node == NULL ? NULL : node->key;
        return td_dict_find_object(dict, node->key, &at);
    }
    while (PyDict_Next(dict, &at, &key, &value))
        if (position-- == 0)
            return of_key ? key : value;
    return NULL;
}

static TdLookup look_up_number(PyObject *dict, PyObject *number)
{
    TdItem item = {number, PyObject_Hash(number), ITEM_EQUAL, -1}; /* of an int, which cannot fail */
    return td_dict_look_up(dict, &item);
}

int td_dict_has_number(PyObject *dict, PyObject *number)
{
    if (!PyDict_Check(dict) || !PyLong_CheckExact(number))
        return 0;
    TdLookup found = look_up_number(dict, number);
    return found.told && found.value != NULL;
}

static int set_lacks_object(PyObject *set, PyObject *obj)
{
    PyObject *found;
    Py_ssize_t position = 0;
    Py_hash_t hash;
    if (PyLong_CheckExact(obj))
        return 0;
    while (_PySet_NextEntry(set, &position, &found, &hash))
        if (found == obj)
            return 0;
    return 1;
}

/* A tensor's hash is where it is, and so is a class's, turned round: whatever has one of these may say it is equal. */
int td_dict_lacks_object(PyObject *dict, PyObject *key)
{
    PyObject *found, *value;
    Py_ssize_t position = 0;
    Py_hash_t hash, turned = TD_HASH_OF_PLACE(key);
    if (PyAnySet_Check(dict))
        return set_lacks_object(dict, key);
    if (!PyDict_Check(dict))
        return 0;
    if (PyLong_CheckExact(key)) {
        TdLookup number = look_up_number(dict, key);
        return number.told && number.value == NULL;
    }
    while (td_dict_next(dict, &position, &found, &value, &hash))
        if (found == key || hash == turned || hash == (Py_hash_t)(uintptr_t)key)
            return 0;
    return 1;
}

/* ---- Asked from Python ------------------------------------------------------------------------------------------- */

static PyObject *key_hashes(PyObject *Py_UNUSED(module), PyObject *dict)
{
    PyObject *found, *value, *hashes = PyList_New(0);
    Py_ssize_t position = 0;
    Py_hash_t hash;
    if (!PyDict_Check(dict)) {
        Py_XDECREF(hashes);
        return PyErr_Format(PyExc_TypeError, "expected a dict, got %.100s", Py_TYPE(dict)->tp_name);
    }
    while (hashes != NULL && td_dict_next(dict, &position, &found, &value, &hash)) {
        PyObject *number = PyLong_FromSsize_t(hash);
        if (number == NULL || PyList_Append(hashes, number) < 0)
            Py_CLEAR(hashes);
        Py_XDECREF(number);
    }
    return hashes;
}

static PyObject *has_key(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *dict, *key;
    if (!PyArg_ParseTuple(args, "O!O:has_key", &PyDict_Type, &dict, &key))
        return NULL;
    TdItem item = {key, PyObject_Hash(key), ITEM_IS, -1};
    if (item.hash == -1)
        return NULL;
    TdLookup found = td_dict_look_up(dict, &item);
    return found.told ? PyBool_FromLong(found.value != NULL) : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"key_hashes", key_hashes, METH_O, "key_hashes(dict) -> the hashes that the dict's keys had when they were put in, in order."},
    {"has_key", has_key, METH_VARARGS,
     "has_key(dict, key) -> bool | None: is the key there? None: only a key's own code could tell, and is not asked."},
    {NULL, NULL, 0, NULL},
};

int td_keys_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
