/* Arming: what a program found true, as words of memory that stay as they are while it is true.
 *
 * Most guards of a large model say that a place in memory still holds what it held: an object its class, a dict its
 * tag or its length, a function its code. After a full pass has shown that all guards hold, those places and words are
 * written down in one array, parents before children; the next pass compares them in a loop without a branch between
 * kinds. A place is read only after the words before it have shown that the object it is in is still there.
 *
 * What a node leads to is `KEPT` if the words prove that it is the very object seen when arming: it hangs by a dict or
 * class whose tag, which no other ever gets, is as it was. It is `PLACED` if only the pointer is the same, which may be
 * another object at the address of one that died: then all that is checked of it is checked by its words again.
 *
 * A word that differs decides nothing: the full pass is run, and if all holds, the program is armed anew. A step whose
 * words keep differing while its guards hold stays out: it goes on to be run as it is, and so does what hangs on it. */
#include "guards_run.h"

enum { FREE, PLACED, KEPT };

#define PATIENCE 2   /* how often a step may be the one that differs for nothing */
#define WORTH_IT 4   /* fewer words are not armed */
#define WEAK_KNOWN 8

typedef struct {
    TdProgram *program;
    TdArm *arm;
    char *state; /* by node */
    char *sure;  /* by node: the layout of the object is known from what comes before */
    char *leads; /* by node: something is fetched from it or hangs on it */
    int step;    /* the one at hand */
    int n_weak;
    PyObject *weak[WEAK_KNOWN]; /* references whose objects are known to be there, the latest */
} Arming;

static PyObject *value_of(Arming *a, int node) { return a->arm->values[node]; }

static void add_word(Arming *a, const void *place, const void *expected)
{
    TdArm *arm = a->arm;
    arm->words[arm->n_words] = (TdWord){place, (uint64_t)(uintptr_t)expected};
    arm->steps[arm->n_words++] = a->step;
}

/* Holds what it holds now. */
static void add_place(Arming *a, const void *place)
{
    uint64_t now;
    memcpy(&now, place, sizeof now);
    add_word(a, place, (const void *)(uintptr_t)now);
}

/* The object of a weak reference, which the program owns: that it is there proves that it is the same. */
static void add_weak(Arming *a, PyObject *weak, PyObject *obj)
{
    for (int i = 0; i < WEAK_KNOWN; i++)
        if (a->weak[i] == weak)
            return;
    a->weak[a->n_weak++ % WEAK_KNOWN] = weak;
    add_word(a, &((PyWeakReference *)weak)->wr_object, obj);
}

