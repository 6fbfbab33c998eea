/* Runs programs over numbers: a stack of integers and doubles, with Python's arithmetic. */
#include "numbers.h"
#include <math.h>

enum { AN_INT, A_SIZE, A_STRIDE, A_FLOAT };

/* The order is that of OPERATIONS in core/number_programs.py. */
typedef enum {
    OP_LOAD, OP_INT, OP_FLOAT,
    OP_ADD, OP_MUL, OP_FLOORDIV, OP_MOD, OP_POW, OP_MIN, OP_MAX,
    OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_AND, OP_OR,
    OP_NOT, OP_ABS, OP_TO_FLOAT, OP_TRUEDIV, OP_TRUNC, OP_FLOOR, OP_CEIL, OP_WHERE, OP_ROUND,
    OP_SQRT, OP_EXP, OP_EXPM1, OP_LOG, OP_LOG1P, OP_LOG2, OP_LOG10, OP_COS, OP_SIN, OP_TAN, OP_ACOS, OP_ASIN, OP_ATAN,
    OP_COSH, OP_SINH, OP_TANH,
    OP_COUNT
} Op;

/* The functions of Python's math module that are the C library's, from OP_SQRT on. */
static double (*const FUNCTIONS[])(double) = {sqrt, exp,  expm1, log,  log1p, log2, log10, cos,
                                              sin,  tan,  acos,  asin, atan,  cosh, sinh,  tanh};

typedef struct {
    Op op;
    int64_t number; /* of OP_INT; the input of OP_LOAD */
    double real;    /* of OP_FLOAT */
} Instruction;

typedef struct {
    int is_float;
    int64_t i;
    double d;
} Value;

typedef struct {
    int kind, node;
    Py_ssize_t dim;
} Input;

/* An integer among the inputs against another, or (right < 0) against a constant: what nearly all programs are. */
typedef struct {
    Op op;
    int left, right;
    int64_t number;
} Comparison;

struct TdNumbers {
    Py_ssize_t n_inputs, n_comparisons, n_programs, depth; /* n_programs: of the others */
    Input *inputs;
    Comparison *comparisons;
    Py_ssize_t *starts; /* where each program begins; one more for the end */
    Instruction *code;
};

static int takes(Op op) { return op <= OP_FLOAT ? 0 : op == OP_WHERE ? 3 : op <= OP_OR || op == OP_TRUEDIV ? 2 : 1; }

void td_numbers_free(TdNumbers *numbers)
{
    if (numbers == NULL)
        return;
    PyMem_Free(numbers->inputs);
    PyMem_Free(numbers->comparisons);
    PyMem_Free(numbers->starts);
    PyMem_Free(numbers->code);
    PyMem_Free(numbers);
}

