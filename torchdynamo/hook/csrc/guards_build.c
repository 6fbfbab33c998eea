/* From lists of nodes and checks to steps: names become slots, dicts and classes become witnesses. */
#include "guards.h"

static const char *const FETCHES[] = {"local", "globals", "builtins", "closure", "dict", "item", "attr", "contents", "type", "call"};

static const struct {
    const char *name;
    TdOp op;
} CHECKS[] = {
    {"state", CHECK_STATE},
    {"type", CHECK_TYPE},
    {"is", CHECK_IS},
    {"is_weak", CHECK_IS_WEAK},
    {"code", CHECK_CODE},
    {"equal", CHECK_EQUAL},
    {"tensor", CHECK_TENSOR},
    {"length", CHECK_LENGTH},
    {"set", CHECK_SET},
    {"unbound_local", CHECK_UNBOUND_LOCAL},
    {"unbound_cell", CHECK_UNBOUND_CELL},
    {"unbound_attr", CHECK_UNBOUND_ATTR},
    {"keys", CHECK_KEYS},
    {"has_key", CHECK_HAS_KEY},
    {"no_key", CHECK_NO_KEY},
    {"lookup", CHECK_LOOKUP},
    {"lookup_weak", CHECK_LOOKUP_WEAK},
    {"lookup_absent", CHECK_LOOKUP_ABSENT},
    {"same", CHECK_SAME},
    {"distinct", CHECK_DISTINCT},
    {"apart", CHECK_APART},
};

typedef struct {
    TdProgram *program;
    PyObject *nodes;      /* ((how, parent, arg), ...), depth first */
    PyObject *checks;     /* ((node, op, payload), ...) */
    int *parents;         /* by node; -1: a root */
    int *first, *next;    /* children: by node; by sibling */
    int *asked, *another; /* checks: by node (0: of the frame itself), by check */
    TdBind **binds;       /* by node; owned by the step that has them */
    char *is_bound;       /* by node: its value comes from its parent's witness */
} Builder;

/* ---- Nodes ------------------------------------------------------------------------------------------------------- */

static int fault(const char *what, PyObject *detail)
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

static int find_slot(TdProgram *program, PyObject *name)
{
    int slot = PyUnicode_Check(name) ? find_name(program->varnames, program->n_slots, name) : -1;
    return slot < 0 ? fault("not an argument of the code", name) : slot;
}

static int find_cell(TdProgram *program, PyObject *name)
{
    PyObject *names = program->freevars;
    int index = PyUnicode_Check(name) ? find_name(names, PyTuple_GET_SIZE(names), name) : -1;
    return index < 0 ? fault("not a free variable of the code", name) : index;
}

