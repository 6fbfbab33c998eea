/* What tensor.cpp does for the guards, in plain C: nothing of torch shows here. */
#ifndef TORCHDYNAMO_TENSOR_H
#define TORCHDYNAMO_TENSOR_H
#include "native.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PyArg_ParseTuple for what need not be a tuple. */
#define TD_PARSE(obj, ...)                                                                                             \
    (PyTuple_Check(obj) ? PyArg_ParseTuple(obj, __VA_ARGS__)                                                           \
                        : (PyErr_SetString(PyExc_TypeError, "expected a tuple"), 0))

typedef struct TdTensorMeta TdTensorMeta;
typedef struct TdState TdState;

/* A tensor that is where it was. */
typedef struct {
    const TdTensorMeta *meta;
    PyObject *obj;
    const void *impl, *grad_fn, *requires_grad, *storage; /* where these were when it was seen; only to ask for them early */
} TdTensorRow;

#ifndef TD_HOOK_ONLY

/* From the tuple `_native.tensor_meta(t)` gives (None in sizes or strides: any). NULL with an error set if it is none. */
TdTensorMeta *td_tensor_meta_new(PyObject *spec);
TdTensorMeta *td_tensor_meta_share(TdTensorMeta *meta); /* the same, to be freed once more */
void td_tensor_meta_free(TdTensorMeta *meta);
int td_tensor_matches(const TdTensorMeta *meta, PyObject *obj);
void td_tensor_row(TdTensorRow *row, const TdTensorMeta *meta, PyObject *tensor);
int td_tensor_meta_says_all(const TdTensorMeta *meta, PyObject *tensor); /* what matches is laid out like that tensor */
uint64_t td_tensor_meta_look(const TdTensorMeta *meta); /* td_look_of() all that match, or 0: they differ */
/* -1: all; else which does not; some rows must follow the last. `places`, by row, or NULL: where they lie, which is brought
 * up to date; *moved: one was different. */
int td_tensors_match(const TdTensorRow *rows, int count, const void **places, int *moved);

/* From (bytes, modes) as `_native.global_state()` gives. */
TdState *td_state_new(PyObject *spec);
void td_state_free(TdState *state);
int td_state_holds(const TdState *state);
int td_is_tracing(void); /* torch.jit.trace is at work in this thread */

int td_is_tensor(PyObject *obj);
uint64_t td_tensor_look(PyObject *tensor); /* a number made of dtype, sizes and the like */
/* A tensor's attribute or what it holds, as torch has it in memory: a new reference, or NULL (no error set) where it
 * cannot be read. No other code runs. */
PyObject *td_tensor_attr(PyObject *tensor, PyObject *name, int *known); /* *known: by this name it is read here */
PyObject *td_tensor_read(PyObject *tensor, PyObject *method);           /* what the method says without arguments */
/* Of any other getter or method of a plain tensor, written in C: it may run other code, or let other threads run. NULL
 * with an error, or without where there is none that can be asked safely. */
PyObject *td_tensor_getter(PyObject *tensor, PyObject *name);
PyObject *td_tensor_call(PyObject *tensor, PyObject *name);
/* 1 when no tensor that is written to shares a byte of storage with another. Each mark is twice the place of a tensor
 * among the values, and one more if it is written to; they come back in the order the tensors have in memory. */
int td_tensors_apart(PyObject *const *values, int *marks, Py_ssize_t count);
/* torch.device, whose objects are equal by value; comparing two runs no Python. */
int td_is_device(PyObject *obj);
int td_is_size(PyObject *obj); /* torch.Size */

/* A tensor's size (1) or stride (2) in a dimension; 0 where the object is no tensor that has it. */
int td_measure(PyObject *obj, int kind, Py_ssize_t dim, int64_t *answer);

/* Whether a profiler of torch listens in this thread, and a range in what it records. */
int td_is_profiled(void);
void *td_range_begin(const char *name);
void td_range_end(void *range);

#else /* built without torch: no tensors exist */

static inline int td_is_profiled(void) { return 0; }
static inline void *td_range_begin(const char *name) { return NULL; }
static inline void td_range_end(void *range) {}

static inline TdTensorMeta *td_tensor_meta_new(PyObject *spec)
{
    PyErr_SetString(PyExc_RuntimeError, "built without torch");
    return NULL;
}
static inline TdTensorMeta *td_tensor_meta_share(TdTensorMeta *meta) { return meta; }
static inline void td_tensor_meta_free(TdTensorMeta *meta) {}
static inline int td_tensor_matches(const TdTensorMeta *meta, PyObject *obj) { return 0; }
static inline uint64_t td_tensor_meta_look(const TdTensorMeta *meta) { return 0; }
static inline const void *td_tensor_impl(PyObject *tensor) { return NULL; }
static inline void td_tensor_row(TdTensorRow *row, const TdTensorMeta *meta, PyObject *tensor) {}
static inline int td_tensor_meta_says_all(const TdTensorMeta *meta, PyObject *tensor) { return 0; }
static inline int td_tensors_match(const TdTensorRow *rows, int count, const void **places, int *moved)
{
    return count > 0 ? 0 : -1;
}
static inline TdState *td_state_new(PyObject *spec)
{
    PyErr_SetString(PyExc_RuntimeError, "built without torch");
    return NULL;
}
static inline void td_state_free(TdState *state) {}
static inline int td_state_holds(const TdState *state) { return 0; }
static inline int td_is_tracing(void) { return 0; }
static inline int td_is_tensor(PyObject *obj) { return 0; }
static inline uint64_t td_tensor_look(PyObject *tensor) { return 0; }
static inline PyObject *td_tensor_attr(PyObject *tensor, PyObject *name, int *known) { return *known = 1, NULL; }
static inline PyObject *td_tensor_read(PyObject *tensor, PyObject *method) { return NULL; }
static inline PyObject *td_tensor_getter(PyObject *tensor, PyObject *name) { return NULL; }
static inline PyObject *td_tensor_call(PyObject *tensor, PyObject *name) { return NULL; }
static inline int td_tensors_apart(PyObject *const *values, int *marks, Py_ssize_t count) { return 0; }
static inline int td_measure(PyObject *obj, int kind, Py_ssize_t dim, int64_t *answer) { return 0; }
static inline int td_is_device(PyObject *obj) { return 0; }
static inline int td_is_size(PyObject *obj) { return 0; }

#endif

#ifdef __cplusplus
}
#endif
#endif
