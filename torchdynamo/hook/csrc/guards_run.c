/* Running a program: passes over its steps, in which no Python code runs. */
#include "guards_run.h"
#include <alloca.h>

int td_failed(TdProgram *program, const TdStep *step)
{
    program->failed_node = step->node;
    program->failed_check = step->check;
    td_reject_note(program, step);
    return 0;
}

/* Where a key leads, by the MRO or in a dict. */
static inline TdLookup look_up(PyObject *box, const TdItem *key, int of_class)
{
    return of_class ? (TdLookup){_PyType_Lookup((PyTypeObject *)box, key->obj), 1, 1} : td_dict_look_up(box, key);
}

/* A check that rests on the witness. */
static int bound_check_holds(TdProgram *program, const TdStep *check, PyObject *box, const TdRun *run, char *lasts)
{
    if (check->op != CHECK_HAS_KEY && check->op != CHECK_NO_KEY)
        return td_check_holds(program, check, run);
    TdLookup found = td_dict_look_up(box, check->u.items->items);
    *lasts &= found.lasts;
    return found.told && (found.value != NULL) == (check->op == CHECK_HAS_KEY);
}

/* Look every key up again, and see that all that rests on it holds. */
static inline int bind_again(TdProgram *program, const TdStep *step, PyObject *box, const TdRun *run, char *lasts)
{
    TdBind *bind = step->u.bind;
    int of_class = step->op == STEP_BIND_CLASS;
    *lasts = 1;
    for (int i = 0; i < bind->keys->count; i++) {
        const TdItem *key = &bind->keys->items[i];
        TdLookup found = look_up(box, key, of_class);
        if (found.value == NULL) {
            program->failed_node = key->node;
            program->failed_check = -1;
            return 0;
        }
        run->values[key->node] = found.value;
        *lasts &= found.lasts;
    }
    for (int i = 0; i < bind->checks.count; i++)
        if (!bound_check_holds(program, &bind->checks.steps[i], box, run, lasts))
            return td_failed(program, &bind->checks.steps[i]);
    return 1;
}

int td_bind_again(TdProgram *program, const TdStep *step, PyObject *box, const TdRun *run)
{
    char lasts;
    return bind_again(program, step, box, run, &lasts);
}

/* The witness moved, or there is none. */
static int rebind(TdProgram *program, const TdStep *step, PyObject *box, const TdRun *run)
{
    TdBind *bind = step->u.bind;
    bind->seen[run->seen].box = NULL;
    if (!bind_again(program, step, box, run, &bind->lasts))
        return 0;
    uint64_t tag = !bind->lasts                    ? 0
                   : step->op == STEP_BIND_CLASS ? td_type_tag((PyTypeObject *)box)
                                                   : td_dict_tag_from_now(box);
    bind->seen[run->seen] = (TdSeen){tag != 0 ? box : NULL, tag};
    return 1;
}

static inline PyObject *instance_dict(PyObject *obj)
{
    PyObject *dict = td_instance_dict(obj);
    if (TD_UNLIKELY(dict == NULL)) {
        int was_on = td_gc_pause();
        dict = PyObject_GenericGetDict(obj, NULL);
        td_gc_resume(was_on);
        if (dict == NULL)
            PyErr_Clear();
        Py_XDECREF(dict); /* the instance has it now */
    }
    return dict;
}

/* A tensor's size or stride: a new reference, or NULL. */
static PyObject *measured(PyObject *tensor, const TdStep *step)
{
    int64_t answer;
    PyObject *number = NULL;
    if (td_measure(tensor, step->op == STEP_SIZE ? 1 : 2, step->number, &answer)
        && (number = PyLong_FromLongLong(answer)) == NULL)
        PyErr_Clear();
    return number;
}

/* What a step that begins a path gives: borrowed, or NULL. */
static inline PyObject *root_of(const TdStep *step, const TdRun *run)
{
    switch (step->op) {
    case STEP_LOCAL:
        return run->slots[step->number];
    case STEP_GLOBALS:
        return run->globals;
    case STEP_BUILTINS:
        return run->builtins;
    default:
        return run->closure == NULL ? NULL : PyTuple_GET_ITEM(run->closure, step->number);
    }
}

int td_root_is(const TdStep *root, TdProgram *program, TdRun *run)
{
    if (root->op != STEP_BIND_DICT)
        return root_of(root, run) == run->values[root->node];
    TdBind *bind = root->u.bind;
    for (int i = 0; i < bind->keys->count; i++)
        if (td_dict_find(run->values[root->node], &bind->keys->items[i]) != run->values[bind->keys->items[i].node])
            return 0;
    for (int i = 0; i < bind->checks.count; i++)
        if (!td_check_holds(program, &bind->checks.steps[i], run))
            return 0;
    return 1;
}

