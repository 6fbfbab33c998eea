/* Telling quickly that a program does not hold, by the check that failed last.
 *
 * Where a function has many versions, a call fails most of their programs, each at the check that tells its version from
 * the others: of an argument, or of something an argument leads to. That check is made before all else. The way to its
 * value is walked as if nothing were known, so it needs no other guard to hold; and as versions mostly differ in what
 * is at one place, what was found there is kept for the next program, and told from what it asks for by one number.
 * Whoever is rejected for nothing, as two ways or values may have one number, is only compiled once more. */
#include "guards_run.h"

#define LONGEST 12
#define ONE_MORE(hash, part) (((hash) ^ (uint64_t)(part)) * 0x9E3779B97F4A7C15ull ^ (hash) >> 29)

typedef struct {
    TdOp op; /* of a fetch; or of a witness, by one of whose keys it goes on */
    Py_ssize_t number;
    const TdItem *key;
    PyObject *obj; /* a constant to begin with, borrowed from the program; else NULL */
} Leg;

typedef struct TdReject {
    const TdStep *check;
    uint64_t path, look; /* numbers for the way, and for the value that is asked for; 0: that has none */
    int length;
    Leg legs[LONGEST]; /* the last first */
} TdReject;

/* ---- Noting one ----------------------------------------------------------------------------------------------------- */

/* The leg that leads to a node, and where from: -1: the frame; -2: it is not one to be walked by itself. */
static int leg_to(const TdProgram *program, int node, Leg *leg)
{
    if (program->is_constant[node]) {
        *leg = (Leg){STEP_LOCAL, 0, NULL, program->values[node]};
        return -1;
    }
    for (int i = 0; i < program->steps.count; i++) {
        const TdStep *step = &program->steps.steps[i];
        if (step->op == STEP_BIND_DICT || step->op == STEP_BIND_CLASS) {
            for (int k = 0; k < step->u.bind->keys->count; k++)
                if (step->u.bind->keys->items[k].node == node) {
                    *leg = (Leg){step->op, 0, &step->u.bind->keys->items[k], NULL};
                    return step->node;
                }
        }
        else if (step->op < STEP_BIND_DICT && step->node == node) {
            *leg = (Leg){step->op, step->number, NULL, NULL};
            int walked = step->op <= STEP_ITEM || step->op == STEP_CONTENTS || step->op == STEP_TYPE;
            return walked ? step->base : -2;
        }
    }
    return -2;
}

static uint64_t number_of(const Leg *leg)
{
    uint64_t number = ONE_MORE((uint64_t)leg->op + 1, leg->number);
    number = ONE_MORE(number, (uintptr_t)leg->obj);
    if (leg->key != NULL) /* equal names are mostly one string, and else they make two ways */
        number = ONE_MORE(number, (uintptr_t)leg->key->obj);
    return number;
}

/* What the value looks like if the check holds; 0: that cannot be told beforehand. */
static uint64_t look_asked_for(const TdStep *check)
{
    if (check->op == CHECK_TENSOR)
        return td_tensor_meta_look(check->u.tensor);
    if (check->op != CHECK_EQUAL)
        return 0;
    PyTypeObject *type = Py_TYPE(check->obj);
    int nan = type == &PyFloat_Type && PyFloat_AS_DOUBLE(check->obj) != PyFloat_AS_DOUBLE(check->obj);
    int told = type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyFloat_Type
               || type == &PyBool_Type || check->obj == Py_None;
    return told && !nan ? td_look_of(check->obj) : 0;
}

static int can_reject(const TdStep *check)
{
    return check->op == CHECK_EQUAL || check->op == CHECK_TENSOR || check->op == CHECK_TYPE || check->op == CHECK_IS
           || check->op == CHECK_TYPE_WEAK || check->op == CHECK_IS_WEAK || check->op == CHECK_CODE || check->op == CHECK_LENGTH;
}