static int fault(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

static int read_inputs(TdNumbers *numbers, PyObject *inputs, int n_nodes)
{
    for (Py_ssize_t i = 0; i < numbers->n_inputs; i++) {
        Input *input = &numbers->inputs[i];
        if (!TD_PARSE(PyTuple_GET_ITEM(inputs, i), "iin", &input->kind, &input->node, &input->dim))
            return -1;
        if (input->kind < 0 || input->kind > 3 || input->node < 0 || input->node >= n_nodes)
            return fault("no such number");
    }
    return 0;
}

static int read_instruction(TdNumbers *numbers, Instruction *made, PyObject *pair, Py_ssize_t *depth)
{
    int op;
    PyObject *operand;
    if (!TD_PARSE(pair, "iO", &op, &operand))
        return -1;
    if (op < 0 || op >= OP_COUNT || *depth < takes(op))
        return fault("no such operation, or too few operands");
    made->op = op;
    if (op == OP_FLOAT)
        made->real = PyFloat_AsDouble(operand);
    else if (op == OP_LOAD || op == OP_INT)
        made->number = PyLong_AsLongLong(operand);
    if (PyErr_Occurred())
        return -1;
    if (op == OP_LOAD && (made->number < 0 || made->number >= numbers->n_inputs))
        return fault("no such input");
    *depth += 1 - takes(op);
    if (*depth > numbers->depth)
        numbers->depth = *depth;
    return 0;
}

static int is_integer(const TdNumbers *numbers, const Instruction *at)
{
    return at->op == OP_INT || (at->op == OP_LOAD && numbers->inputs[at->number].kind != A_FLOAT);
}

/* 1: the program is one, and is noted as one. */
static int note_comparison(TdNumbers *numbers, const Instruction *at, Py_ssize_t length)
{
    if (length != 3 || at[0].op != OP_LOAD || !is_integer(numbers, &at[0]) || !is_integer(numbers, &at[1]) ||
        at[2].op < OP_EQ || at[2].op > OP_GE)
        return 0;
    int right = at[1].op == OP_LOAD ? (int)at[1].number : -1;
    numbers->comparisons[numbers->n_comparisons++] =
        (Comparison){at[2].op, (int)at[0].number, right, at[1].number};
    return 1;
}

static int read_programs(TdNumbers *numbers, PyObject *programs)
{
    Py_ssize_t next = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(programs); i++) {
        PyObject *program = PyTuple_GET_ITEM(programs, i);
        Py_ssize_t depth = 0, length = PyTuple_GET_SIZE(program);
        for (Py_ssize_t j = 0; j < length; j++)
            if (read_instruction(numbers, &numbers->code[next + j], PyTuple_GET_ITEM(program, j), &depth) < 0)
                return -1;
        if (depth != 1)
            return fault("a program must leave one answer");
        if (note_comparison(numbers, numbers->code + next, length))
            continue;
        numbers->starts[numbers->n_programs++] = next;
        next += length;
    }
    numbers->starts[numbers->n_programs] = next;
    return 0;
}

TdNumbers *td_numbers_new(PyObject *payload, int n_nodes)
{
    PyObject *inputs, *programs;
    if (!TD_PARSE(payload, "O!O!", &PyTuple_Type, &inputs, &PyTuple_Type, &programs))
        return NULL;
    Py_ssize_t size = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(programs); i++) {
        if (!PyTuple_Check(PyTuple_GET_ITEM(programs, i))) {
            PyErr_SetString(PyExc_TypeError, "a program is a tuple");
            return NULL;
        }
        size += PyTuple_GET_SIZE(PyTuple_GET_ITEM(programs, i));
    }
    TdNumbers *numbers = PyMem_Calloc(1, sizeof(TdNumbers));
    if (numbers == NULL)
        return (TdNumbers *)PyErr_NoMemory();
    numbers->n_inputs = PyTuple_GET_SIZE(inputs);
    numbers->inputs = PyMem_Calloc(numbers->n_inputs + 1, sizeof(Input));
    numbers->comparisons = PyMem_Calloc(PyTuple_GET_SIZE(programs) + 1, sizeof(Comparison));
    numbers->starts = PyMem_Calloc(PyTuple_GET_SIZE(programs) + 1, sizeof(Py_ssize_t));
    numbers->code = PyMem_Calloc(size, sizeof(Instruction));
    if (numbers->inputs == NULL || numbers->comparisons == NULL || numbers->starts == NULL || numbers->code == NULL)
        PyErr_NoMemory();
    else if (read_inputs(numbers, inputs, n_nodes) == 0 && read_programs(numbers, programs) == 0)
        return numbers;
    td_numbers_free(numbers);
    return NULL;
}

/* ---- Arithmetic -------------------------------------------------------------------------------------------------- */

static Value of_int(int64_t i) { return (Value){0, i, 0.0}; }
static Value of_float(double d) { return (Value){1, 0, d}; }
static double as_float(Value v) { return v.is_float ? v.d : (double)v.i; }
static int truth(Value v) { return v.is_float ? v.d != 0.0 : v.i != 0; }

/* As Python has it: the quotient is rounded down, the remainder has the divisor's sign. 0: no such number. */
static int divide(int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    if (b == 0 || (a == INT64_MIN && b == -1))
        return 0;
    *quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        *quotient -= 1;
        *rest += b;
    }
    return 1;
}

