/* From a list of checks to steps: each goes where what it rests on is sure to have been seen. */
#include "guards_build.h"

static const struct {
    const char *name;
    TdOp op;
} CHECKS[] = {
    {"state", CHECK_STATE},
    {"type", CHECK_TYPE},
    {"type_weak", CHECK_TYPE_WEAK},
    {"is", CHECK_IS},
    {"is_weak", CHECK_IS_WEAK},
    {"code", CHECK_CODE},
    {"equal", CHECK_EQUAL},
    {"tensor", CHECK_TENSOR},
    {"length", CHECK_LENGTH},
    {"plain", CHECK_PLAIN},
    {"no_finalizer", CHECK_NO_FINALIZER},
    {"set", CHECK_SET},
    {"in_set", CHECK_IN_SET},
    {"unbound_local", CHECK_UNBOUND_LOCAL},
    {"unbound_cell", CHECK_UNBOUND_CELL},
    {"unbound_attr", CHECK_UNBOUND_ATTR},
    {"collection", CHECK_COLLECTION},
    {"keys", CHECK_KEYS},
    {"has_key", CHECK_HAS_KEY},
    {"no_key", CHECK_NO_KEY},
    {"lookup", CHECK_LOOKUP},
    {"lookup_weak", CHECK_LOOKUP_WEAK},
    {"lookup_absent", CHECK_LOOKUP_ABSENT},
    {"plain_maker", CHECK_PLAIN_MAKER},
    {"same", CHECK_SAME},
    {"keyed", CHECK_KEYED},
    {"not_keyed", CHECK_NOT_KEYED},
    {"distinct", CHECK_DISTINCT},
    {"numbers", CHECK_NUMBERS},
    {"apart", CHECK_APART},
};

int td_fault(const char *what, PyObject *detail)
{
    PyErr_Format(PyExc_ValueError, "%s: %R", what, detail);
    return -1;
}

static int find_name(PyObject *names, Py_ssize_t count, PyObject *name)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name) == 0)
            return (int)i;
    return -1;
}

int td_find_slot(TdProgram *program, PyObject *name)
{
    int slot = PyUnicode_Check(name) ? find_name(program->varnames, program->n_slots, name) : -1;
    return slot < 0 ? td_fault("not an argument of the code", name) : slot;
}

int td_find_cell(TdProgram *program, PyObject *name)
{
    PyObject *names = program->freevars;
    int index = PyUnicode_Check(name) ? find_name(names, PyTuple_GET_SIZE(names), name) : -1;
    return index < 0 ? td_fault("not a free variable of the code", name) : index;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* True as long as the same object is bound: objects of other classes may be given another one. */
static int type_is_fixed(PyObject *cls)
{
    return !(((PyTypeObject *)cls)->tp_flags & Py_TPFLAGS_HEAPTYPE) && cls != (PyObject *)&PyModule_Type;
}

static int is_late(TdOp op) { return op >= CHECK_SAME; }

static int is_pure(TdOp op, PyObject *payload)
{
    return op == CHECK_IS || op == CHECK_IS_WEAK || op == CHECK_EQUAL || (op == CHECK_TYPE && type_is_fixed(payload));
}

static int fill_nodes(TdBuilder *b, TdStep *step, PyObject *payload)
{
    if (!PyTuple_Check(payload))
        return td_fault("not a tuple of nodes", payload);
    step->number = PyTuple_GET_SIZE(payload);
    step->u.nodes = PyMem_Calloc(step->number + 1, sizeof(int));
    if (step->u.nodes == NULL)
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < step->number; i++) {
        long node = PyLong_AsLong(PyTuple_GET_ITEM(payload, i));
        if (node < 0 || node >= b->program->n_nodes)
            return PyErr_Occurred() ? -1 : td_fault("no such node", payload);
        step->u.nodes[i] = (int)node;
    }
    return 0;
}

/* (nodes of tensors that are written to, nodes of others) */
static int fill_marks(TdBuilder *b, TdStep *step, PyObject *payload)
{
    PyObject *written, *read, *all = NULL;
    if (!TD_PARSE(payload, "O!O!", &PyTuple_Type, &written, &PyTuple_Type, &read)
        || (all = PySequence_Concat(written, read)) == NULL)
        return -1;
    int filled = fill_nodes(b, step, all);
    Py_DECREF(all);
    for (Py_ssize_t i = 0; filled == 0 && i < step->number; i++)
        step->u.nodes[i] = 2 * step->u.nodes[i] + (i < PyTuple_GET_SIZE(written));
    return filled;
}

static int fill_lookup(TdStep *step, PyObject *payload)
{
    PyObject *name, *expected = NULL;
    if (!TD_PARSE(payload, "U|O", &name, &expected) || (step->u.items = td_items_new(1)) == NULL)
        return -1;
    Py_XINCREF(expected);
    step->obj = expected;
    return td_item_set(&step->u.items->items[0], name, -1);
}

/* Many parameters are alike: one piece of memory for all that are is at hand when they are compared. */
static TdTensorMeta *meta_of(TdBuilder *b, PyObject *payload)
{
    PyObject *known = PyDict_GetItemWithError(b->metas, payload);
    if (known != NULL)
        return td_tensor_meta_share(PyLong_AsVoidPtr(known));
    TdTensorMeta *meta = PyErr_Occurred() ? NULL : td_tensor_meta_new(payload);
    PyObject *address = meta == NULL ? NULL : PyLong_FromVoidPtr(meta);
    if (address == NULL || PyDict_SetItem(b->metas, payload, address) < 0) {
        td_tensor_meta_free(meta);
        meta = NULL;
    }
    Py_XDECREF(address);
    return meta;
}

