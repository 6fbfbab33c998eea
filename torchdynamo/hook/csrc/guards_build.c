/* From lists of nodes and checks to steps: names become slots, dicts and classes become witnesses. */
#include "guards_build.h"

static const char *const FETCHES[] = {"local", "globals", "builtins", "closure", "dict", "item", "attr", "contents", "type", "call",
                                      "method", "keyed", "size", "stride", "field", "weak",
                                      "key_at", "value_at", "asked"};

/* ---- Nodes ------------------------------------------------------------------------------------------------------- */

static int add_fetch(TdBuilder *b, int node, const char *how, PyObject *arg)
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
    if (op == STEP_WEAK) {
        step->obj = Py_NewRef(arg);
        return PyWeakref_CheckRefExact(arg) ? 0 : td_fault("not a weak reference", arg);
    }
    if (op >= STEP_DICT && step->base < 0)
        return td_fault("a step without a base", arg);
    if (op == STEP_LOCAL)
        return (step->number = td_find_slot(b->program, arg)) < 0 ? -1 : 0;
    if (op == STEP_CLOSURE)
        return (step->number = td_find_cell(b->program, arg)) < 0 ? -1 : 0;
    if (op == STEP_ITEM || op == STEP_KEY_AT || op == STEP_VALUE_AT) {
        step->number = PyLong_AsSsize_t(arg);
        return step->number == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (op == STEP_SIZE || op == STEP_STRIDE) {
        b->program->n_temps++;
        step->number = PyLong_AsSsize_t(arg);
        return step->number == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (op == STEP_KEYED || op == STEP_FIELD) {
        step->number = PyLong_AsSsize_t(arg);
        if (step->number < 0 || step->number >= node)
            return PyErr_Occurred() ? -1 : td_fault("a step before its key", arg);
        b->program->n_temps += op == STEP_FIELD;
    }
    if (op == STEP_ATTR || op == STEP_METHOD) {
        if (!PyUnicode_CheckExact(arg))
            return td_fault("not a name", arg);
        Py_INCREF(arg);
        PyUnicode_InternInPlace(&arg);
        step->obj = arg;
        b->program->n_temps++;
    }
    if (op == STEP_ASKED) {
        if (!PyFunction_Check(arg))
            return td_fault("not a function", arg);
        step->obj = Py_NewRef(arg);
        b->program->n_temps++;
    }
    if (op == STEP_CALL) {
        if (!PyTuple_CheckExact(arg))
            return td_fault("not a tuple of arguments", arg);
        step->obj = Py_NewRef(arg);
        b->program->n_temps++;
    }
    return 0;
}

static int node_parts(TdBuilder *b, int node, const char **how, PyObject **arg)
{
    int parent;
    return TD_PARSE(PyTuple_GET_ITEM(b->nodes, node), "siO", how, &parent, arg) ? 0 : -1;
}

/* ---- Witnesses --------------------------------------------------------------------------------------------------- */

/* What hangs on the node: keys of a dict, attributes of a class, or neither. Both cannot be. */
static int witness_of(TdBuilder *b, int node, int *n_keys, int *of_dict, int *of_class)
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
        if (td_check_parse(b, i, &of, &op, &payload) < 0)
            return -1;
        *of_class |= td_of_class(op);
        *of_dict |= td_of_container(op) && !td_of_class(op);
    }
    return *of_dict && *of_class ? td_fault("both a dict and a class", PyTuple_GET_ITEM(b->nodes, node)) : 0;
}

static int add_bind(TdBuilder *b, int node)
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
            return td_fault("not a name", key);
        if (td_item_set(&bind->keys->items[next++], key, kid) < 0)
            return -1;
    }
    return 0;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static int add_node(TdBuilder *b, int node)
{
    const char *how;
    PyObject *arg;
    if (node_parts(b, node, &how, &arg) < 0)
        return -1;
    if (strcmp(how, "constant") == 0) {
        b->program->values[node] = arg; /* lives in the program's spec */
        b->program->is_constant[node] = 1;
    }
    else if (!b->is_bound[node] && add_fetch(b, node, how, arg) < 0)
        return -1;
    /* Its own checks come before what hangs below, those of the witness with the witness. */
    return add_bind(b, node) < 0 ? -1 : td_checks_add(b, node);
}

/* Fill the linked lists, keeping the order in which things were given. */
static int link_up(TdBuilder *b)
{
    int n_nodes = b->program->n_nodes, node;
    TdOp op;
    PyObject *arg, *payload;
    const char *how;
    for (int i = n_nodes - 1; i >= 0; i--) {
        if (!TD_PARSE(PyTuple_GET_ITEM(b->nodes, i), "siO", &how, &b->parents[i], &arg))
            return -1;
        if (b->parents[i] >= i || b->parents[i] < -1)
            return td_fault("a node before its parent", PyTuple_GET_ITEM(b->nodes, i));
        if (b->parents[i] >= 0) {
            b->next[i] = b->first[b->parents[i]];
            b->first[b->parents[i]] = i;
        }
    }
    for (Py_ssize_t i = PyTuple_GET_SIZE(b->checks) - 1; i >= 0; i--) {
        if (td_check_parse(b, (int)i, &node, &op, &payload) < 0)
            return -1;
        b->another[i] = b->asked[node + 1];
        b->asked[node + 1] = (int)i;
    }
    return 0;
}

static int build(TdBuilder *b)
{
    if (link_up(b) < 0 || td_checks_add(b, -1) < 0)
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
            return PyErr_Occurred() ? -1 : td_fault("no such node", bound);
        program->bound[i] = (int)node;
    }
    return 0;
}

int td_program_build(TdProgram *program, PyObject *nodes, PyObject *checks, PyObject *bound)
{
    int n_nodes = program->n_nodes = (int)PyTuple_GET_SIZE(nodes), n_checks = (int)PyTuple_GET_SIZE(checks);
    int room = 5 * n_nodes + n_checks + 2;
    int *numbers = PyMem_Malloc(room * sizeof(int));
    TdBuilder b = {.program = program, .nodes = nodes, .checks = checks};
    b.binds = PyMem_Calloc(n_nodes + 1, sizeof(TdBind *));
    b.is_bound = PyMem_Calloc(n_nodes + 1, 1);
    b.metas = PyDict_New();
    program->values = PyMem_Calloc(n_nodes + 1, sizeof(PyObject *));
    program->is_constant = PyMem_Calloc(n_nodes + 1, 1);
    int done = -1;
    if (numbers == NULL || b.metas == NULL || b.binds == NULL || b.is_bound == NULL || program->values == NULL || program->is_constant == NULL)
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
    Py_XDECREF(b.metas);
    return done;
}
