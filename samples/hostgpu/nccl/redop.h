/* Reduction operators. */
#ifndef LAB_REDOP_H
#define LAB_REDOP_H

#include "comm.h"

/* Checks the operator for this communicator and datatype and copies it. */
ncclResult_t lab_redop_resolve(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t type, struct lab_redop *out,
                               const char *name);

#endif