PyObject *td_run_keep(TdRun *run, PyObject *obj)
{
    if (TD_UNLIKELY(run->n_temps == run->room)) {
        int room = 2 * run->room + 8;
        PyObject **temps = PyMem_Malloc(room * sizeof(PyObject *));
        if (temps == NULL) {
            Py_DECREF(obj);
            PyErr_NoMemory();
            return NULL;
        }
        if (run->n_temps > 0)
            memcpy(temps, run->temps, run->n_temps * sizeof(PyObject *));
        if (run->grown)
            PyMem_Free(run->temps);
        run->temps = temps;
        run->room = room;
        run->grown = 1;
    }
    return run->temps[run->n_temps++] = obj;
}

/* The fetches of which a program has many are told apart by run_step(). */
PyObject *td_step_fetch(TdStep *step, TdRun *run, PyObject **temp, TdLeave *leave)
{
    PyObject *base = step->base < 0 ? NULL : run->values[step->base], *value;
    switch (step->op) {
    case STEP_DICT:
        return instance_dict(base);
    case STEP_ITEM:
        return td_item_at(base, step->number);
    case STEP_ATTR:
        return td_attr(base, step->obj, temp, leave);
    case STEP_CONTENTS:
        return PyCell_Check(base) ? PyCell_GET(base) : NULL;
    case STEP_TYPE:
        return (PyObject *)Py_TYPE(base);
    case STEP_CALL:
        return td_call(base, step->obj, temp, leave);
    case STEP_METHOD:
        return td_method(base, step->obj, temp, leave);
    case STEP_KEYED:
        return td_dict_find_object(base, run->values[step->number], &step->u.place);
    case STEP_KEY_AT:
    case STEP_VALUE_AT:
        return td_dict_at(base, step->number, step->op == STEP_KEY_AT);
    case STEP_FIELD:
        return td_field(base, run->values[step->number], temp, leave);
    case STEP_ASKED:
        return td_asked(base, step->obj, temp, leave);
    case STEP_SIZE:
    case STEP_STRIDE:
        return *temp = measured(base, step);
    case STEP_WEAK:
        value = td_weak_target(step->obj);
        return value == Py_None ? NULL : value;
    default:
        return root_of(step, run);
    }
}

/* A fetch that may make its value, or need other code for it. */
static PyObject *fetch(TdStep *step, TdRun *run)
{
    PyObject *temp = NULL, *value = td_step_fetch(step, run, &temp, NULL);
    if (TD_UNLIKELY(value == TD_OUTSIDE)) {
        run->outside = step->node;
        return NULL;
    }
    if (temp != NULL && td_run_keep(run, temp) == NULL)
        PyErr_Clear(), value = NULL;
    return value;
}

/* The steps of which a program has many are told apart here; the rest go to td_check_holds(). */
static inline __attribute__((always_inline)) int run_step(TdProgram *program, TdStep *step, TdRun *run)
{
    PyObject **values = run->values, *value;
    const TdSeen *seen;
    switch (step->op) {
    case STEP_LOCAL:
    case STEP_GLOBALS:
    case STEP_BUILTINS:
    case STEP_CLOSURE:
        value = root_of(step, run);
        break;
    case STEP_DICT:
        value = instance_dict(values[step->base]);
        break;
    case STEP_ITEM:
        value = td_item_at(values[step->base], step->number);
        break;
    case STEP_TYPE:
        value = (PyObject *)Py_TYPE(values[step->base]);
        break;
    case STEP_ATTR:
    case STEP_CONTENTS:
    case STEP_CALL:
    case STEP_METHOD:
    case STEP_KEYED:
    case STEP_SIZE:
    case STEP_STRIDE:
    case STEP_FIELD:
    case STEP_WEAK:
    case STEP_KEY_AT:
    case STEP_VALUE_AT:
    case STEP_ASKED:
        value = fetch(step, run);
        break;
    case STEP_BIND_DICT:
        value = values[step->node];
        seen = &step->u.bind->seen[run->seen];
        if (TD_UNLIKELY(!PyDict_Check(value)))
            return td_failed(program, step);
        if (TD_UNLIKELY(value != seen->box || td_dict_tag(value) != seen->tag)
            && !rebind(program, step, value, run))
            return 0;
        return 1;
    case STEP_BIND_CLASS:
        value = values[step->node];
        seen = &step->u.bind->seen[run->seen];
        if (TD_UNLIKELY(!PyType_Check(value)))
            return td_failed(program, step);
        if (TD_UNLIKELY(value != seen->box || td_type_tag((PyTypeObject *)value) != seen->tag)
            && !rebind(program, step, value, run))
            return 0;
        return 1;
    case CHECK_TYPE:
        if (TD_UNLIKELY((PyObject *)Py_TYPE(values[step->node]) != step->obj))
            return td_failed(program, step);
        return 1;
    case CHECK_TENSOR:
        if (TD_UNLIKELY(!td_tensor_matches(step->u.tensor, values[step->node])))
            return td_failed(program, step);
        return 1;
    case CHECK_LENGTH:
        value = values[step->node];
        if (TD_UNLIKELY((PyDict_Check(value) ? PyDict_GET_SIZE(value) : td_length(value)) != step->number))
            return td_failed(program, step);
        return 1;
    default:
        if (TD_UNLIKELY(!td_check_holds(program, step, run)))
            return td_failed(program, step);
        return 1;
    }
    if (TD_UNLIKELY(value == NULL))
        return td_failed(program, step);
    values[step->node] = value;
    return 1;
}