void td_reject_note(TdProgram *program, const TdStep *check)
{
    TdReject *reject = program->reject;
    if (!can_reject(check) || (reject != NULL && reject->check == check))
        return;
    if (reject == NULL && (reject = program->reject = PyMem_Calloc(1, sizeof(TdReject))) == NULL)
        return;
    reject->check = NULL;
    reject->path = 1;
    reject->length = 0;
    for (int node = check->node; node >= 0; reject->length++) {
        if (reject->length == LONGEST || (node = leg_to(program, node, &reject->legs[reject->length])) == -2)
            return;
        reject->path = ONE_MORE(reject->path, number_of(&reject->legs[reject->length]));
    }
    reject->look = look_asked_for(check);
    reject->check = check;
}

/* ---- Taking it ------------------------------------------------------------------------------------------------------ */

/* 1: it leads to *value, or nowhere, which is NULL; 0: that cannot be told here. */
static int walk(const TdReject *reject, const TdFrame *frame, PyObject **found)
{
    PyObject *value = NULL, *closure;
    for (int i = reject->length - 1; i >= 0; i--) {
        const Leg *leg = &reject->legs[i];
        switch (leg->op) {
        case STEP_LOCAL:
            value = leg->obj != NULL ? leg->obj : frame->localsplus[leg->number];
            break;
        case STEP_GLOBALS:
            value = frame->globals;
            break;
        case STEP_BUILTINS:
            value = frame->builtins;
            break;
        case STEP_CLOSURE:
            closure = frame->func == NULL ? NULL : PyFunction_GET_CLOSURE(frame->func);
            value = closure == NULL ? NULL : PyTuple_GET_ITEM(closure, leg->number);
            break;
        case STEP_DICT:
            if ((value = td_instance_dict(value)) == NULL)
                return 0; /* it may have none yet */
            break;
        case STEP_ITEM:
            value = td_item_at(value, leg->number);
            break;
        case STEP_CONTENTS:
            value = PyCell_Check(value) ? PyCell_GET(value) : NULL;
            break;
        case STEP_TYPE:
            value = (PyObject *)Py_TYPE(value);
            break;
        case STEP_BIND_DICT:
            value = PyDict_Check(value) ? td_dict_find(value, leg->key) : NULL;
            break;
        default:
            value = PyType_Check(value) ? _PyType_Lookup((PyTypeObject *)value, leg->key->obj) : NULL;
        }
        if (value == NULL)
            break;
    }
    *found = value;
    return 1;
}

static int passes(const TdStep *check, PyObject *value)
{
    switch (check->op) {
    case CHECK_EQUAL:
        return td_constant_equal(check->obj, value);
    case CHECK_TENSOR:
        return td_tensor_matches(check->u.tensor, value);
    case CHECK_TYPE:
        return (PyObject *)Py_TYPE(value) == check->obj;
    case CHECK_TYPE_WEAK:
        return (PyObject *)Py_TYPE(value) == td_weak_target(check->obj);
    case CHECK_IS:
        return value == check->obj;
    case CHECK_IS_WEAK:
        return value == td_weak_target(check->obj);
    case CHECK_CODE:
        return PyFunction_Check(value) && PyFunction_GET_CODE(value) == check->obj;
    default:
        return td_length(value) == check->number;
    }
}

typedef struct {
    TdProgram *program;
    const TdFrame *frame;
    TdAsked *asked;
} Question;

static int rejects(void *argument)
{
    const Question *question = argument;
    TdProgram *program = question->program;
    TdAsked *asked = question->asked;
    TdReject *reject = program->reject;
    if (reject == NULL || reject->check == NULL)
        return 0;
    if (asked->path != reject->path || TD_OTHERS_RUN_BETWEEN) { /* what was found may be gone */
        if (!walk(reject, question->frame, &asked->value))
            return 0;
        asked->path = reject->path;
        asked->look = asked->value != NULL ? td_look_of(asked->value) : 0;
    }
    if (asked->value != NULL && (reject->look == 0 || reject->look == asked->look)
        && passes(reject->check, asked->value))
        return 0;
    asked->wanted = asked->value != NULL ? reject->look : 0;
    program->failed_node = reject->check->node;
    program->failed_check = reject->check->check;
    return 1;
}

int td_program_rejects(PyObject *self, const TdFrame *frame, TdAsked *asked)
{
    Question question = {(TdProgram *)self, frame, asked};
    return td_alone(rejects, &question);
}
