/* As in the real library, ncclX is a weak alias of the strong pncclX, and calls inside the library to a
 * public ncclX go through the dynamic linker, where a preloaded library can see them. */
#ifndef LAB_EXPORT_H
#define LAB_EXPORT_H

#include "compat.h"

#define LAB_EXPORT(name) __typeof__(p##name) name __attribute__((weak, alias("p" #name)))

/* nccl.h declares these without a prototype, and since 2.30 the last is a macro there. */
#undef ncclResetDebugInit
#undef pncclResetDebugInit
ncclResult_t pncclGroupStart(void);
ncclResult_t pncclGroupEnd(void);
void ncclResetDebugInit(void);
void pncclResetDebugInit(void);

#endif
