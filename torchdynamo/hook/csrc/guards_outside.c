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

/* What a step fetches, owned. TD_ASK: only others can tell, and `leave` is NULL. */
static int own_value(TdProgram *program, TdOutside *outside, TdStep *step, TdRun *run, TdLeave *leave)
{
    PyObject *temp = NULL, *value = td_step_fetch(step, run, &temp, leave);
    if (value == TD_OUTSIDE)
        return TD_ASK;
    if (leave != NULL && leave->left)
        outside->how[step->node] = GIVEN;
    if (value == NULL && PyErr_Occurred())
        return -1;
    if (value == NULL || (TD_OTHERS_RUN_BETWEEN && leave != NULL && temp == NULL)) { /* it is none to ask for any more */
        TD_SHARED_BEGIN
        td_failed(program, step);
        TD_SHARED_END
        return 0;
    }
    run->values[step->node] = value;
    return td_run_keep(run, temp != NULL ? temp : Py_NewRef(value)) == NULL ? -1 : 1;
}

typedef struct {
    TdProgram *program;
    TdOutside *outside;
    TdStep *step;
    TdRun *run;
} Own;

/* A step for which nobody is asked. */
static int own_alone(void *argument)
{
    Own *own = argument;
    TdStep *step = own->step;
    if (step->op == STEP_BIND_DICT || step->op == STEP_BIND_CLASS)
        return own_keys(own->program, step, own->run);
    if (step->op < STEP_BIND_DICT)
        return own_value(own->program, own->outside, step, own->run, NULL);
    return td_check_holds(own->program, step, own->run) ? 1 : td_failed(own->program, step);
}

int td_outside_ask(TdProgram *program, TdRun *run, TdAsking *asking)
{
    TdOutside *outside = asking->outside;
    run->values = asking->own;
    for (int i = 0; i < outside->n_steps; i++) {
        Own own = {program, outside, outside->steps[i], run};
        TdLeave leave = {0};
        int fetches = own.step->op < STEP_BIND_DICT;
        int done = TD_CALLS_WHILE_ALONE && fetches ? TD_ASK : td_alone(own_alone, &own);
        if (done == TD_ASK)
            done = own_value(program, outside, own.step, run, &leave);
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

/* Another pass, or another thread's, may have found more that has to be asked, or begun elsewhere. */
static int is_answered(const TdProgram *program, const TdRun *run, const TdAsking *asking)
{
    return asking->outside == program->outside && same_bases(asking->outside, run->values, asking->own);
}

int td_outside_give(TdProgram *program, TdRun *run, TdAsking *asking)
{
    if (asking->outside != NULL && is_answered(program, run, asking))
        return give(program, asking->outside, run, asking->own);
    if (asking->tries++ == TRIES)
        return 0;
    td_outside_done(asking);
    if ((asking->own = PyMem_Calloc(program->n_nodes + 1, sizeof(PyObject *))) == NULL)
        return PyErr_NoMemory(), -1;
    asking->outside = program->outside;
    asking->outside->owners++;
    for (int i = 0; i < asking->outside->n_bases; i++) {
        int node = asking->outside->bases[i];
        if ((asking->own[node] = td_run_keep(run, Py_NewRef(run->values[node]))) == NULL)
            return -1;
    }
    return TD_ASK;
}

void td_outside_done(TdAsking *asking)
{
    TD_SHARED_BEGIN /* nobody is stopped in here */
    td_outside_free(asking->outside);
    TD_SHARED_END
    PyMem_Free(asking->own);
    asking->outside = NULL;
    asking->own = NULL;
}