static int power(int64_t base, int64_t exponent, int64_t *answer)
{
    *answer = 1;
    if (exponent < 0 || exponent > 64)
        return 0;
    while (exponent-- > 0)
        if (__builtin_mul_overflow(*answer, base, answer))
            return 0;
    return 1;
}

static int compare(Op op, Value a, Value b)
{
    int less = a.is_float || b.is_float ? as_float(a) < as_float(b) : a.i < b.i;
    int equal = a.is_float || b.is_float ? as_float(a) == as_float(b) : a.i == b.i;
    switch (op) {
    case OP_EQ: return equal;
    case OP_NE: return !equal;
    case OP_LT: return less;
    case OP_LE: return less || equal;
    case OP_GT: return a.is_float || b.is_float ? as_float(a) > as_float(b) : !less && !equal;
    default: return a.is_float || b.is_float ? as_float(a) >= as_float(b) : !less;
    }
}

/* 0: the answer is no 64-bit number. */
static int to_int(double d, Value *answer)
{
    if (!(d > -9.2e18 && d < 9.2e18))
        return 0;
    *answer = of_int((int64_t)d);
    return 1;
}

static int unary(Op op, Value a, Value *answer)
{
    switch (op) {
    case OP_NOT: *answer = of_int(!truth(a)); return 1;
    case OP_ABS:
        if (!a.is_float && a.i == INT64_MIN)
            return 0;
        *answer = a.is_float ? of_float(fabs(a.d)) : of_int(a.i < 0 ? -a.i : a.i);
        return 1;
    case OP_TO_FLOAT: *answer = of_float(as_float(a)); return 1;
    case OP_TRUNC: return a.is_float ? to_int(trunc(a.d), answer) : (*answer = a, 1);
    case OP_ROUND: return a.is_float ? to_int(rint(a.d), answer) : (*answer = a, 1); /* halves to even ones */
    case OP_FLOOR: return a.is_float ? to_int(floor(a.d), answer) : (*answer = a, 1);
    case OP_CEIL: return a.is_float ? to_int(ceil(a.d), answer) : (*answer = a, 1);
    default: /* where Python raises an error, C gives infinity or nan */
        *answer = of_float(FUNCTIONS[op - OP_SQRT](as_float(a)));
        return isfinite(answer->d);
    }
}

/* As in CPython's floatobject.c. 0: the divisor is zero. */
static int divide_floats(Op op, double a, double b, Value *answer)
{
    if (b == 0.0)
        return 0;
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest == 0.0)
        rest = copysign(0.0, b);
    else if ((b < 0) != (rest < 0)) {
        rest += b;
        quotient -= 1.0;
    }
    double whole = quotient == 0.0 ? copysign(0.0, a / b) : floor(quotient);
    if (quotient != 0.0 && quotient - whole > 0.5)
        whole += 1.0;
    *answer = of_float(op == OP_MOD ? rest : whole);
    return 1;
}

static int exact(int64_t i) { return i > -(1ll << 53) && i < (1ll << 53); }

static int binary(Op op, Value a, Value b, Value *answer)
{
    int64_t quotient, rest;
    int floats = a.is_float || b.is_float;
    switch (op) {
    case OP_ADD:
        *answer = floats ? of_float(as_float(a) + as_float(b)) : of_int(0);
        return floats || !__builtin_add_overflow(a.i, b.i, &answer->i);
    case OP_MUL:
        *answer = floats ? of_float(as_float(a) * as_float(b)) : of_int(0);
        return floats || !__builtin_mul_overflow(a.i, b.i, &answer->i);
    case OP_FLOORDIV:
    case OP_MOD:
        if (floats)
            return divide_floats(op, as_float(a), as_float(b), answer);
        if (!divide(a.i, b.i, &quotient, &rest))
            return 0;
        *answer = of_int(op == OP_MOD ? rest : quotient);
        return 1;
    case OP_POW: /* of a float, where Python's is the C library's too */
        if (floats) {
            *answer = of_float(a.is_float && a.d > 0.0 ? pow(a.d, as_float(b)) : NAN);
            return isfinite(answer->d);
        }
        *answer = of_int(0);
        return power(a.i, b.i, &answer->i);
    case OP_TRUEDIV: /* of larger integers Python rounds once, this twice */
        if (as_float(b) == 0.0 || (!a.is_float && !exact(a.i)) || (!b.is_float && !exact(b.i)))
            return 0;
        *answer = of_float(as_float(a) / as_float(b));
        return 1;
    case OP_MIN: *answer = compare(OP_LT, b, a) ? b : a; return 1;
    case OP_MAX: *answer = compare(OP_GT, b, a) ? b : a; return 1;
    case OP_AND: *answer = of_int(truth(a) && truth(b)); return 1;
    case OP_OR: *answer = of_int(truth(a) || truth(b)); return 1;
    default: *answer = of_int(compare(op, a, b)); return 1;
    }
}

