/* What the files of the extension promise each other. */
#ifndef TORCHDYNAMO_NATIVE_H
#define TORCHDYNAMO_NATIVE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A frame about to run its first instruction: fast locals in place (arguments raw, cells not made yet), all borrowed. */
#define TD_VIEW_ROOM 16
typedef struct {
    PyObject **localsplus;
    PyObject *room[TD_VIEW_ROOM]; /* for the locals of a frame that has them in another form */
    PyObject *globals;
    PyObject *builtins;
    PyObject *func; /* PyFunctionObject; its closure holds the free variables' cells */
    PyCodeObject *code;
} TdFrame;

int td_hook_init(PyObject *module);         /* hook.c: the eval hook, entries, callables */
int td_guards_init(PyObject *module);       /* guards.c: GuardProgram */
int td_tensor_init(PyObject *module);       /* tensor.cpp: packed tensor metadata */
int td_aliasing_init(PyObject *module);     /* aliasing.cpp: whether tensors share memory */
int td_versions_init(PyObject *module);     /* versions.cpp: whether tensors are what and where they were */
int td_global_state_init(PyObject *module); /* global_state.cpp: what decides what operators do */
int td_kernels_init(PyObject *module);      /* kernels.cpp: what compiled kernels need of torch */
int td_recordings_init(PyObject *module);   /* recordings.cpp: inputs and results of CUDA graphs */
int td_replay_init(PyObject *module);       /* replay.cpp: replaying one */
int td_replays_init(PyObject *module);      /* replays.cpp: choosing which, in one call */

extern PyTypeObject *TdGuardProgram_Type;

/* Where the tensors lie that guards have just looked at, so that a graph need not look again. guards_placed.c */
typedef struct {
    PyObject *const *from; /* of the arguments of a graph that is called, those from here on; NULL: none */
    uint64_t places;       /* one number for all their addresses and layouts; 0: nobody notes them */
} TdPlaced;

void td_placed_spread(PyObject *bound, PyObject *const *from); /* what guards gave is passed on, from there; NULL: no more */
TdPlaced td_placed(PyObject *const *args, Py_ssize_t nargs);  /* of arguments just passed, if no other thread ran since */
void td_placed_wanted(PyObject *const *args, Py_ssize_t nargs); /* addresses of these are noted from the next call on */

/* 1: the guards hold and *bound is a new tuple of what the code needs (or NULL when it needs nothing);
 * 0: they do not; -1: a Python error is set. Runs no user code, but where it asks a getter or the like. */
int td_program_check(PyObject *program, const TdFrame *frame, PyObject **bound);
int td_program_asks(PyObject *program); /* 1: it does, so anything may have happened meanwhile */

/* What was found in the frame for the program before, for the next; all zero at first. */
typedef struct {
    uint64_t path, look;
    PyObject *value; /* borrowed */
    uint64_t wanted; /* the look that the last program to say no has its check by; 0: that has none */
} TdAsked;

/* 1: what failed last time fails again, which is quickly seen. */
int td_program_rejects(PyObject *program, const TdFrame *frame, TdAsked *asked);

/* dispatch.c: a number that says something of an object, without running or keeping anything. */
uint64_t td_look_of(PyObject *obj);
uint64_t td_look_as(PyTypeObject *type, uint64_t part); /* the same, of an object of the type and what it holds */

#ifdef __cplusplus
}
#endif
#endif
