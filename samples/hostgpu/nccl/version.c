#include "version.h"

const int lab_nccl_version = LAB_NCCL_VERSION; /* from the build, one for each library */
