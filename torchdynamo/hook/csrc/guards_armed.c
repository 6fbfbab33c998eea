/* An armed program: its memory, what it costs, and comparing it. */
#include "guards_run.h"

void td_disarm(TdProgram *program)
{
    TdArm *arm = program->arm;
    program->arm = NULL;
    if (arm == NULL)
        return;
    PyMem_Free(arm->values);
    PyMem_Free(arm->words);
    PyMem_Free(arm->steps);
    PyMem_Free(arm->segments);
    PyMem_Free(arm->tensors);
    PyMem_Free(arm->tensor_steps);
    PyMem_Free(arm->places);
    PyMem_Free(arm->rest);
    PyMem_Free(arm->late);
    PyMem_Free(arm);
}

/* Room for the most that each step can need; what is left over is given back. */
int td_arm_room(TdProgram *program, TdArm *arm)
{
    int steps = program->steps.count + 1, words = 4 * steps;
    for (int i = 0; i < program->steps.count; i++) {
        const TdStep *step = &program->steps.steps[i];
        if (step->op == STEP_BIND_DICT)
            words += TD_SPLIT_PLACES + step->u.bind->keys->count + 4 * step->u.bind->checks.count;
    }
    arm->values = PyMem_Malloc((program->n_nodes + 1) * sizeof(PyObject *));
    arm->words = PyMem_Malloc((words + TD_AHEAD) * sizeof(TdWord));
    arm->steps = PyMem_Malloc(words * sizeof(int));
    arm->segments = PyMem_Malloc(steps * sizeof(TdSegment));
    arm->tensors = PyMem_Malloc((steps + TD_AHEAD) * sizeof(TdTensorRow));
    arm->tensor_steps = PyMem_Malloc(steps * sizeof(int));
    arm->rest = PyMem_Malloc(steps * sizeof(TdStep *));
    arm->late = PyMem_Malloc((program->late.count + 1) * sizeof(TdStep *));
    return arm->values && arm->words && arm->steps && arm->segments && arm->tensors && arm->tensor_steps && arm->rest
           && arm->late;
}

static void *fitted(void *memory, size_t count, size_t size)
{
    void *smaller = PyMem_Realloc(memory, (count + 1) * size);
    return smaller != NULL ? smaller : memory;
}

void td_arm_fit(TdArm *arm)
{
    for (int i = 0; i < TD_AHEAD; i++) { /* so that looking ahead needs no bound */
        arm->words[arm->n_words + i] = (TdWord){(const TdRaw *)arm->values, 0};
        arm->tensors[arm->n_tensors + i] = (TdTensorRow){NULL};
    }
    arm->words = fitted(arm->words, arm->n_words + TD_AHEAD, sizeof(TdWord));
    arm->steps = fitted(arm->steps, arm->n_words, sizeof(int));
    arm->segments = fitted(arm->segments, arm->n_segments, sizeof(TdSegment));
    arm->tensors = fitted(arm->tensors, arm->n_tensors + TD_AHEAD, sizeof(TdTensorRow));
    arm->tensor_steps = fitted(arm->tensor_steps, arm->n_tensors, sizeof(int));
    arm->rest = fitted(arm->rest, arm->n_rest, sizeof(TdStep *));
}

/* What each of the caller's checks costs on a hit: so many words; 0: what is compared for others proves it; -1: it is
 * run; -2: a tensor's metadata is compared. */
void td_costs(TdProgram *program, int *costs)
{
    const TdArm *arm = program->arm;
    const TdStep *steps = program->steps.steps;
    for (int i = 0; i < (arm != NULL ? arm->n_rest : program->steps.count); i++) {
        const TdStep *step = arm != NULL ? arm->rest[i] : &steps[i];
        if (step->check >= 0)
            costs[step->check] = -1;
    }
    for (int i = 0; i < (arm != NULL ? arm->n_late : program->late.count); i++)
        costs[(arm != NULL ? arm->late[i] : &program->late.steps[i])->check] = -1;
    if (program->outside != NULL)
        td_outside_costs(program->outside, costs);
    for (int i = 0; arm != NULL && i < arm->n_tensors; i++)
        costs[steps[arm->tensor_steps[i]].check] = -2;
    for (int i = 0; arm != NULL && i < arm->n_words; i++) {
        int check = steps[arm->steps[i]].check;
        if (check >= 0 && costs[check] >= 0)
            costs[check]++;
    }
}

/* The root is what it was, and so are the words after it. -1: all of them; else the step that differs. */
static int differs(TdProgram *program, TdRun *run)
{
    const TdArm *arm = program->arm;
    const TdWord *word = arm->words, *end;
    for (int i = 0; i < arm->n_segments; i++) {
        const TdStep *root = arm->segments[i].root;
        if (root != NULL && !td_root_is(root, program, run))
            return (int)(root - program->steps.steps);
        end = arm->words + (i + 1 < arm->n_segments ? arm->segments[i + 1].begin : arm->n_words);
        for (; word < end; word++) {
            __builtin_prefetch(word[TD_AHEAD].place);
            if (TD_UNLIKELY(*word->place != word->expected))
                return arm->steps[word - arm->words];
        }
    }
    return -1;
}

int td_arm_run(TdProgram *program, TdRun *run)
{
    const TdArm *arm = program->arm;
    run->values = arm->values;
    run->seen = 1;
    int step = differs(program, run);
    if (TD_UNLIKELY(step >= 0)) {
        program->missed = step;
        return -1;
    }
    int moved = 0;
    step = td_tensors_match(arm->tensors, arm->n_tensors, arm->places, &moved);
    if (TD_UNLIKELY(moved))
        td_places_move(program->arm);
    if (TD_UNLIKELY(step >= 0))
        return td_failed(program, &program->steps.steps[arm->tensor_steps[step]]);
    for (int i = 0; i < arm->n_rest; i++)
        if (TD_UNLIKELY(!td_step_run(program, arm->rest[i], run)))
            return 0;
    return 1;
}
