/* What running a guard program and arming it share. */
#ifndef TORCHDYNAMO_GUARDS_RUN_H
#define TORCHDYNAMO_GUARDS_RUN_H
#include "guards.h"

/* One run of a program: a pass, or more than one if other code is asked as well. */
typedef struct {
    PyObject **values;   /* by node */
    int seen;            /* which of the two things a witness has seen belongs to these values */
    PyObject *const *slots;
    PyObject *globals, *builtins, *closure;
    PyObject **temps;    /* objects that this run owns */
    int n_temps, room, grown;
    int outside;         /* the node that ended the pass, as only other code can tell it; -1: none */
} TdRun;

PyObject *td_run_keep(TdRun *run, PyObject *obj);                             /* until the end; steals; NULL with an error */
int td_pass(TdProgram *program, TdRun *run);                                  /* 1, 0; -1: error */
PyObject *td_step_fetch(TdStep *step, TdRun *run, PyObject **temp, TdLeave *leave); /* one fetch, as td_attr() and the others */
int td_bind_again(TdProgram *program, const TdStep *step, PyObject *box, const TdRun *run); /* all keys are looked up; 1, 0 */
int td_step_run(TdProgram *program, TdStep *step, TdRun *run);               /* 1: go on; 0: it does not hold, and is noted */
int td_check_holds(TdProgram *program, const TdStep *step, const TdRun *run); /* one check; no fetch, no witness */
int td_root_is(const TdStep *root, TdProgram *program, TdRun *run);           /* it gives what `values` has for it */
int td_failed(TdProgram *program, const TdStep *step);                        /* notes it; 0 */

typedef uint64_t __attribute__((may_alias)) TdRaw;

typedef struct {
    const TdRaw *place;
    uint64_t expected;
} TdWord;

/* What a pass starts from, and begins to compare when that is as it was. */
typedef struct {
    const TdStep *root; /* a fetch from the frame, or a witness whose keys are looked up each time; NULL: nothing */
    int begin;
} TdSegment;

typedef struct TdArm {
    PyObject **values; /* by node, as they were when all held */
    int n_words, n_segments, n_tensors, n_rest, n_late;
    TdWord *words;
    int *steps; /* by word: the step that wrote it down */
    TdSegment *segments;
    TdTensorRow *tensors;
    int *tensor_steps;
    const void **places; /* of the tensors, in the latest pass; NULL: they are not noted */
    uint64_t placed;     /* another number whenever one of them is another; 0: they are not noted */
    TdStep **rest;       /* what is run as it is */
    const TdStep **late; /* likewise */
} TdArm;

/* guards_outside.c */
int td_outside_add(TdProgram *program, int node);              /* -1: error */
int td_is_outside(const TdOutside *outside, int node);
typedef struct {
    TdOutside *outside; /* what was asked last, or NULL */
    PyObject **own;     /* by node: what came of it */
    int tries;
} TdAsking;
#define TD_ASK 2
/* After a pass that held: 1, what was asked is among the values; TD_ASK: ask, then make another pass; 0; -1: error. */
int td_outside_give(TdProgram *program, TdRun *run, TdAsking *asking);
int td_outside_ask(TdProgram *program, TdRun *run, TdAsking *asking); /* between passes; 1, 0; -1: error */
void td_outside_done(TdAsking *asking);
void td_outside_costs(const TdOutside *outside, int *costs);

/* guards_placed.c */
void td_placed_by(TdProgram *program, PyObject *bound); /* a pass that held gives this to the code; NULL: nothing is known */
void td_places_move(TdArm *arm);

#define TD_AHEAD 16 /* so many rows are fetched into the cache ahead of time */

void td_arm(TdProgram *program);                  /* after a pass in which all held; may do nothing */
int td_arm_room(TdProgram *program, TdArm *arm);  /* guards_armed.c: 0: there is none */
void td_arm_fit(TdArm *arm);
int td_arm_run(TdProgram *program, TdRun *run);   /* 1, 0; -1: run the steps, program->missed is the one that differs */
int td_late_hold(TdProgram *program, const TdRun *run); /* checks of several nodes */

#endif
