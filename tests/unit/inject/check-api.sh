#!/bin/sh
# Every public function of NCCL is either in the recorder's table or in the list of those that are not recorded, and
# nothing is in there that NCCL does not have. Known functions: the nccl.h (and nccl_device.h) of this build, and the
# lab's list of what each release exports. check-api.sh TABLE UNRECORDED LAB_LIST COMPILER...
set -eu
table=$1 unrecorded=$2 lab=$3
shift 3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# "version name" of both lists.
sed -n 's/^NCCL_API(\([A-Za-z]*\), \([0-9]*\),.*/\2 \1/p' "$table" | sort -k2 >"$scratch/table"
sed -n 's/^\([0-9][0-9]*\) \([A-Za-z0-9]*\) .*/\1 \2/p' "$unrecorded" | sort -k2 >"$scratch/unrecorded"
sort -k2 "$scratch/table" "$scratch/unrecorded" >"$scratch/ours"

header=$(printf '#include <nccl.h>\n' | "$@" -x c -M - | tr ' \\' '\n\n' | grep '/nccl\.h$' | head -n 1)
device=${header%/nccl.h}/nccl_device
[ -d "$device" ] || device=
# Declarations: the headers as C, without comments; inline functions of the device headers are none.
{
    printf '#include <nccl.h>\nrelease NCCL_VERSION_CODE\n' | "$@" -x c -E -P -
    [ -z "$device" ] || grep -h '^NCCL_EXTERN_C __host__' "$device"/*.h
} >"$scratch/headers"
release=$(sed -n 's/^release //p' "$scratch/headers")
tr '\n;' ' \n' <"$scratch/headers" | grep -oE '\bnccl[A-Z][A-Za-z0-9]*[ ]*\(' | tr -d ' (' | grep -v '^ncclParam' |
    sort -u >"$scratch/declared"
sed -n 's/^[0-9][0-9]* //p' "$lab" | sort -u >"$scratch/lab"
[ "$(wc -l <"$scratch/declared")" -gt 30 ]

bad=0
complain() {
    [ ! -s "$scratch/out" ] || { echo "$1:"; sed 's/^/    /' "$scratch/out"; bad=1; }
}
cut -d' ' -f2 "$scratch/ours" | uniq -d >"$scratch/out"
complain "both recorded and not"
cut -d' ' -f2 "$scratch/ours" | sort -u >"$scratch/names"
sort -u "$scratch/declared" "$scratch/lab" | comm -23 - "$scratch/names" >"$scratch/out"
complain "neither recorded nor listed as unrecorded"
# Packages without the device headers lack those functions.
awk -v release="$release" -v device="$device" '$1 <= release && (device || $1 != 22803) { print $2 }' "$scratch/ours" | sort -u |
    comm -23 - "$scratch/declared" >"$scratch/out"
complain "not in the headers of release $release"
# Since when: the lab's list begins with 2.18.
awk 'NR == FNR { since[$2] = $1; next } ($2 in since) && ($1 > 21800 || since[$2] > 21800) && since[$2] != $1 {
    print $2 ": " $1 " or " since[$2] }' "$scratch/ours" "$lab" >"$scratch/out"
complain "first release"
exit $bad
