# nccl-api.def -> linker version script: the intercepted names and nothing else.
1i\
{\
global:\
_exit;\
_Exit;\
dlsym;
s/^NCCL_API(\([A-Za-z]*\),.*/\1;/p
$a\
local: *;\
};
