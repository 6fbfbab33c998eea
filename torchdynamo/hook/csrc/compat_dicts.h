/* Facts about dicts, instances and classes of CPython's versions, for guards: included by compat.h alone. */
#ifndef TORCHDYNAMO_COMPAT_DICTS_H
#define TORCHDYNAMO_COMPAT_DICTS_H
#include "compat.h"

#if PY_VERSION_HEX >= 0x030E0000
/* Dicts have no number of their own. The low bits of a field say who watches the dict; the others are free, but for those
 * that CPython counts in (and, without the global interpreter lock, all). */
#define TD_DICTS_ARE_WATCHED 1
#define TD_DICT_NUMBER_SHIFT (DICT_MAX_WATCHERS + DICT_WATCHED_MUTATION_BITS)
#define TD_DICT_FIELD(dict) (((PyDictObject *)(dict))->_ma_watcher_tag)
extern uint64_t td_watcher_bit; /* watched.c: ours in that field; 0: none was left */
void td_watch(PyObject *dict);  /* from now on each write gives it a new number; no error */
#endif

/* A number that changes whenever the dict does, and is never used again; 0 where there is none to trust. In 3.13 and 3.14 a
 * write to the values that an instance keeps in itself, and shares with its dict, does not touch it. 3.14 numbers no dict:
 * those that are watched (td_dict_tag_from_now) get theirs from us. */
static inline uint64_t td_dict_tag(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030E0000
    PyDictObject *self = (PyDictObject *)dict;
    return self->ma_values == NULL && (self->_ma_watcher_tag & td_watcher_bit) ? self->_ma_watcher_tag : 0;
#elif PY_VERSION_HEX >= 0x030D0000
    return ((PyDictObject *)dict)->ma_values == NULL ? ((PyDictObject *)dict)->ma_version_tag : 0;
#elif PY_VERSION_HEX >= 0x030C0000
    _Py_COMP_DIAG_PUSH
    _Py_COMP_DIAG_IGNORE_DEPR_DECLS
    return ((PyDictObject *)dict)->ma_version_tag;
    _Py_COMP_DIAG_POP
#else
    return ((PyDictObject *)dict)->ma_version_tag;
#endif
}

/* The same, for a dict that has just been read and is to be read again: where only watched dicts are numbered, it is
 * watched from now on. */
static inline uint64_t td_dict_tag_from_now(PyObject *dict)
{
#ifdef TD_DICTS_ARE_WATCHED
    if (TD_UNLIKELY(td_dict_tag(dict) == 0) && ((PyDictObject *)dict)->ma_values == NULL)
        td_watch(dict);
#endif
    return td_dict_tag(dict);
}

/* Where that number is, after what makes it count; how many places. */
#define TD_TAG_PLACES 2
static inline int td_dict_tag_places(PyObject *dict, const void **places)
{
    int n = 0;
#if PY_VERSION_HEX >= 0x030D0000
    places[n++] = &((PyDictObject *)dict)->ma_values;
#endif
#if PY_VERSION_HEX >= 0x030E0000
    places[n++] = &((PyDictObject *)dict)->_ma_watcher_tag;
#else
    places[n++] = &((PyDictObject *)dict)->ma_version_tag;
#endif
    return n;
}

/* For a dict without such a number, whose keys are shared: while these places hold what they hold, in this order, each
 * key has the slot it has, and no other key has one. How many there are; 0: not such a dict. */
#define TD_SPLIT_PLACES 3
static inline int td_dict_split(PyObject *dict, const void **places)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyDictObject *split = (PyDictObject *)dict;
    if (split->ma_values == NULL)
        return 0;
    places[0] = &split->ma_values;
    places[1] = &split->ma_keys;
    places[2] = &split->ma_keys->dk_nentries;
    return TD_SPLIT_PLACES;
#else
    (void)dict;
    (void)places;
    return 0;
#endif
}