static int fill_check(TdBuilder *b, TdStep *step, PyObject *payload)
{
    switch (step->op) {
    case CHECK_STATE:
        return (step->u.state = td_state_new(payload)) == NULL ? -1 : 0;
    case CHECK_TENSOR:
        return (step->u.tensor = meta_of(b, payload)) == NULL ? -1 : 0;
    case CHECK_TYPE:
        if (!PyType_Check(payload))
            return td_fault("not a class", payload);
        break;
    case CHECK_CODE:
        if (!PyCode_Check(payload))
            return td_fault("not a code object", payload);
        break;
    case CHECK_IS_WEAK:
    case CHECK_TYPE_WEAK:
        if (!PyWeakref_CheckRefExact(payload))
            return td_fault("not a weak reference", payload);
        break;
    case CHECK_LENGTH:
    case CHECK_COLLECTION:
        step->number = PyLong_AsSsize_t(payload);
        return step->number == -1 && PyErr_Occurred() ? -1 : 0;
    case CHECK_SET:
    case CHECK_KEYS:
    case CHECK_ORDER:
        return (step->u.items = td_items_from(payload)) == NULL ? -1 : 0;
    case CHECK_HAS_KEY:
    case CHECK_NO_KEY:
        return (step->u.items = td_items_key(payload)) == NULL ? -1 : 0;
    case CHECK_LOOKUP:
    case CHECK_LOOKUP_WEAK:
    case CHECK_LOOKUP_ABSENT:
        return fill_lookup(step, payload);
    case CHECK_UNBOUND_LOCAL:
        return (step->number = td_find_slot(b->program, payload)) < 0 ? -1 : 0;
    case CHECK_SAME:
    case CHECK_KEYED:
    case CHECK_NOT_KEYED: {
        long other = PyLong_AsLong(payload);
        if (other < 0 || other >= b->program->n_nodes)
            return PyErr_Occurred() ? -1 : td_fault("no such node", payload);
        step->base = (int)other;
        return 0;
    }
    case CHECK_NUMBERS:
        return (step->u.numbers = td_numbers_new(payload, b->program->n_nodes)) == NULL ? -1 : 0;
    case CHECK_DISTINCT:
        return fill_nodes(b, step, payload);
    case CHECK_APART:
        return fill_marks(b, step, payload);
    default:
        break;
    }
    step->obj = Py_NewRef(payload);
    return 0;
}

static int add_check(TdBuilder *b, TdSteps *steps, TdOp op, int node, int check, PyObject *payload)
{
    TdStep *step = td_step_add(steps, op, node);
    if (step == NULL)
        return -1;
    step->check = check;
    if (op == CHECK_UNBOUND_ATTR || (op == CHECK_NO_FINALIZER && PyUnicode_CheckExact(payload))) {
        Py_INCREF(payload);
        PyUnicode_InternInPlace(&payload);
        step->obj = payload;
        return 0;
    }
    return fill_check(b, step, payload);
}

int td_check_parse(TdBuilder *b, int index, int *node, TdOp *op, PyObject **payload)
{
    const char *name;
    PyObject *check = PyTuple_GET_ITEM(b->checks, index);
    if (!TD_PARSE(check, "isO", node, &name, payload))
        return -1;
    if (*node < -1 || *node >= b->program->n_nodes)
        return td_fault("no such node", check);
    for (size_t i = 0; i < sizeof(CHECKS) / sizeof(*CHECKS); i++)
        if (strcmp(CHECKS[i].name, name) == 0) {
            *op = CHECKS[i].op;
            if (*node == -1 && *op != CHECK_STATE && *op != CHECK_UNBOUND_LOCAL && *op != CHECK_NUMBERS)
                return td_fault("a check without a node", check);
            return 0;
        }
    return td_fault("no such check", check);
}

/* The list a check belongs to: what a witness vouches for goes with the witness. */
static TdSteps *place_of(TdBuilder *b, int node, TdOp op, PyObject *payload)
{
    if (is_late(op))
        return &b->program->late;
    if (td_of_container(op))
        return &b->binds[node]->checks;
    if (node >= 0 && b->is_bound[node] && is_pure(op, payload))
        return &b->binds[b->parents[node]]->checks;
    return &b->program->steps;
}

int td_checks_add(TdBuilder *b, int node)
{
    for (int i = b->asked[node + 1]; i >= 0; i = b->another[i]) {
        int of;
        TdOp op;
        PyObject *payload;
        if (td_check_parse(b, i, &of, &op, &payload) < 0)
            return -1;
        if (td_of_container(op) && b->binds[node] == NULL)
            return td_fault("not a check of a dict or class that has one", PyTuple_GET_ITEM(b->checks, i));
        if (add_check(b, place_of(b, node, op, payload), op, node, i, payload) < 0)
            return -1;
        if (op == CHECK_KEYS && add_check(b, &b->program->steps, CHECK_ORDER, node, i, payload) < 0)
            return -1;
    }
    return 0;
}
