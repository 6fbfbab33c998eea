/* A guard program: the guards of one entry as a flat list of steps.
 *
 * Every source is a node; `values` holds what each node was last seen to be, as raw pointers that are only followed
 * after the node's parent was checked in the same call. Nodes come parents first. What hangs below a dict by key, or
 * below a class by attribute, is not walked but witnessed: a `TdBind` remembers the tag under which all its keys led
 * to `values` and all checks that cannot change while the tag stands were true. During a pass no Python code
 * runs and nothing is collected, so the pointers stay good, and no other pass of the program begins. */
#ifndef TORCHDYNAMO_GUARDS_H
#define TORCHDYNAMO_GUARDS_H
#include "compat.h"
#include "numbers.h"
#include "tensor.h"

/* Whether C makes the instances by `object.__new__`. A class that once had a `__new__` in Python goes on to look for one,
 * after that was deleted, too: there `object.__new__` refuses arguments. */
static inline int td_made_plainly(PyTypeObject *cls) { return cls->tp_new == PyBaseObject_Type.tp_new; }

/* What patterns take the instances for: a sequence, a mapping or neither. `register` of an abstract class changes that, and
 * no version of the class tells. */
static inline Py_ssize_t td_collection(PyTypeObject *cls)
{
    return (Py_ssize_t)(cls->tp_flags & (Py_TPFLAGS_SEQUENCE | Py_TPFLAGS_MAPPING));
}

typedef enum {
    /* fetch: set the value of `node` from that of `base` */
    STEP_LOCAL,
    STEP_GLOBALS,
    STEP_BUILTINS,
    STEP_CLOSURE,
    STEP_DICT,
    STEP_ITEM,
    STEP_ATTR,
    STEP_CONTENTS,
    STEP_TYPE,
    STEP_CALL,
    STEP_METHOD,
    STEP_KEYED,
    STEP_SIZE,
    STEP_STRIDE,
    STEP_FIELD,
    STEP_WEAK,
    STEP_KEY_AT,
    STEP_VALUE_AT,
    STEP_ASKED,
    /* witness: see that what hangs below `node` is bound as it was */
    STEP_BIND_DICT,
    STEP_BIND_CLASS,
    /* check the value of `node` */
    CHECK_STATE,
    CHECK_TYPE,
    CHECK_TYPE_WEAK,
    CHECK_IS,
    CHECK_IS_WEAK,
    CHECK_CODE,
    CHECK_EQUAL,
    CHECK_TENSOR,
    CHECK_LENGTH,
    CHECK_PLAIN,
    CHECK_NO_FINALIZER,
    CHECK_SET,
    CHECK_IN_SET,
    CHECK_UNBOUND_LOCAL,
    CHECK_UNBOUND_CELL,
    CHECK_UNBOUND_ATTR,
    CHECK_COLLECTION,
    /* check a dict, or a class */
    CHECK_KEYS,
    CHECK_ORDER,
    CHECK_HAS_KEY,
    CHECK_NO_KEY,
    CHECK_LOOKUP,
    CHECK_LOOKUP_WEAK,
    CHECK_LOOKUP_ABSENT,
    CHECK_PLAIN_MAKER,
    /* check several nodes, when all are fetched */
    CHECK_SAME,
    CHECK_KEYED,
    CHECK_NOT_KEYED,
    CHECK_DISTINCT,
    CHECK_APART,
    CHECK_NUMBERS
} TdOp;

/* A thing to be found in a dict or set. What is there has to be the item itself, or an equal constant of its class; a key
 * that is looked up is found as Python finds it. */
typedef struct {
    PyObject *obj; /* owned; for ITEM_WEAK a weakref */
    Py_hash_t hash; /* of constants, and of keys that are looked up */
    enum { ITEM_EQUAL, ITEM_IS, ITEM_WEAK } how;
    int node; /* where the value found goes, or -1 */
} TdItem;

typedef struct {
    int count;
    TdItem items[];
} TdItems;

struct TdBind;
typedef struct TdOutside TdOutside;

typedef struct {
    TdOp op;
    int node;
    int base;          /* the node a fetch reads from; the other node of CHECK_SAME and CHECK_(NOT_)KEYED */
    int check;         /* which of the caller's checks this is; -1: a fetch */
    Py_ssize_t number; /* slot, position or length; the node of the key of STEP_KEYED, of the descriptor of STEP_FIELD */
    PyObject *obj;     /* owned */
    union {
        TdItems *items;
        TdTensorMeta *tensor;
        TdState *state;
        TdNumbers *numbers;
        int *nodes; /* `number` of them; for CHECK_APART marks, see td_tensors_apart */
        struct TdBind *bind;
        Py_ssize_t place; /* where STEP_KEYED found its key last */
    } u;
} TdStep;

typedef struct {
    int count, room;
    TdStep *steps;
} TdSteps;

typedef struct {
    PyObject *box; /* raw: the dict or class last seen */
    uint64_t tag;  /* its tag then; 0: none */
} TdSeen;

typedef struct TdBind {
    char lasts;     /* what its keys lead to stays as long as the tag does */
    TdSeen seen[2]; /* in a pass over all steps, in one of the armed program: each has values of its own */
    TdItems *keys;
    TdSteps checks; /* what holds as long as the tag does */
} TdBind;

