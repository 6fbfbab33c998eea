/* Values that only code of others can give: a getter's, a method's that lets other threads run.
 *
 * While that code runs, anything may happen: another thread runs the same program, arms it, drops its entry; an object
 * that was seen a moment ago dies. So it is not asked in the midst of a pass. What can be told here is told first, by a
 * pass in which no code runs but ours; then the others are asked, with all that this needs owned by this run; then the pass
 * is made again, since nothing is known any more, and up to the end of the run nobody else gets in between. Whatever a
 * program has of its own (its values, its witnesses, its words) is used within a pass only.
 *
 * Which nodes need it shows when they are first met, and is remembered: few programs have any. */
#include "guards_run.h"

#define TRIES 3

enum { LED_TO = 1, GIVEN };

struct TdOutside {
    int owners;
    int n_steps, n_bases, n_nodes;
    TdStep **steps; /* in order: how the values are got, and what rests on them */
    int *bases;     /* nodes of the pass that they need */
    char *how;      /* by node; 0: it is seen in the pass */
};

/* ---- Which they are ------------------------------------------------------------------------------------------------ */

void td_outside_free(TdOutside *outside)
{
    if (outside == NULL || --outside->owners > 0)
        return;
    PyMem_Free(outside->steps);
    PyMem_Free(outside->bases);
    PyMem_Free(outside->how);
    PyMem_Free(outside);
}

int td_is_outside(const TdOutside *outside, int node) { return node >= 0 && outside->how[node] != 0; }

static void lead_to(TdOutside *outside, int node)
{
    if (outside->how[node] == 0)
        outside->how[node] = LED_TO;
}

/* What the step fetches is outside if what it starts from is. */
static void follow(TdOutside *outside, const TdStep *step)
{
    if (step->op == STEP_BIND_DICT || step->op == STEP_BIND_CLASS) {
        for (int i = 0; td_is_outside(outside, step->node) && i < step->u.bind->keys->count; i++)
            lead_to(outside, step->u.bind->keys->items[i].node);
    }
    else if (step->op < STEP_BIND_DICT
             && (td_is_outside(outside, step->base)
                 || ((step->op == STEP_KEYED || step->op == STEP_FIELD) && td_is_outside(outside, (int)step->number))))
        lead_to(outside, step->node);
}

static void add_base(TdOutside *outside, int node)
{
    for (int i = 0; i < outside->n_bases; i++)
        if (outside->bases[i] == node)
            return;
    if (node >= 0 && outside->how[node] == 0)
        outside->bases[outside->n_bases++] = node;
}

int td_outside_add(TdProgram *program, int node)
{
    TdOutside *old = program->outside, *made = PyMem_Calloc(1, sizeof(TdOutside));
    int n_steps = program->steps.count;
    if (made == NULL)
        return PyErr_NoMemory(), -1;
    *made = (TdOutside){.owners = 1, .n_nodes = program->n_nodes};
    made->how = PyMem_Calloc(program->n_nodes + 1, 1);
    made->steps = PyMem_Calloc(n_steps + 1, sizeof(TdStep *));
    made->bases = PyMem_Calloc(2 * n_steps + 1, sizeof(int));
    if (made->how == NULL || made->steps == NULL || made->bases == NULL) {
        td_outside_free(made);
        return PyErr_NoMemory(), -1;
    }
    if (old != NULL)
        memcpy(made->how, old->how, program->n_nodes);
    made->how[node] = GIVEN;
    for (int i = 0; i < n_steps; i++) { /* parents come first */
        TdStep *step = &program->steps.steps[i];
        follow(made, step);
        if (!td_is_outside(made, step->node))
            continue;
        made->steps[made->n_steps++] = step;
        if (step->op < STEP_BIND_DICT)
            add_base(made, step->base);
        if (step->op == STEP_KEYED || step->op == STEP_FIELD)
            add_base(made, (int)step->number);
    }
    program->outside = made;
    td_outside_free(old);
    td_disarm(program);
    return 0;
}