/* Is it certain that the object is laid out as it was? Only then may places in it be read. */
static int laid_out(Arming *a, int node)
{
    PyObject *obj = value_of(a, node);
    if (a->state[node] == KEPT || a->sure[node])
        return 1;
    if (a->state[node] == FREE || (Py_TYPE(obj)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return 0; /* a class may die, and another be made in its place */
    add_word(a, &obj->ob_type, Py_TYPE(obj));
    return a->sure[node] = 1;
}

static void add_root(Arming *a, const TdStep *step)
{
    TdArm *arm = a->arm;
    arm->segments[arm->n_segments++] = (TdSegment){step, arm->n_words};
}

static int arm_item(Arming *a, const TdStep *step)
{
    PyObject *obj = value_of(a, step->base);
    Py_ssize_t index = step->number;
    if (PyTuple_Check(obj) && a->state[step->base] == KEPT)
        return a->state[step->node] = KEPT;
    if (!(PyTuple_Check(obj) || PyList_Check(obj)) || !laid_out(a, step->base))
        return 0;
    if (index < 0)
        index += Py_SIZE(obj);
    add_place(a, &((PyVarObject *)obj)->ob_size);
    if (PyList_Check(obj))
        add_word(a, &((PyListObject *)obj)->ob_item, ((PyListObject *)obj)->ob_item);
    PyObject **items = PyTuple_Check(obj) ? ((PyTupleObject *)obj)->ob_item : ((PyListObject *)obj)->ob_item;
    add_word(a, &items[index], items[index]);
    return a->state[step->node] = PLACED;
}

static int arm_length(Arming *a, const TdStep *step)
{
    PyObject *obj = value_of(a, step->node);
    int immutable = PyTuple_Check(obj) || PyUnicode_Check(obj) || PyBytes_Check(obj);
    if (immutable && a->state[step->node] == KEPT)
        return 1;
    if ((immutable && !PyTuple_Check(obj)) || !laid_out(a, step->node))
        return 0;
    if (PyDict_Check(obj))
        add_place(a, &((PyDictObject *)obj)->ma_used);
    else if (PyList_Check(obj) || PyTuple_Check(obj))
        add_place(a, &((PyVarObject *)obj)->ob_size);
    else if (PyAnySet_Check(obj))
        add_place(a, &((PySetObject *)obj)->used);
    else
        return 0;
    return 1;
}

static int arm_attr(Arming *a, const TdStep *step)
{
    PyObject *obj = value_of(a, step->base), **place = td_attr_place(obj, step->obj);
    if (place == NULL || !laid_out(a, step->base))
        return 0;
    add_word(a, place, *place);
    return a->state[step->node] = PLACED;
}

static int arm_tensor(Arming *a, const TdStep *step)
{
    TdArm *arm = a->arm;
    td_tensor_row(&arm->tensors[arm->n_tensors], step->u.tensor, value_of(a, step->node));
    arm->tensor_steps[arm->n_tensors++] = a->step;
    return 1;
}

static int arm_fetch(Arming *a, const TdStep *step)
{
    PyObject *obj = step->base >= 0 ? value_of(a, step->base) : NULL;
    if (a->program->benign[a->step] >= PATIENCE)
        return 0;
    if (step->op <= STEP_CLOSURE) {
        if (!a->leads[step->node])
            return 0;
        add_root(a, step);
        return a->state[step->node] = PLACED;
    }
    if (step->op == STEP_WEAK) {
        add_weak(a, step->obj, value_of(a, step->node));
        return a->state[step->node] = KEPT;
    }
    if (a->state[step->base] == FREE)
        return 0;
    switch (step->op) {
    case STEP_DICT: {
        PyObject **place = laid_out(a, step->base) ? td_instance_dict_place(obj) : NULL;
        if (place == NULL || *place != value_of(a, step->node))
            return 0;
        add_word(a, place, *place);
        a->sure[step->node] = 1;
        return a->state[step->node] = PLACED;
    }
    case STEP_ITEM:
        return arm_item(a, step);
    case STEP_ATTR:
        return arm_attr(a, step);
    case STEP_CONTENTS:
        if (!laid_out(a, step->base))
            return 0;
        add_word(a, &((PyCellObject *)obj)->ob_ref, value_of(a, step->node));
        return a->state[step->node] = PLACED;
    case STEP_TYPE:
        add_word(a, &obj->ob_type, Py_TYPE(obj));
        a->sure[step->node] = 1;
        return a->state[step->node] = PLACED;
    default:
        return 0;
    }
}

static int arm_check(Arming *a, const TdStep *step)
{
    if (step->node < 0 || a->state[step->node] == FREE)
        return 0;
    PyObject *obj = value_of(a, step->node);
    int kept = a->state[step->node] == KEPT;
    switch (step->op) {
    case CHECK_TYPE:
        add_word(a, &obj->ob_type, step->obj);
        return a->sure[step->node] = 1;
    case CHECK_TYPE_WEAK:
        add_weak(a, step->obj, (PyObject *)Py_TYPE(obj));
        add_word(a, &obj->ob_type, Py_TYPE(obj));
        return a->sure[step->node] = 1;
    case CHECK_IS:
        return 1; /* the program has the object */
    case CHECK_IS_WEAK:
        return kept;
    case CHECK_EQUAL:
        return kept || obj == step->obj;
    case CHECK_CODE:
        if (!laid_out(a, step->node))
            return 0;
        add_word(a, &((PyFunctionObject *)obj)->func_code, step->obj);
        return 1;
    case CHECK_TENSOR:
        return arm_tensor(a, step);
    case CHECK_LENGTH:
        return arm_length(a, step);
    case CHECK_UNBOUND_CELL:
        if (!laid_out(a, step->node))
            return 0;
        add_word(a, &((PyCellObject *)obj)->ob_ref, NULL);
        return 1;
    case CHECK_ORDER:
        return !PyODict_Check(obj) && (kept || a->sure[step->node]);
    default:
        return 0;
    }
}

/* What a dict with slots for its keys has to be for one of its checks to hold. */
static int arm_slot_check(Arming *a, PyObject *dict, const TdStep *check)
{
    if (check->op != CHECK_HAS_KEY && check->op != CHECK_NO_KEY)
        return check->op != CHECK_KEYS && arm_check(a, check);
    const TdItem *key = check->u.items->items;
    if (!PyUnicode_CheckExact(key->obj))
        return 0;
    PyObject **slot = td_dict_split_slot(dict, key->obj);
    if (slot != NULL)
        add_place(a, slot);
    return slot != NULL || check->op == CHECK_NO_KEY;
}

/* Where no tag tells of writes, the slots of the keys are compared. */
static int arm_split(Arming *a, const TdStep *step)
{
    PyObject *dict = value_of(a, step->node);
    const TdBind *bind = step->u.bind;
    const void *places[TD_SPLIT_PLACES];
    int armed = 1, before = a->arm->n_words, n_places = td_dict_split(dict, places);
    for (int i = 0; i < n_places; i++)
        add_place(a, places[i]);
    for (int i = 0; armed && n_places > 0 && i < bind->keys->count; i++) {
        const TdItem *key = &bind->keys->items[i];
        PyObject **slot = PyUnicode_CheckExact(key->obj) ? td_dict_split_slot(dict, key->obj) : NULL;
        if ((armed = slot != NULL)) {
            add_place(a, slot);
            a->state[key->node] = PLACED;
        }
    }
    for (int i = 0; armed && n_places > 0 && i < bind->checks.count; i++)
        armed = arm_slot_check(a, dict, &bind->checks.steps[i]);
    if (armed && n_places > 0)
        return 1;
    a->arm->n_words = before;
    for (int i = 0; i < bind->keys->count; i++)
        a->state[bind->keys->items[i].node] = a->sure[bind->keys->items[i].node] = FREE;
    return 0;
}

static int arm_bind(Arming *a, const TdStep *step)
{
    PyObject *box = value_of(a, step->node);
    int found, of_class = step->op == STEP_BIND_CLASS, benign = a->program->benign[a->step];
    int looked_up = benign >= PATIENCE || !step->u.bind->lasts; /* at each pass */
    if (a->state[step->node] == FREE || !laid_out(a, step->node) || benign >= (of_class ? PATIENCE : 2 * PATIENCE))
        return 0;
    if (of_class && td_type_tag((PyTypeObject *)box) == 0)
        return 0;
    if (!of_class && !looked_up && arm_split(a, step))
        return 1;
    if (of_class) {
        add_place(a, &((PyTypeObject *)box)->tp_flags);
        add_place(a, &((PyTypeObject *)box)->tp_version_tag);
        found = KEPT;
    }
    else if (looked_up || td_dict_tag(box) == 0) {
        add_root(a, step); /* its keys are looked up again */
        found = PLACED;
    }
    else {
        const void *places[TD_TAG_PLACES];
        for (int i = 0, n = td_dict_tag_places(box, places); i < n; i++)
            add_place(a, places[i]);
        found = KEPT;
    }
    for (int i = 0; i < step->u.bind->keys->count; i++)
        a->state[step->u.bind->keys->items[i].node] = (char)found;
    return 1;
}

/* Pointers that are what they were are as different, or as much the same, as they were. */
static int arm_late(Arming *a, const TdStep *step)
{
    if (step->op == CHECK_SAME)
        return a->state[step->node] != FREE && a->state[step->base] != FREE;
    if (step->op != CHECK_DISTINCT)
        return 0;
    for (Py_ssize_t i = 0; i < step->number; i++)
        if (a->state[step->u.nodes[i]] == FREE)
            return 0;
    return 1;
}

/* Tensors lead nowhere: where one is an argument, it is seldom the same twice. */
static void find_leads(Arming *a)
{
    const TdSteps *steps = &a->program->steps;
    for (int i = 0; i < steps->count; i++) {
        const TdStep *step = &steps->steps[i];
        if (step->op == STEP_BIND_DICT || step->op == STEP_BIND_CLASS)
            a->leads[step->node] = 1;
        else if (step->op < STEP_BIND_DICT && step->base >= 0)
            a->leads[step->base] = 1;
    }
    for (int i = 0; i < steps->count; i++)
        if (steps->steps[i].op == CHECK_TENSOR)
            a->leads[steps->steps[i].node] = 0;
}

static void arm_all(Arming *a)
{
    TdProgram *program = a->program;
    TdArm *arm = a->arm;
    for (int node = 0; node < program->n_nodes; node++) /* constants are the program's own */
        a->state[node] = program->is_constant[node] ? KEPT : FREE;
    find_leads(a);
    add_root(a, NULL);
    for (int i = 0; i < program->steps.count; i++) {
        TdStep *step = &program->steps.steps[a->step = i];
        if (program->outside != NULL && td_is_outside(program->outside, step->node))
            continue;
        int armed = step->op >= CHECK_STATE                                        ? arm_check(a, step)
                    : step->op == STEP_BIND_DICT || step->op == STEP_BIND_CLASS ? arm_bind(a, step)
                                                                                   : arm_fetch(a, step);
        if (!armed)
            arm->rest[arm->n_rest++] = step;
    }
    for (int i = 0; i < program->late.count; i++)
        if (!arm_late(a, &program->late.steps[i]))
            arm->late[arm->n_late++] = &program->late.steps[i];
}

void td_arm(TdProgram *program)
{
    td_disarm(program);
    if (program->benign == NULL && (program->benign = PyMem_Calloc(program->steps.count + 1, 1)) == NULL)
        return;
    TdArm *arm = program->arm = PyMem_Calloc(1, sizeof(TdArm));
    char *marks = PyMem_Calloc(3 * (program->n_nodes + 1), 1);
    if (arm != NULL && marks != NULL && td_arm_room(program, arm)) {
        size_t n = program->n_nodes + 1;
        Arming a = {program, arm, marks, marks + n, marks + 2 * n};
        memcpy(arm->values, program->values, n * sizeof(PyObject *));
        arm_all(&a);
        for (int i = 0; i < arm->n_rest; i++)
            if (arm->rest[i]->op == STEP_BIND_DICT || arm->rest[i]->op == STEP_BIND_CLASS)
                arm->rest[i]->u.bind->seen[1] = arm->rest[i]->u.bind->seen[0];
        td_arm_fit(arm);
        if (arm->n_words < WORTH_IT) {
            td_disarm(program);
            program->patience = -1;
        }
    }
    else
        td_disarm(program);
    PyMem_Free(marks);
}
