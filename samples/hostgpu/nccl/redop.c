#include "redop.h"

#include "export.h"
#include "reduce.h"

#include <stdlib.h>
#include <string.h>

static ncclResult_t find_user_redop(ncclComm_t c, ncclRedOp_t op, ncclDataType_t type, struct lab_redop *out,
                                    const char *name)
{
    int index = (int)op - (int)ncclNumOps;
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&c->lock);
    if (index >= c->redop_count || !c->redops[index].used)
        result = lab_error(ncclInvalidArgument, "%s : user redop %d is unknown to this communicator", name,
                           (int)op);
    else if (c->redops[index].datatype != type)
        result = lab_error(ncclInvalidArgument, "%s : user redop %d has another datatype", name, (int)op);
    else
        *out = c->redops[index].redop;
    pthread_mutex_unlock(&c->lock);
    return result;
}

ncclResult_t lab_redop_resolve(ncclComm_t c, ncclRedOp_t op, ncclDataType_t type, struct lab_redop *out,
                               const char *name)
{
    if ((int)op < 0 || op > ncclMaxRedOp)
        return lab_error(ncclInvalidArgument, "%s : invalid reduction operation %d", name, (int)op);
    if (op >= ncclNumOps)
        return find_user_redop(c, op, type, out, name);
    *out = (struct lab_redop){.fold = op};
    return ncclSuccess;
}

/* Index of a free slot, the table grown if need be; -1 without memory. Lock held. */
static int free_slot(ncclComm_t c)
{
    for (int i = 0; i < c->redop_count; i++)
        if (!c->redops[i].used)
            return i;
    int count = c->redop_count ? c->redop_count * 2 : 4;
    struct lab_user_redop *grown = realloc(c->redops, (size_t)count * sizeof *grown);
    if (!grown)
        return -1;
    memset(grown + c->redop_count, 0, (size_t)(count - c->redop_count) * sizeof *grown);
    c->redops = grown;
    int slot = c->redop_count;
    c->redop_count = count;
    return slot;
}

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                       ncclScalarResidence_t residence, ncclComm_t c)
{
    const char *name = "ncclRedOpCreatePreMulSum";
    ncclResult_t result = lab_comm_check(c, name);
    if (result != ncclSuccess)
        return result;
    if (!op || !scalar || !lab_type_size(type))
        return lab_error(ncclInvalidArgument, "%s : op or scalar is NULL, or no such datatype", name);
    struct lab_user_redop made = {true, type, {.fold = ncclSum, .premultiply = true}};
    if (residence == ncclScalarHostImmediate)
        memcpy(made.redop.scalar, scalar, lab_type_size(type));
    else
        made.redop.device_scalar = scalar;
    pthread_mutex_lock(&c->lock);
    int slot = free_slot(c);
    if (slot >= 0) {
        c->redops[slot] = made;
        *op = (ncclRedOp_t)(ncclNumOps + slot);
    }
    pthread_mutex_unlock(&c->lock);
    return slot >= 0 ? ncclSuccess : lab_error(ncclSystemError, "%s : no memory", name);
}
LAB_EXPORT(ncclRedOpCreatePreMulSum);

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c)
{
    ncclResult_t result = lab_comm_check(c, "ncclRedOpDestroy");
    if (result != ncclSuccess)
        return result;
    int index = (int)op - (int)ncclNumOps;
    pthread_mutex_lock(&c->lock);
    bool found = index >= 0 && index < c->redop_count && c->redops[index].used;
    if (found)
        c->redops[index].used = false;
    pthread_mutex_unlock(&c->lock);
    return found ? ncclSuccess
                 : lab_error(ncclInvalidArgument, "ncclRedOpDestroy : operator %d is not one to destroy",
                             (int)op);
}
LAB_EXPORT(ncclRedOpDestroy);
