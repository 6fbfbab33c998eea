/* What the files that make a guard program share. */
#ifndef TORCHDYNAMO_GUARDS_BUILD_H
#define TORCHDYNAMO_GUARDS_BUILD_H
#include "guards.h"

typedef struct {
    TdProgram *program;
    PyObject *nodes;      /* ((how, parent, arg), ...), depth first */
    PyObject *checks;     /* ((node, op, payload), ...) */
    int *parents;         /* by node; -1: a root */
    int *first, *next;    /* children: by node; by sibling */
    int *asked, *another; /* checks: by node (0: of the frame itself), by check */
    TdBind **binds;       /* by node; owned by the step that has them */
    PyObject *metas;      /* spec of a tensor -> address of what was made of it */
    char *is_bound;       /* by node: its value comes from its parent's witness */
} TdBuilder;

/* All of these set an error and return -1 when they cannot. */
int td_fault(const char *what, PyObject *detail); /* ValueError */
int td_find_slot(TdProgram *program, PyObject *name);
int td_find_cell(TdProgram *program, PyObject *name);
int td_check_parse(TdBuilder *b, int index, int *node, TdOp *op, PyObject **payload);
int td_checks_add(TdBuilder *b, int node); /* all checks of a node; -1: those of the frame itself */

static inline int td_of_container(TdOp op) { return op >= CHECK_KEYS && op <= CHECK_PLAIN_MAKER; }
static inline int td_of_class(TdOp op) { return op >= CHECK_LOOKUP && op <= CHECK_PLAIN_MAKER; }

#endif