/* The slot of a name in such a dict, NULL in it where it has no value; or NULL: the keys do not have the name. */
static inline PyObject **td_dict_split_slot(PyObject *dict, PyObject *name)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyDictObject *split = (PyDictObject *)dict;
    PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(split->ma_keys);
    for (Py_ssize_t i = 0; i < split->ma_keys->dk_nentries; i++)
        if (entries[i].me_key == name || PyUnicode_Compare(entries[i].me_key, name) == 0)
            return &split->ma_values->values[i];
#else
    (void)dict;
    (void)name;
#endif
    return NULL;
}

/* The same for what a class and its bases define; 0: look again. */
static inline uint64_t td_type_tag(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030D0000
    return type->tp_version_tag;
#else
    return type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG ? type->tp_version_tag : 0;
#endif
}

/* Are all keys of the dict known to be exact strings? Then looking one up calls nobody's __eq__. 3.10 does not tell. */
static inline int td_dict_is_plain(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030B0000
    return ((PyDictObject *)dict)->ma_keys->dk_kind != DICT_KEYS_GENERAL;
#else
    (void)dict;
    return 0;
#endif
}

/* The next item of a dict, borrowed, with the hash its key had when it was put in; 0: there is none. */
static inline int td_dict_next(PyObject *dict, Py_ssize_t *position, PyObject **key, PyObject **value, Py_hash_t *hash)
{
#if PY_VERSION_HEX >= 0x030D0000
    if (!PyDict_Next(dict, position, key, value))
        return 0;
    PyDictKeysObject *keys = ((PyDictObject *)dict)->ma_keys;
    *hash = td_dict_is_plain(dict) ? ((PyASCIIObject *)*key)->hash : DK_ENTRIES(keys)[*position - 1].me_hash;
    return 1;
#else
    return _PyDict_Next(dict, position, key, value, hash);
#endif
}

/* What an object without a hash of its own is found by. */
#if PY_VERSION_HEX >= 0x030D0000
#define TD_HASH_OF_PLACE Py_HashPointer
#else
#define TD_HASH_OF_PLACE _Py_HashPointer
#endif

/* A search for the keys of one hash. */
typedef struct {
    size_t at, perturb;
} TdProbe;

static inline TdProbe td_probe_start(Py_hash_t hash)
{
#if PY_VERSION_HEX >= 0x030B0000
    return (TdProbe){(size_t)hash, (size_t)hash};
#else
    (void)hash;
    return (TdProbe){0, 0};
#endif
}

/* The next item of a dict whose key had this hash when it was put in, borrowed; 0: there is none. Goes the way that a
 * lookup goes through the dict's table, calls nobody's __eq__, and goes on after a key that another would equal. 3.10,
 * which does not show the table, looks at each item. */
static inline int td_probe_next(PyObject *dict, TdProbe *probe, Py_hash_t hash, PyObject **key, PyObject **value)
{
#if PY_VERSION_HEX >= 0x030B0000
    PyDictObject *self = (PyDictObject *)dict;
    PyDictKeysObject *keys = self->ma_keys;
    size_t mask = (size_t)DK_SIZE(keys) - 1;
    for (;;) {
        size_t slot = probe->at & mask;
        int log_size = DK_LOG_SIZE(keys);
        Py_ssize_t index = log_size < 8    ? ((const int8_t *)keys->dk_indices)[slot]
                           : log_size < 16 ? ((const int16_t *)keys->dk_indices)[slot]
                           : log_size < 32 ? ((const int32_t *)keys->dk_indices)[slot]
                                           : (Py_ssize_t)((const int64_t *)keys->dk_indices)[slot];
        if (index == DKIX_EMPTY)
            return 0;
        probe->perturb >>= 5; /* PERTURB_SHIFT of dictobject.c */
        probe->at = slot * 5 + probe->perturb + 1;
        if (index < 0)
            continue;
        Py_hash_t found;
        if (keys->dk_kind == DICT_KEYS_GENERAL) {
            PyDictKeyEntry *entry = &DK_ENTRIES(keys)[index];
            *key = entry->me_key, *value = entry->me_value, found = entry->me_hash;
        } else {
            PyDictUnicodeEntry *entry = &DK_UNICODE_ENTRIES(keys)[index];
            *key = entry->me_key, *value = entry->me_value;
            found = *key != NULL ? ((PyASCIIObject *)*key)->hash : -1;
            if (self->ma_values != NULL)
                *value = self->ma_values->values[index];
        }
        if (found == hash && *value != NULL)
            return 1;
    }
#else
    Py_ssize_t position = (Py_ssize_t)probe->at;
    Py_hash_t found;
    while (td_dict_next(dict, &position, key, value, &found))
        if (found == hash) {
            probe->at = (size_t)position;
            return 1;
        }
    return 0;
#endif
}