int td_step_run(TdProgram *program, TdStep *step, TdRun *run) { return run_step(program, step, run); }

static int walk(TdProgram *program, TdRun *run)
{
    const TdOutside *outside = program->outside;
    run->values = program->values;
    run->seen = 0;
    for (TdStep *step = program->steps.steps, *end = step + program->steps.count; step < end; step++)
        if (!(outside != NULL && td_is_outside(outside, step->node)) && !run_step(program, step, run))
            return 0;
    return 1;
}

int td_pass(TdProgram *program, TdRun *run)
{
    int answer;
    do {
        run->outside = -1;
        answer = program->arm != NULL ? td_arm_run(program, run) : -1;
        if (answer < 0)
            answer = walk(program, run);
        if (TD_UNLIKELY(run->outside >= 0) && td_outside_add(program, run->outside) < 0)
            return -1;
    } while (TD_UNLIKELY(run->outside >= 0));
    return answer;
}

int td_late_hold(TdProgram *program, const TdRun *run)
{
    int armed = run->values != program->values, count = armed ? program->arm->n_late : program->late.count;
    for (int i = 0; i < count; i++) {
        const TdStep *step = armed ? program->arm->late[i] : &program->late.steps[i];
        if (TD_UNLIKELY(!td_check_holds(program, step, run)))
            return td_failed(program, step);
    }
    return 1;
}

/* After all the steps: from the second time that they hold, the program is armed. */
static void settle(TdProgram *program)
{
    if (program->arm != NULL && program->benign[program->missed] < UCHAR_MAX)
        program->benign[program->missed]++;
    if (program->patience > 0)
        program->patience--;
    else if (program->patience == 0)
        td_arm(program);
}

static PyObject *collect(TdProgram *program, PyObject **values)
{
    int was_on = td_gc_pause();
    PyObject *bound = PyTuple_New(program->n_bound);
    td_gc_resume(was_on);
    for (int i = 0; bound != NULL && i < program->n_bound; i++)
        PyTuple_SET_ITEM(bound, i, Py_NewRef(values[program->bound[i]]));
    return bound;
}

/* From the first step to the last, but for what others have to be asked. */
typedef struct {
    TdProgram *program;
    TdRun run;
    PyObject *bound;
    TdAsking asking;
} Whole;

static int run_whole(void *argument)
{
    Whole *whole = argument;
    TdProgram *program = whole->program;
    TdRun *run = &whole->run;
    int answer = td_pass(program, run);
    if (TD_UNLIKELY(program->outside != NULL) && answer == 1)
        answer = td_outside_give(program, run, &whole->asking);
    if (answer == 1)
        answer = td_late_hold(program, run);
    if (answer == 1 && run->values == program->values)
        settle(program);
    if (answer == 1 && program->n_bound > 0 && (whole->bound = collect(program, run->values)) == NULL)
        answer = -1;
    td_placed_by(program, answer == 1 && run->values != program->values ? whole->bound : NULL);
    return answer;
}

int td_program_run(TdProgram *program, PyObject *const *slots, PyObject *globals, PyObject *builtins,
                   PyObject *closure, PyObject **bound)
{
    Whole whole = {.program = program, .run = {.slots = slots, .globals = globals, .builtins = builtins, .closure = closure}};
    TdRun *run = &whole.run;
    run->room = 2 * program->n_temps; /* an armed pass may come to nothing */
    if (run->room > 0)
        run->temps = alloca(run->room * sizeof(PyObject *));
    int answer;
    do {
        answer = td_alone(run_whole, &whole);
    } while (TD_UNLIKELY(answer == TD_ASK) && (answer = td_outside_ask(program, run, &whole.asking)) == 1);
    if (TD_UNLIKELY(whole.asking.outside != NULL))
        td_outside_done(&whole.asking);
    for (int i = 0; i < run->n_temps; i++)
        Py_DECREF(run->temps[i]);
    if (run->grown)
        PyMem_Free(run->temps);
    *bound = whole.bound;
    return answer;
}
