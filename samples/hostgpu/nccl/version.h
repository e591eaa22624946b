/* The release that this libnccl speaks as. All libraries are made of the same code; symbols.txt says which
 * functions a release exports, and what else depends on it asks here. */
#ifndef LAB_VERSION_H
#define LAB_VERSION_H

/* As ncclGetVersion tells it: 21801 is 2.18.1. */
extern const int lab_nccl_version;

#endif
