/*
 * fork: the child is another process and starts afresh at its own first NCCL call. Of the
 * parent it keeps nothing: its copy of the mapping and of the file descriptor is dropped, and
 * nothing is written through either.
 */
#include "inject.h"

static void in_child(void)
{
    recorder_forget();
}

void fork_hooks_install(void)
{
    static bool installed; /* inherited by children, and so is the registration */
    if (!installed)
        installed = pthread_atfork(NULL, NULL, in_child) == 0;
}