#ifndef MANAGED_DICT_OFFSET /* 3.11 and 3.12 have the place, but no name for it; in 3.13 it depends on the collector's header */
#define MANAGED_DICT_OFFSET (((Py_ssize_t)sizeof(PyObject *)) * -3)
#endif

/* Where an instance has its dict, or NULL; never makes one. In 3.12 the low bit says that it is not a dict. */
static inline PyObject **td_instance_dict_place(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
#if PY_VERSION_HEX >= 0x030B0000
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
        return (PyObject **)((char *)obj + MANAGED_DICT_OFFSET);
#endif
    if (type->tp_dictoffset > 0)
        return (PyObject **)((char *)obj + type->tp_dictoffset);
    return type->tp_dictoffset == 0 ? NULL : _PyObject_GetDictPtr(obj);
}

/* The instance's dict if it is there now (borrowed). */
static inline PyObject *td_instance_dict(PyObject *obj)
{
    PyObject **place = td_instance_dict_place(obj);
    return place == NULL || ((uintptr_t)*place & 1) ? NULL : *place;
}

/* What a weakref refers to (borrowed), or None. */
static inline PyObject *td_weak_target(PyObject *weak)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *target;
    if (PyWeakref_GetRef(weak, &target) != 1)
        return Py_None;
    Py_DECREF(target); /* somebody else has it: weakrefs are cleared before their object goes */
    return target;
#else
    return PyWeakref_GET_OBJECT(weak);
#endif
}

/* The same, as a new reference. */
static inline PyObject *td_weak_get(PyObject *weak)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *target;
    return PyWeakref_GetRef(weak, &target) == 1 ? target : Py_NewRef(Py_None);
#else
    return Py_NewRef(PyWeakref_GET_OBJECT(weak));
#endif
}

/* What a dict has under a key, as a new reference; NULL, perhaps with an error. */
static inline PyObject *td_dict_get(PyObject *dict, PyObject *key)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *value;
    return PyDict_GetItemRef(dict, key, &value) == 1 ? value : NULL;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

/* What a class and its bases have by a name, borrowed. Without the global interpreter lock it is owned through *held, which
 * is else NULL, and which the caller lets go. */
static inline PyObject *td_class_look_up(PyTypeObject *type, PyObject *name, PyObject **held)
{
#ifdef Py_GIL_DISABLED
    return *held = _PyType_LookupRef(type, name);
#else
    *held = NULL;
    return _PyType_Lookup(type, name);
#endif
}

/* A collection would run finalizers, so what allocates while guards are checked is done with it off. From 3.12 on
 * collections wait for the evaluator anyway. */
static inline int td_gc_pause(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return 0;
#else
    return PyGC_Disable();
#endif
}

static inline void td_gc_resume(int was_on)
{
    if (was_on)
        PyGC_Enable();
}

/* The order of an OrderedDict, which its dict part knows nothing of: private to odictobject.c, and the same from 3.5
 * to 3.14. */
typedef struct TdOrderedNode {
    PyObject *key;
    Py_hash_t hash;
    struct TdOrderedNode *next;
} TdOrderedNode;

typedef struct {
    PyDictObject dict;
    TdOrderedNode *first;
} TdOrderedDict;

#endif