typedef struct {
    PyObject_HEAD
    int n_nodes, n_bound, n_temps;
    int n_slots;        /* fast locals that are arguments */
    PyObject **values;  /* raw, one for each node, of a pass; constants owned through `nodes` */
    char *is_constant;  /* by node */
    struct TdArm *arm;  /* what is compared instead of running the steps, or NULL; see guards_arm.c */
    TdOutside *outside; /* what only other code can tell, or NULL; see guards_outside.c */
    int patience;       /* so many passes until it is armed; -1: never */
    int missed;         /* the step at which an armed pass differed last */
    unsigned char *benign; /* by step: how often it differed, and all held */
    int *bound;         /* nodes whose values the code is given */
    TdSteps steps;      /* in order: fetches, witnesses, checks */
    TdSteps late;       /* checks of several nodes */
    int failed_node;    /* where the last check that failed did, for messages */
    int failed_check;
    struct TdReject *reject; /* the check that failed last, and the way there, or NULL; see guards_reject.c */
    PyObject *spec;     /* (nodes, checks, bound) as given, for describe() */
    PyObject *guards;   /* what Python wants to remember with it */
    PyObject *varnames; /* of the code, which owns the program and is not held */
    PyObject *freevars;
} TdProgram;

/* guards_build.c */
int td_program_build(TdProgram *program, PyObject *nodes, PyObject *checks, PyObject *bound);

/* guards_steps.c: NULL or -1 with an error set when it cannot */
TdStep *td_step_add(TdSteps *steps, TdOp op, int node);
TdItems *td_items_new(int count);
TdItems *td_items_from(PyObject *tuple); /* of pairs: how to find it, the item */
TdItems *td_items_key(PyObject *pair);
int td_item_set(TdItem *item, PyObject *obj, int node);
void td_steps_clear(TdSteps *steps);
int td_steps_visit(TdSteps *steps, visitproc visit, void *arg);

/* guards_run.c: 1 holds, 0 does not, -1 error */
int td_program_run(TdProgram *program, PyObject *const *slots, PyObject *globals, PyObject *builtins,
                   PyObject *closure, PyObject **bound);

/* guards_outside.c */
void td_outside_free(TdOutside *outside);

/* guards_placed.c */
void td_placed_forget(const TdProgram *program);

/* guards_armed.c */
void td_disarm(TdProgram *program);
void td_costs(TdProgram *program, int *costs); /* by the caller's checks, zero at first */

/* guards_reject.c */
void td_reject_note(TdProgram *program, const TdStep *check); /* it failed */

/* guards_match.c: none of these runs Python code or sets an error */
int td_is_constant(PyObject *obj);
int td_constant_equal(PyObject *constant, PyObject *obj); /* same exact types all through, and equal; floats by bits */
int td_item_is(const TdItem *item, PyObject *obj);
int td_dict_keys_are(PyObject *dict, const TdItems *keys); /* in order of insertion */
int td_ordered_keys_are(PyObject *dict, const TdItems *keys);
int td_set_is(PyObject *set, const TdItems *items);
int td_set_has(PyObject *set, PyObject *obj); /* this very object; asks none */
int td_holds_plain(PyObject *dict); /* numbers, strings and None, and nothing else, and is a dict */
Py_ssize_t td_length(PyObject *obj); /* -1: nothing we can measure */
PyObject *td_item_at(PyObject *obj, Py_ssize_t index); /* borrowed, or NULL */
int td_caches_init(PyObject *module);
PyObject **td_cache_place(PyObject *obj); /* functools.lru_cache's results; NULL: it is no such function */

/* guards_attrs.c. Each gives what is borrowed, or a new reference that it also puts in *temp, or NULL; where other code than
 * ours has to be asked and `leave` is NULL, TD_OUTSIDE. With NULL, an error may be set if that was asked. */
typedef struct {
    int left; /* it was asked */
} TdLeave;
extern char td_outside;
#define TD_OUTSIDE ((PyObject *)&td_outside)
PyObject *td_attr(PyObject *obj, PyObject *name, PyObject **temp, TdLeave *leave); /* a slot, member or getter */
PyObject *td_field(PyObject *obj, PyObject *descriptor, PyObject **temp, TdLeave *leave); /* the same, by the descriptor */
PyObject *td_call(PyObject *fn, PyObject *args, PyObject **temp, TdLeave *leave);
PyObject *td_asked(PyObject *obj, PyObject *fn, PyObject **temp, TdLeave *leave); /* a function in Python */
PyObject *td_method(PyObject *obj, PyObject *name, PyObject **temp, TdLeave *leave); /* written in C */
PyObject **td_attr_place(PyObject *obj, PyObject *name); /* where td_attr finds it, if that is a place that stays */
int td_attr_unbound(PyObject *obj, PyObject *name);
int td_drops_quietly(PyObject *place, PyObject *name);
int td_attrs_init(PyObject *module);

/* guards_keys.c: likewise */
typedef struct {
    PyObject *value; /* borrowed; NULL: the key is not there, or nobody knows */
    char told;       /* it is known whether it is there */
    char lasts;      /* as long as nothing writes to the dict: no class that can be given an `__eq__` has a say */
} TdLookup;
TdLookup td_dict_look_up(PyObject *dict, const TdItem *key);
PyObject *td_dict_find(PyObject *dict, const TdItem *key); /* the value alone */
PyObject *td_dict_find_object(PyObject *dict, PyObject *key, Py_ssize_t *place); /* by identity; borrowed, or NULL */
PyObject *td_dict_at(PyObject *dict, Py_ssize_t position, int of_key); /* a key in order, or what is under it */
int td_dict_lacks_object(PyObject *dict, PyObject *key); /* 1: it is sure not to be a key; ints go by their value. Of a set: not to be in it, by identity */
int td_dict_has_number(PyObject *dict, PyObject *number); /* 1: an int is sure to be a key */
int td_keys_init(PyObject *module);

extern PyTypeObject *td_deque_type;
extern PyTypeObject *td_local_type; /* threading.local */
extern PyObject *td_range_parts[3]; /* start, stop, step */

#endif
