/* What the lab keeps of an ncclConfig_t. */
#ifndef LAB_CONFIG_H
#define LAB_CONFIG_H

#include "compat.h"

#include <stdbool.h>

#define LAB_NAME_MAX 128

struct lab_config {
    bool nonblocking;
    char name[LAB_NAME_MAX]; /* "" if the communicator has none; longer names are cut */
};

/* Reads as much of `from` as the caller's struct and the release that the library speaks as both have. NULL
 * means `inherited`, and NULL there the defaults. ncclInvalidArgument for a struct that was not initialised.
 */
ncclResult_t lab_config_read(const ncclConfig_t *from, const struct lab_config *inherited,
                             struct lab_config *to);

/* Checks the configuration of a single call, NULL being none, and takes from it the event to record (NULL if
 * there is none). */
ncclResult_t lab_coll_config_read(const ncclCollConfig_t *from, cudaEvent_t *event, const char *name);

#endif
