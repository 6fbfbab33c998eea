/* Lists of steps and of items: making, freeing and visiting what they own. */
#include "guards.h"

/* ---- Lists of steps ---------------------------------------------------------------------------------------------- */

TdStep *td_step_add(TdSteps *steps, TdOp op, int node)
{
    if (steps->count == steps->room) {
        int room = steps->room ? 2 * steps->room : 4;
        TdStep *grown = PyMem_Realloc(steps->steps, room * sizeof(TdStep));
        if (grown == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        steps->steps = grown;
        steps->room = room;
    }
    TdStep *step = &steps->steps[steps->count++];
    memset(step, 0, sizeof(TdStep));
    step->op = op;
    step->node = node;
    step->base = step->check = -1;
    return step;
}

static void items_free(TdItems *items)
{
    for (int i = 0; items != NULL && i < items->count; i++)
        Py_CLEAR(items->items[i].obj);
    PyMem_Free(items);
}

void td_steps_clear(TdSteps *steps)
{
    for (int i = 0; i < steps->count; i++) {
        TdStep *step = &steps->steps[i];
        Py_CLEAR(step->obj);
        if (step->op == CHECK_TENSOR)
            td_tensor_meta_free(step->u.tensor);
        else if (step->op == CHECK_STATE)
            td_state_free(step->u.state);
        else if (step->op == CHECK_NUMBERS)
            td_numbers_free(step->u.numbers);
        else if (step->op == STEP_BIND_DICT || step->op == STEP_BIND_CLASS) {
            if (step->u.bind != NULL) {
                items_free(step->u.bind->keys);
                td_steps_clear(&step->u.bind->checks);
            }
            PyMem_Free(step->u.bind);
        }
        else if (step->op == CHECK_DISTINCT || step->op == CHECK_APART)
            PyMem_Free(step->u.nodes);
        else if (step->op != STEP_KEYED)
            items_free(step->u.items);
    }
    PyMem_Free(steps->steps);
    memset(steps, 0, sizeof(TdSteps));
}

static int items_visit(TdItems *items, visitproc visit, void *arg)
{
    for (int i = 0; items != NULL && i < items->count; i++)
        Py_VISIT(items->items[i].obj);
    return 0;
}

static int has_items(TdOp op) { return op >= CHECK_SET && op != CHECK_SAME && op != CHECK_KEYED && op != CHECK_NOT_KEYED && op != CHECK_DISTINCT && op != CHECK_APART && op != CHECK_NUMBERS; }

int td_steps_visit(TdSteps *steps, visitproc visit, void *arg)
{
    int stop = 0;
    for (int i = 0; i < steps->count && !stop; i++) {
        TdStep *step = &steps->steps[i];
        Py_VISIT(step->obj);
        if (step->op == STEP_BIND_DICT || step->op == STEP_BIND_CLASS) {
            stop = step->u.bind == NULL ? 0 : items_visit(step->u.bind->keys, visit, arg);
            if (!stop && step->u.bind != NULL)
                stop = td_steps_visit(&step->u.bind->checks, visit, arg);
        }
        else if (has_items(step->op))
            stop = items_visit(step->u.items, visit, arg);
    }
    return stop;
}

/* ---- Items ------------------------------------------------------------------------------------------------------- */

TdItems *td_items_new(int count)
{
    TdItems *items = PyMem_Calloc(1, sizeof(TdItems) + count * sizeof(TdItem));
    if (items == NULL)
        PyErr_NoMemory();
    else
        items->count = count;
    return items;
}

int td_item_set(TdItem *item, PyObject *obj, int node)
{
    item->node = node;
    item->how = td_is_constant(obj) ? ITEM_EQUAL : ITEM_IS;
    item->obj = Py_NewRef(obj);
    return (item->hash = PyObject_Hash(obj)) == -1 ? -1 : 0; /* a weak reference has the hash of what it refers to */
}

/* From ("equal" | "is" | "is_weak", object). What is only compared is hashed only if that is a constant. */
static int item_parse(TdItem *item, PyObject *pair)
{
    const char *how;
    PyObject *obj;
    if (!TD_PARSE(pair, "sO", &how, &obj))
        return -1;
    if (strcmp(how, "equal") == 0)
        return td_item_set(item, obj, -1);
    item->obj = Py_NewRef(obj);
    item->node = -1;
    item->how = strcmp(how, "is_weak") == 0 && PyWeakref_CheckRefExact(obj) ? ITEM_WEAK : ITEM_IS;
    return 0;
}

TdItems *td_items_from(PyObject *tuple)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of keys or items");
        return NULL;
    }
    TdItems *items = td_items_new((int)PyTuple_GET_SIZE(tuple));
    for (int i = 0; items != NULL && i < items->count; i++)
        if (item_parse(&items->items[i], PyTuple_GET_ITEM(tuple, i)) < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "expected pairs of how to find an item, and the item");
            items_free(items);
            return NULL;
        }
    return items;
}

TdItems *td_items_key(PyObject *pair)
{
    PyObject *tuple = PyTuple_Pack(1, pair);
    TdItems *items = tuple == NULL ? NULL : td_items_from(tuple);
    Py_XDECREF(tuple);
    if (items != NULL && (items->items[0].hash = PyObject_Hash(items->items[0].obj)) == -1) {
        items_free(items);
        return NULL;
    }
    return items;
}
