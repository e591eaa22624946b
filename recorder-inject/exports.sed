# nccl-api.def -> linker version script: the intercepted names, a plugin's tables, and nothing else.
1i\
{\
global:\
_exit;\
_Exit;\
dlsym;\
ncclProfiler_v4;\
ncclProfiler_v5;\
ncclProfiler_v6;
s/^NCCL_API(\([A-Za-z]*\),.*/\1;/p
$a\
local: *;\
};