static int run(const Instruction *at, const Instruction *end, const Value *inputs, Value *stack)
{
    Value *top = stack; /* one above the uppermost */
    for (; at < end; at++) {
        int wanted = takes(at->op);
        Value *first = top - wanted, answer;
        if (at->op == OP_LOAD)
            answer = inputs[at->number];
        else if (at->op == OP_INT)
            answer = of_int(at->number);
        else if (at->op == OP_FLOAT)
            answer = of_float(at->real);
        else if (wanted == 3)
            answer = truth(first[0]) ? first[1] : first[2];
        else if (!(wanted == 2 ? binary(at->op, first[0], first[1], &answer) : unary(at->op, first[0], &answer)))
            return 0;
        *first = answer;
        top = first + 1;
    }
    return truth(stack[0]);
}

static int compares(const Comparison *each, const Value *inputs)
{
    int64_t a = inputs[each->left].i, b = each->right < 0 ? each->number : inputs[each->right].i;
    switch (each->op) {
    case OP_EQ: return a == b;
    case OP_NE: return a != b;
    case OP_LT: return a < b;
    case OP_LE: return a <= b;
    case OP_GT: return a > b;
    default: return a >= b;
    }
}

static int read_number(const Input *input, PyObject *obj, Value *answer)
{
    int overflow = 0;
    if (input->kind == A_FLOAT) {
        *answer = of_float(PyFloat_CheckExact(obj) ? PyFloat_AS_DOUBLE(obj) : 0.0);
        return PyFloat_CheckExact(obj);
    }
    *answer = of_int(0);
    if (input->kind != AN_INT)
        return td_measure(obj, input->kind, input->dim, &answer->i);
    if (!PyLong_CheckExact(obj))
        return 0;
    answer->i = PyLong_AsLongLongAndOverflow(obj, &overflow);
    return !overflow;
}

int td_numbers_hold(const TdNumbers *numbers, PyObject *const *values)
{
    enum { ROOM = 32 };
    Value small_inputs[ROOM], *inputs = small_inputs;
    Value small_stack[ROOM], *stack = small_stack;
    if (numbers->n_inputs > ROOM)
        inputs = PyMem_Malloc(numbers->n_inputs * sizeof(Value));
    if (numbers->depth > ROOM)
        stack = PyMem_Malloc(numbers->depth * sizeof(Value));
    int holds = inputs != NULL && stack != NULL;
    for (Py_ssize_t i = 0; holds && i < numbers->n_inputs; i++) {
        const Input *input = &numbers->inputs[i];
        holds = read_number(input, values[input->node], &inputs[i]);
    }
    for (Py_ssize_t i = 0; holds && i < numbers->n_comparisons; i++)
        holds = compares(&numbers->comparisons[i], inputs);
    for (Py_ssize_t i = 0; holds && i < numbers->n_programs; i++)
        holds = run(numbers->code + numbers->starts[i], numbers->code + numbers->starts[i + 1], inputs, stack);
    if (inputs != small_inputs)
        PyMem_Free(inputs);
    if (stack != small_stack)
        PyMem_Free(stack);
    return holds;
}