static int add_fetch(Builder *b, int node, const char *how, PyObject *arg)
{
    int op = 0;
    while (op < (int)(sizeof(FETCHES) / sizeof(*FETCHES)) && strcmp(FETCHES[op], how) != 0)
        op++;
    if (op == sizeof(FETCHES) / sizeof(*FETCHES)) {
        PyErr_Format(PyExc_ValueError, "no such step: %s", how);
        return -1;
    }
    TdStep *step = td_step_add(&b->program->steps, (TdOp)op, node);
    if (step == NULL)
        return -1;
    step->base = b->parents[node];
    if (op >= STEP_DICT && step->base < 0)
        return fault("a step without a base", arg);
    if (op == STEP_LOCAL)
        return (step->number = find_slot(b->program, arg)) < 0 ? -1 : 0;
    if (op == STEP_CLOSURE)
        return (step->number = find_cell(b->program, arg)) < 0 ? -1 : 0;
    if (op == STEP_ITEM) {
        step->number = PyLong_AsSsize_t(arg);
        return step->number == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (op == STEP_ATTR) {
        if (!PyUnicode_CheckExact(arg))
            return fault("not a name", arg);
        Py_INCREF(arg);
        PyUnicode_InternInPlace(&arg);
        step->obj = arg;
        b->program->n_temps++;
    }
    if (op == STEP_CALL) {
        if (!PyTuple_CheckExact(arg))
            return fault("not a tuple of arguments", arg);
        step->obj = Py_NewRef(arg);
        b->program->n_temps++;
    }
    return 0;
}

static int node_parts(Builder *b, int node, const char **how, PyObject **arg)
{
    int parent;
    return TD_PARSE(PyTuple_GET_ITEM(b->nodes, node), "siO", how, &parent, arg) ? 0 : -1;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* True as long as the same object is bound: objects of other classes may be given another one. */
static int type_is_fixed(PyObject *cls)
{
    return !(((PyTypeObject *)cls)->tp_flags & Py_TPFLAGS_HEAPTYPE) && cls != (PyObject *)&PyModule_Type;
}

static int on_container(TdOp op) { return op >= CHECK_KEYS && op <= CHECK_LOOKUP_ABSENT; }
static int on_class(TdOp op) { return op >= CHECK_LOOKUP && op <= CHECK_LOOKUP_ABSENT; }
static int is_late(TdOp op) { return op >= CHECK_SAME; }

static int is_pure(TdOp op, PyObject *payload)
{
    return op == CHECK_IS || op == CHECK_IS_WEAK || op == CHECK_EQUAL || (op == CHECK_TYPE && type_is_fixed(payload));
}

static int fill_nodes(Builder *b, TdStep *step, PyObject *payload)
{
    if (!PyTuple_Check(payload))
        return fault("not a tuple of nodes", payload);
    step->number = PyTuple_GET_SIZE(payload);
    step->u.nodes = PyMem_Calloc(step->number + 1, sizeof(int));
    if (step->u.nodes == NULL)
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < step->number; i++) {
        long node = PyLong_AsLong(PyTuple_GET_ITEM(payload, i));
        if (node < 0 || node >= b->program->n_nodes)
            return PyErr_Occurred() ? -1 : fault("no such node", payload);
        step->u.nodes[i] = (int)node;
    }
    return 0;
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

static int fill_check(Builder *b, TdStep *step, PyObject *payload)
{
    switch (step->op) {
    case CHECK_STATE:
        return (step->u.state = td_state_new(payload)) == NULL ? -1 : 0;
    case CHECK_TENSOR:
        return (step->u.tensor = td_tensor_meta_new(payload)) == NULL ? -1 : 0;
    case CHECK_TYPE:
        if (!PyType_Check(payload))
            return fault("not a class", payload);
        break;
    case CHECK_CODE:
        if (!PyCode_Check(payload))
            return fault("not a code object", payload);
        break;
    case CHECK_IS_WEAK:
        if (!PyWeakref_CheckRefExact(payload))
            return fault("not a weak reference", payload);
        break;
    case CHECK_LENGTH:
        step->number = PyLong_AsSsize_t(payload);
        return step->number == -1 && PyErr_Occurred() ? -1 : 0;
    case CHECK_SET:
    case CHECK_KEYS:
    case CHECK_ORDER:
        return (step->u.items = td_items_from(payload)) == NULL ? -1 : 0;
    case CHECK_HAS_KEY:
    case CHECK_NO_KEY:
        return (step->u.items = td_items_one(payload)) == NULL ? -1 : 0;
    case CHECK_LOOKUP:
    case CHECK_LOOKUP_WEAK:
    case CHECK_LOOKUP_ABSENT:
        return fill_lookup(step, payload);
    case CHECK_UNBOUND_LOCAL:
        return (step->number = find_slot(b->program, payload)) < 0 ? -1 : 0;
    case CHECK_SAME: {
        long other = PyLong_AsLong(payload);
        if (other < 0 || other >= b->program->n_nodes)
            return PyErr_Occurred() ? -1 : fault("no such node", payload);
        step->base = (int)other;
        return 0;
    }
    case CHECK_DISTINCT:
    case CHECK_APART:
        return fill_nodes(b, step, payload);
    default:
        break;
    }
    step->obj = Py_NewRef(payload);
    return 0;
}

static int add_check(Builder *b, TdSteps *steps, TdOp op, int node, int check, PyObject *payload)
{
    TdStep *step = td_step_add(steps, op, node);
    if (step == NULL)
        return -1;
    step->check = check;
    if (op == CHECK_UNBOUND_ATTR) {
        Py_INCREF(payload);
        PyUnicode_InternInPlace(&payload);
        step->obj = payload;
        return 0;
    }
    return fill_check(b, step, payload);
}

static int parse_check(Builder *b, int index, int *node, TdOp *op, PyObject **payload)
{
    const char *name;
    PyObject *check = PyTuple_GET_ITEM(b->checks, index);
    if (!TD_PARSE(check, "isO", node, &name, payload))
        return -1;
    if (*node < -1 || *node >= b->program->n_nodes)
        return fault("no such node", check);
    for (size_t i = 0; i < sizeof(CHECKS) / sizeof(*CHECKS); i++)
        if (strcmp(CHECKS[i].name, name) == 0) {
            *op = CHECKS[i].op;
            if (*node == -1 && *op != CHECK_STATE && *op != CHECK_UNBOUND_LOCAL)
                return fault("a check without a node", check);
            return 0;
        }
    return fault("no such check", check);
}

/* The list a check belongs to: what a witness vouches for goes with the witness. */
static TdSteps *place_of(Builder *b, int node, TdOp op, PyObject *payload)
{
    if (is_late(op))
        return &b->program->late;
    if (on_container(op))
        return &b->binds[node]->checks;
    if (node >= 0 && b->is_bound[node] && is_pure(op, payload))
        return &b->binds[b->parents[node]]->checks;
    return &b->program->steps;
}

static int add_checks_of(Builder *b, int node)
{
    for (int i = b->asked[node + 1]; i >= 0; i = b->another[i]) {
        int of;
        TdOp op;
        PyObject *payload;
        if (parse_check(b, i, &of, &op, &payload) < 0)
            return -1;
        if (on_container(op) && b->binds[node] == NULL)
            return fault("not a check of a dict or class that has one", PyTuple_GET_ITEM(b->checks, i));
        if (add_check(b, place_of(b, node, op, payload), op, node, i, payload) < 0)
            return -1;
        if (op == CHECK_KEYS && add_check(b, &b->program->steps, CHECK_ORDER, node, i, payload) < 0)
            return -1;
    }
    return 0;
}

/* ---- Witnesses --------------------------------------------------------------------------------------------------- */

/* What hangs on the node: keys of a dict, attributes of a class, or neither. Both cannot be. */
static int witness_of(Builder *b, int node, int *n_keys, int *of_dict, int *of_class)
{
    const char *how;
    PyObject *arg, *payload;
    *n_keys = *of_dict = *of_class = 0;
    for (int kid = b->first[node]; kid >= 0; kid = b->next[kid]) {
        if (node_parts(b, kid, &how, &arg) < 0)
            return -1;
        int key = strcmp(how, "key") == 0, attribute = strcmp(how, "class_attr") == 0;
        *of_dict |= key;
        *of_class |= attribute;
        *n_keys += b->is_bound[kid] = (char)(key || attribute);
    }
    for (int i = b->asked[node + 1]; i >= 0; i = b->another[i]) {
        int of;
        TdOp op;
        if (parse_check(b, i, &of, &op, &payload) < 0)
            return -1;
        *of_class |= on_class(op);
        *of_dict |= on_container(op) && !on_class(op);
    }
    return *of_dict && *of_class ? fault("both a dict and a class", PyTuple_GET_ITEM(b->nodes, node)) : 0;
}

static int add_bind(Builder *b, int node)
{
    int n_keys, of_dict, of_class, next = 0;
    if (witness_of(b, node, &n_keys, &of_dict, &of_class) < 0)
        return -1;
    if (!of_dict && !of_class)
        return 0;
    TdStep *step = td_step_add(&b->program->steps, of_class ? STEP_BIND_CLASS : STEP_BIND_DICT, node);
    if (step == NULL)
        return -1;
    TdBind *bind = b->binds[node] = step->u.bind = PyMem_Calloc(1, sizeof(TdBind));
    if (bind == NULL)
        return PyErr_NoMemory(), -1;
    if ((bind->keys = td_items_new(n_keys)) == NULL)
        return -1;
    for (int kid = b->first[node]; kid >= 0; kid = b->next[kid]) {
        const char *how;
        PyObject *key;
        if (!b->is_bound[kid])
            continue;
        if (node_parts(b, kid, &how, &key) < 0)
            return -1;
        if (of_class && !PyUnicode_CheckExact(key))
            return fault("not a name", key);
        if (td_item_set(&bind->keys->items[next++], key, kid) < 0)
            return -1;
    }
    return 0;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static int add_node(Builder *b, int node)
{
    const char *how;
    PyObject *arg;
    if (node_parts(b, node, &how, &arg) < 0)
        return -1;
    if (strcmp(how, "constant") == 0)
        b->program->values[node] = arg; /* lives in the program's spec */
    else if (!b->is_bound[node] && add_fetch(b, node, how, arg) < 0)
        return -1;
    /* Its own checks come before what hangs below, those of the witness with the witness. */
    return add_bind(b, node) < 0 ? -1 : add_checks_of(b, node);
}

/* Fill the linked lists, keeping the order in which things were given. */
static int link_up(Builder *b)
{
    int n_nodes = b->program->n_nodes, node;
    TdOp op;
    PyObject *arg, *payload;
    const char *how;
    for (int i = n_nodes - 1; i >= 0; i--) {
        if (!TD_PARSE(PyTuple_GET_ITEM(b->nodes, i), "siO", &how, &b->parents[i], &arg))
            return -1;
        if (b->parents[i] >= i || b->parents[i] < -1)
            return fault("a node before its parent", PyTuple_GET_ITEM(b->nodes, i));
        if (b->parents[i] >= 0) {
            b->next[i] = b->first[b->parents[i]];
            b->first[b->parents[i]] = i;
        }
    }
    for (Py_ssize_t i = PyTuple_GET_SIZE(b->checks) - 1; i >= 0; i--) {
        if (parse_check(b, (int)i, &node, &op, &payload) < 0)
            return -1;
        b->another[i] = b->asked[node + 1];
        b->asked[node + 1] = (int)i;
    }
    return 0;
}

static int build(Builder *b)
{
    if (link_up(b) < 0 || add_checks_of(b, -1) < 0)
        return -1;
    for (int node = 0; node < b->program->n_nodes; node++)
        if (add_node(b, node) < 0)
            return -1;
    return 0;
}

static int set_bound(TdProgram *program, PyObject *bound)
{
    program->n_bound = (int)PyTuple_GET_SIZE(bound);
    program->bound = PyMem_Calloc(program->n_bound + 1, sizeof(int));
    if (program->bound == NULL)
        return PyErr_NoMemory(), -1;
    for (int i = 0; i < program->n_bound; i++) {
        long node = PyLong_AsLong(PyTuple_GET_ITEM(bound, i));
        if (node < 0 || node >= program->n_nodes)
            return PyErr_Occurred() ? -1 : fault("no such node", bound);
        program->bound[i] = (int)node;
    }
    return 0;
}

int td_program_build(TdProgram *program, PyObject *nodes, PyObject *checks, PyObject *bound)
{
    int n_nodes = program->n_nodes = (int)PyTuple_GET_SIZE(nodes), n_checks = (int)PyTuple_GET_SIZE(checks);
    int room = 5 * n_nodes + n_checks + 2;
    int *numbers = PyMem_Malloc(room * sizeof(int));
    Builder b = {.program = program, .nodes = nodes, .checks = checks};
    b.binds = PyMem_Calloc(n_nodes + 1, sizeof(TdBind *));
    b.is_bound = PyMem_Calloc(n_nodes + 1, 1);
    program->values = PyMem_Calloc(n_nodes + 1, sizeof(PyObject *));
    int done = -1;
    if (numbers == NULL || b.binds == NULL || b.is_bound == NULL || program->values == NULL)
        PyErr_NoMemory();
    else {
        memset(numbers, -1, room * sizeof(int));
        b.parents = numbers;
        b.first = b.parents + n_nodes;
        b.next = b.first + n_nodes;
        b.asked = b.next + n_nodes;
        b.another = b.asked + n_nodes + 1;
        done = build(&b) < 0 || set_bound(program, bound) < 0 ? -1 : 0;
    }
    PyMem_Free(numbers);
    PyMem_Free(b.binds);
    PyMem_Free(b.is_bound);
    return done;
}
