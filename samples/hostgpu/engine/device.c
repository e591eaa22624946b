#include "stream.h"

static struct hg_device devices[HG_MAX_DEVICES];
static int device_count;
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;
static _Thread_local int current_device;

static void make_devices(void)
{
    unsigned long count = hg_number_from_environment("HOSTGPU_DEVICES", 8);
    device_count = count < 1 ? 1 : count > HG_MAX_DEVICES ? HG_MAX_DEVICES : (int)count;
    for (int i = 0; i < device_count; i++) {
        devices[i].index = i;
        pthread_mutex_init(&devices[i].lock, NULL);
    }
}

int hg_device_count(void)
{
    pthread_once(&devices_once, make_devices);
    return device_count;
}

struct hg_device *hg_device_get(int index)
{
    return index >= 0 && index < hg_device_count() ? &devices[index] : NULL;
}

int hg_current_device(void)
{
    return current_device;
}

CUresult hg_set_current_device(int device)
{
    if (!hg_device_get(device))
        return CUDA_ERROR_INVALID_DEVICE;
    current_device = device;
    return CUDA_SUCCESS;
}

/* What programs ask before they use a feature. Anything else is 0: not there. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    /* The older numbers of the same two, which code built for CUDA 11 asks for. */
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
};

int hg_device_attribute(CUdevice_attribute attribute, int device, CUresult *result)
{
    *result = CUDA_SUCCESS;
    if (!hg_device_get(device))
        *result = CUDA_ERROR_INVALID_DEVICE;
    else if (attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        *result = CUDA_ERROR_INVALID_VALUE;
    else if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        return device + 1;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].attribute == attribute)
            return attributes[i].value;
    return 0;
}
