/* One check of a program: does it hold? Fetches and witnesses are in guards_run.c. */
#include "guards_run.h"

static int distinct(PyObject **values, const TdStep *step)
{
    const int *nodes = step->u.nodes;
    Py_ssize_t count = step->number;
    if (count <= 16) {
        for (Py_ssize_t i = 1; i < count; i++)
            for (Py_ssize_t j = 0; j < i; j++)
                if (values[nodes[i]] == values[nodes[j]])
                    return 0;
        return 1;
    }
    /* Open addressing in a table at least twice as large. */
    size_t size = 64;
    while (size < (size_t)count * 2)
        size *= 2;
    PyObject **table = PyMem_Calloc(size, sizeof(PyObject *));
    int answer = table != NULL;
    for (Py_ssize_t i = 0; answer && i < count; i++) {
        PyObject *value = values[nodes[i]];
        size_t at = ((uintptr_t)value >> 4) * 0x9E3779B97F4A7C15ull >> 20 & (size - 1);
        while (table[at] != NULL && table[at] != value)
            at = (at + 1) & (size - 1);
        answer = table[at] == NULL;
        table[at] = value;
    }
    PyMem_Free(table);
    return answer;
}

/* One check; fetches and witnesses are not for here. */
int td_check_holds(TdProgram *program, const TdStep *step, const TdRun *run)
{
    PyObject *value = step->node < 0 ? NULL : run->values[step->node];
    switch (step->op) {
    case CHECK_STATE:
        return td_state_holds(step->u.state);
    case CHECK_TYPE:
        return (PyObject *)Py_TYPE(value) == step->obj;
    case CHECK_TYPE_WEAK:
        return (PyObject *)Py_TYPE(value) == td_weak_target(step->obj);
    case CHECK_IS:
        return value == step->obj;
    case CHECK_IS_WEAK:
        return value == td_weak_target(step->obj);
    case CHECK_CODE:
        return PyFunction_Check(value) && PyFunction_GET_CODE(value) == step->obj;
    case CHECK_EQUAL:
        return td_constant_equal(step->obj, value);
    case CHECK_TENSOR:
        return td_tensor_matches(step->u.tensor, value);
    case CHECK_LENGTH:
        return td_length(value) == step->number;
    case CHECK_PLAIN:
        return td_holds_plain(value);
    case CHECK_NO_FINALIZER:
        return td_drops_quietly(value, step->obj);
    case CHECK_SET:
        return td_set_is(value, step->u.items);
    case CHECK_IN_SET:
        return td_set_has(value, step->obj);
    case CHECK_UNBOUND_LOCAL:
        value = run->slots[step->number];
        return value == NULL || (PyCell_Check(value) && PyCell_GET(value) == NULL);
    case CHECK_UNBOUND_CELL:
        return PyCell_Check(value) && PyCell_GET(value) == NULL;
    case CHECK_UNBOUND_ATTR:
        return td_attr_unbound(value, step->obj);
    case CHECK_COLLECTION:
        return PyType_Check(value) && td_collection((PyTypeObject *)value) == step->number;
    case CHECK_KEYS:
        return PyODict_Check(value) || td_dict_keys_are(value, step->u.items);
    case CHECK_ORDER:
        return !PyODict_Check(value) || td_ordered_keys_are(value, step->u.items);
    case CHECK_HAS_KEY:
        return td_dict_find(value, step->u.items->items) != NULL;
    case CHECK_NO_KEY: {
        TdLookup found = td_dict_look_up(value, step->u.items->items);
        return found.told && found.value == NULL;
    }
    case CHECK_LOOKUP:
        return _PyType_Lookup((PyTypeObject *)value, step->u.items->items->obj) == step->obj;
    case CHECK_LOOKUP_WEAK:
        return _PyType_Lookup((PyTypeObject *)value, step->u.items->items->obj) == td_weak_target(step->obj);
    case CHECK_LOOKUP_ABSENT:
        return _PyType_Lookup((PyTypeObject *)value, step->u.items->items->obj) == NULL;
    case CHECK_PLAIN_MAKER:
        return td_made_plainly((PyTypeObject *)value);
    case CHECK_SAME:
        return value == run->values[step->base];
    case CHECK_KEYED:
        return td_dict_has_number(value, run->values[step->base]);
    case CHECK_NOT_KEYED:
        return td_dict_lacks_object(value, run->values[step->base]);
    case CHECK_NUMBERS:
        return td_numbers_hold(step->u.numbers, run->values);
    case CHECK_DISTINCT:
        return distinct(run->values, step);
    case CHECK_APART:
        return td_tensors_apart(run->values, step->u.nodes, step->number);
    default:
        return 0;
    }
}
