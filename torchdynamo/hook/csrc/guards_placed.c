/* Addresses of tensors, noted by guards as they look at each tensor, for graphs that were recorded at certain addresses.
 *
 * A program that is armed has a number for the addresses of all its tensors, which changes when one of them does. What is
 * laid out by the metadata that it compares, at the addresses of that number, need not be looked at again by the graph that is
 * called next, as long as no other thread has run in between. */
#include "guards_run.h"

#ifndef Py_GIL_DISABLED

static uint64_t numbers = 0;

/* What the last program that held gave to the code. */
static struct {
    TdProgram *program;    /* NULL: nothing is known */
    PyObject *bound;       /* raw: to be told from others */
    PyObject *const *from; /* the arguments that it is passed on as; NULL: it is not yet */
    unsigned long switches;
} latest;

void td_placed_by(TdProgram *program, PyObject *bound)
{
    latest.program = bound != NULL && program->arm != NULL ? program : NULL;
    latest.bound = bound;
    latest.from = NULL;
    latest.switches = td_thread_turns();
}

void td_placed_forget(const TdProgram *program)
{
    if (latest.program == program)
        latest.program = NULL;
}

void td_placed_spread(PyObject *bound, PyObject *const *from)
{
    latest.from = bound != NULL && latest.bound == bound ? from : NULL;
    latest.bound = NULL; /* it is passed on once: afterwards, anything may have happened */
}

static int is_passed(PyObject *const *args, Py_ssize_t nargs)
{
    return latest.program != NULL && latest.from != NULL && latest.from >= args && latest.from <= args + nargs
        && latest.switches == td_thread_turns();
}

TdPlaced td_placed(PyObject *const *args, Py_ssize_t nargs)
{
    if (!is_passed(args, nargs) || latest.program->arm == NULL)
        return (TdPlaced){NULL, 0};
    return (TdPlaced){latest.from, latest.program->arm->placed};
}

/* Every value that the code is given must be a tensor whose layout the metadata says whole. */
static int says_all(const TdProgram *program)
{
    const TdArm *arm = program->arm;
    char *told = PyMem_Calloc(program->n_nodes + 1, 1);
    int all = told != NULL;
    for (int i = 0; all && i < arm->n_tensors; i++)
        told[program->steps.steps[arm->tensor_steps[i]].node] =
            (char)td_tensor_meta_says_all(arm->tensors[i].meta, arm->tensors[i].obj);
    for (int i = 0; all && i < program->n_bound; i++)
        all = told[program->bound[i]];
    PyMem_Free(told);
    return all;
}

void td_placed_wanted(PyObject *const *args, Py_ssize_t nargs)
{
    TdArm *arm = is_passed(args, nargs) ? latest.program->arm : NULL;
    if (arm == NULL || arm->placed != 0 || !says_all(latest.program))
        return;
    arm->places = PyMem_Calloc(arm->n_tensors + 1, sizeof(void *));
    if (arm->places != NULL)
        arm->placed = ++numbers;
}

void td_places_move(TdArm *arm) { arm->placed = ++numbers; }

#else /* without the lock, other threads may run at any time */

void td_placed_by(TdProgram *program, PyObject *bound) {}
void td_placed_forget(const TdProgram *program) {}
void td_placed_spread(PyObject *bound, PyObject *const *from) {}
TdPlaced td_placed(PyObject *const *args, Py_ssize_t nargs) { return (TdPlaced){NULL, 0}; }
void td_placed_wanted(PyObject *const *args, Py_ssize_t nargs) {}
void td_places_move(TdArm *arm) {}

#endif
