/* Facts about numbers that vary: small programs over integers and tensors' sizes. */
#ifndef TORCHDYNAMO_NUMBERS_H
#define TORCHDYNAMO_NUMBERS_H
#include "tensor.h"

typedef struct TdNumbers TdNumbers;

/* From (inputs, programs). An input is (kind, node, dim): 0 an int object, 1 a tensor's size, 2 its stride. A program
   is a tuple of (operation, operand) in postfix order; each must come out true. NULL with an error set if it is none. */
TdNumbers *td_numbers_new(PyObject *payload, int n_nodes);
void td_numbers_free(TdNumbers *numbers);
/* `values`: the objects at the nodes. 0 where one is not such a number, or the arithmetic leaves 64 bits. */
int td_numbers_hold(const TdNumbers *numbers, PyObject *const *values);

#endif