void td_outside_costs(const TdOutside *outside, int *costs)
{
    for (int i = 0; i < outside->n_steps; i++)
        if (outside->steps[i]->check >= 0)
            costs[outside->steps[i]->check] = -1;
}

/* ---- Asking -------------------------------------------------------------------------------------------------------- */

static int own_keys(TdProgram *program, const TdStep *step, TdRun *run)
{
    PyObject *box = run->values[step->node];
    int of_class = step->op == STEP_BIND_CLASS;
    if (of_class ? !PyType_Check(box) : !PyDict_Check(box))
        return td_failed(program, step);
    if (!td_bind_again(program, step, box, run))
        return 0;
    for (int i = 0; i < step->u.bind->keys->count; i++) {
        PyObject *value = run->values[step->u.bind->keys->items[i].node];
        if (td_run_keep(run, Py_NewRef(value)) == NULL)
            return -1;
    }
    return 1;
}

static int own_value(TdProgram *program, TdOutside *outside, TdStep *step, TdRun *run)
{
    TdLeave leave = {0};
    PyObject *temp = NULL, *value = td_step_fetch(step, run, &temp, &leave);
    if (leave.left)
        outside->how[step->node] = GIVEN;
    if (value == NULL)
        return PyErr_Occurred() ? -1 : td_failed(program, step);
    run->values[step->node] = value;
    return td_run_keep(run, temp != NULL ? temp : Py_NewRef(value)) == NULL ? -1 : 1;
}

/* All of them once, into values of this run's own. */
static int ask(TdProgram *program, TdOutside *outside, TdRun *run, PyObject **own)
{
    for (int i = 0; i < outside->n_bases; i++) {
        int node = outside->bases[i];
        if ((own[node] = td_run_keep(run, Py_NewRef(run->values[node]))) == NULL)
            return -1;
    }
    run->values = own;
    for (int i = 0; i < outside->n_steps; i++) {
        TdStep *step = outside->steps[i];
        int done = step->op == STEP_BIND_DICT || step->op == STEP_BIND_CLASS ? own_keys(program, step, run)
                   : step->op < STEP_BIND_DICT                               ? own_value(program, outside, step, run)
                   : td_check_holds(program, step, run)                      ? 1
                                                                             : td_failed(program, step);
        if (done != 1)
            return done;
    }
    return 1;
}

/* After another pass: put them among its values, and go from there once more. */
static int give(TdProgram *program, const TdOutside *outside, TdRun *run, PyObject *const *own)
{
    for (int i = 0; i < outside->n_steps; i++) {
        TdStep *step = outside->steps[i];
        if (step->op < STEP_BIND_DICT && outside->how[step->node] == GIVEN)
            run->values[step->node] = own[step->node];
        else if (!td_step_run(program, step, run))
            return 0;
    }
    return 1;
}

static int same_bases(const TdOutside *outside, PyObject *const *values, PyObject *const *own)
{
    for (int i = 0; i < outside->n_bases; i++)
        if (values[outside->bases[i]] != own[outside->bases[i]])
            return 0;
    return 1;
}

int td_outside_run(TdProgram *program, TdRun *run)
{
    int answer = 0, again = 1;
    for (int i = 0; again && i < TRIES; i++) {
        TdOutside *outside = program->outside;
        PyObject **own = PyMem_Calloc(program->n_nodes + 1, sizeof(PyObject *));
        if (own == NULL)
            return PyErr_NoMemory(), -1;
        outside->owners++;
        answer = ask(program, outside, run, own);
        if (answer == 1)
            answer = td_pass(program, run);
        again = answer == 1 && (outside != program->outside || !same_bases(outside, run->values, own));
        if (answer == 1)
            answer = again ? 0 : give(program, outside, run, own);
        td_outside_free(outside);
        PyMem_Free(own);
    }
    return answer;
}
